"""What integration tests share: each module has a machine of its own, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pareto.partitions import registry
from tests.integration.own_machine import left_behind, left_clean, processes
from tests.integration.relay_net import Net, Relay, net_with_relay
from tests.lab import Lab, open_lab
from tests.program import end_started, wait_until

PASSWORD = "raspberry"  # noqa: S105
"""Of the users of `lab`."""


@pytest.fixture(scope="module", autouse=True)
def models_of_its_own() -> Iterator[None]:
    """Models of users' files are forgotten with the module: the next one has others of the same names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_adopted", {})
        yield


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """Nothing of the module's tests is left there when its own fixtures have ended."""
    with left_clean():
        yield


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Whatever the test does, the machine is as it was a moment later."""
    before = left_behind()
    yield
    end_started()
    wait_until(lambda: left_behind() <= before)
    assert left_behind() - before == set(), dict(processes())


@pytest.fixture(scope="module")
def link() -> Iterator[tuple[Net, Relay]]:
    """Three namespaces with a relay between two of them, for a module."""
    with net_with_relay() as link:
        yield link


@pytest.fixture
def net(link: tuple[Net, Relay]) -> Net:
    """The namespaces of `link`."""
    return link[0]


@pytest.fixture
def relay(link: tuple[Net, Relay]) -> Relay:
    """The relay of `link`."""
    return link[1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Hosts on which nothing is installed and nothing allowed; the driver's key is in, a password would do, too."""
    with open_lab(tmp_path_factory.mktemp("lab")) as lab, pytest.MonkeyPatch.context() as patch:
        for host in lab.hosts.values():
            host.run(f"echo {host.user}:{PASSWORD} | chpasswd")
            host.run("sed -i 's/^PasswordAuthentication no/PasswordAuthentication yes/' /etc/ssh/sshd_config")
            host.change_host_key()  # starts sshd anew
        lab.know_hosts()
        patch.setenv("HOME", str(lab.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield lab


@pytest.fixture
def known(lab: Lab) -> None:
    """The driver knows the hosts of `lab`, whatever the test before has made of that."""
    lab.know_hosts()
