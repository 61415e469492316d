"""The doctor on hosts that are reached by SSH: what they tell is their own, and what they lack is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pareto import doctor as examination
from pareto.hosts import inventory
from pareto.hosts.finding import Finding
from tests.lab import Lab, give_up_soon, open_lab
from tests.less_than_root import needs_networks
from tests.program import command

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """With the driver's home."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return hosts


def doctor(testbed: Path, *options: str) -> tuple[int, list[str]]:
    """Its exit code, and what it said, each finding in one line."""
    done = command("doctor", "--testbed", str(testbed), *options)
    assert done.err == ""
    return done.code, done.out.replace("\n         ", " ").splitlines()


def of(host: str, lines: list[str]) -> list[str]:
    """The section of that host."""
    start = next(number for number, line in enumerate(lines) if line.split()[1:2] == [host])
    return lines[start : lines.index("", start)]


def test_what_the_hosts_tell_of_themselves(lab: Lab) -> None:
    pi, gpu = lab.host("pi"), lab.host("gpu")
    code, lines = doctor(lab.testbed())
    assert code == 2  # the program that shapes the link was never installed there
    for host, other in ((pi, gpu), (gpu, pi)):
        said = of(host.name, lines)
        assert any(line.startswith(f"ok     data link: {host.data_address} on data0") for line in said)
        assert f"ok     route: packets to {other.data_address} leave through data0" in said
        assert f"ok     listening: can listen on {host.data_address}" in said
        assert any(line.startswith("ok     packages: torch ") for line in said)
        rights = next(number for number, line in enumerate(said) if "rights:" in line)
        assert "/usr/local/sbin/pareto-link, which shapes the link, is not installed" in said[rights]
        assert said[rights + 1] == f"       ./pareto.sh hosts setup --testbed {lab.testbed()}"


def test_faults_of_one_host(lab: Lab) -> None:
    testbed = lab.testbed(
        "faults.yaml",
        pi={"data_interface": "mgmt0", "python": "/nowhere/python"},
        gpu={"data_interface": "mgmt0"},
    )
    code, lines = doctor(testbed)
    assert code == 2
    assert "fault  python: there is no /nowhere/python" in of("pi", lines)
    address = lab.host("gpu").data_address
    assert f"fault  data link: {address} is on data0, not on mgmt0" in of("gpu", lines)


def test_a_cable_that_is_pulled(lab: Lab) -> None:
    lab.link_down()
    lab.link_up()
    # The kernel has just passed on a change of carrier, and takes a second until it passes on this one.
    lab.link_down()
    try:
        _, lines = doctor(lab.testbed())
    finally:
        lab.link_up()
    assert "fault  data link: data0 has no carrier" in of("pi", lines)
    assert "fault  data link: data0 is down" in of("gpu", lines)


def test_a_host_that_is_off_does_not_hide_the_other(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    give_up_soon(monkeypatch, lab.host("gpu"))
    lab.host("gpu").power_off()
    try:
        code, lines = doctor(lab.testbed())
    finally:
        lab.host("gpu").power_on()
        lab.wait_for_link()
    assert code == 2
    assert of("gpu", lines)[1].startswith("fault  login: gpu (pi@")
    assert of("gpu", lines)[2] == "       ssh gpu true"
    assert "ok     login: it answers" in of("pi", lines)


def links(lab: Lab) -> list[Finding]:
    """What the doctor says of them, were the hosts fine."""
    return examination._of_links(inventory.load(lab.testbed()))


def test_the_link_between_hosts_that_are_fine(lab: Lab) -> None:
    (found,) = links(lab)
    assert (found.what, found.fix, found.fatal) == ("link", "", False), found.words
    assert "round trip" in found.words
    assert "/s out, " in found.words


def test_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a network between each two neighbours: what it lacks, and that the commands put it right."""
    with open_lab(tmp_path, middle="cables") as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        code, lines = doctor(lab.testbed())
        assert code == 2
        mid, gpu = lab.host("mid"), lab.host("gpu")
        said = of("mid", lines)
        assert said[0] == "middle1 mid (mid)"
        for address, interface, peer in (
            (mid.data_address, "data0", lab.host("pi").data_address),
            (mid.next_address, "data1", gpu.data_address),
        ):
            assert any(line.startswith(f"ok     data link: {address} on {interface}") for line in said)
            assert f"ok     route: packets to {peer} leave through {interface}" in said
        assert any(line.startswith("fault  rights: ") for line in said)
        assert not any(line.startswith("fault") for line in of("gpu", lines)), "it has nothing to shape"
        *fine, rpc = links(lab)
        assert [(one.what, one.fatal) for one in fine] == [
            ("link edge-middle1", False),
            ("link middle1-server", False),
        ]
        assert rpc.what == "rpc"
        for step in rpc.fix.split("; "):
            name, cure = step.removeprefix("on ").split(": ")
            lab.host(name).run(cure.removeprefix("sudo "))
        assert [one.what for one in links(lab)] == ["link edge-middle1", "link middle1-server"]
