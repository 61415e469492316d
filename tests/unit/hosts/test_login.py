"""What OpenSSH's configuration makes of a name, asked of the real `ssh -G`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import TestbedError
from pareto.hosts.ssh.login import shown
from tests.unit.example_host import resolve

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def configure(home: Path, text: str) -> None:
    (home / ".ssh" / "config").write_text(text)


def make_keys(home: Path, *names: str) -> list[Path]:
    paths = [home / ".ssh" / name for name in names]
    for path in paths:
        path.touch()
    return paths


def test_an_address_needs_no_configuration(home: Path) -> None:
    (key,) = make_keys(home, "id_ed25519")
    who = resolve("pi", "pi@192.168.7.2")
    assert (who.name, who.user, who.address, who.port) == ("pi", "pi", "192.168.7.2", 22)
    assert str(who) == "pi (pi@192.168.7.2)"
    assert who.known_as == "192.168.7.2"
    assert who.known_hosts[0] == home / ".ssh" / "known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in who.known_hosts
    assert who.identities == (key,)
    assert (who.agent, who.identities_only, who.jump, who.proxy_command) == ("", False, None, "")
    assert who.ssh == "pi@192.168.7.2"


def test_a_name_of_the_configuration_and_what_it_includes(home: Path) -> None:
    (home / "lab.conf").write_text(
        "Host gpu\n  HostName 10.0.0.5\n  User me\n  Port 2222\n  HostKeyAlias big\n"
    )
    configure(home, f"Include {home}/lab.conf\nHost *\n  UserKnownHostsFile ~/.ssh/kh_%h /dev/null\n")
    who = resolve("server", "gpu")
    assert (who.user, who.address, who.port, who.known_as) == ("me", "10.0.0.5", 2222, "big")
    assert who.known_hosts[0] == home / ".ssh" / "kh_10.0.0.5"
    assert home / "/dev/null" not in who.known_hosts


def test_what_the_testbed_file_says_goes_first(home: Path) -> None:
    configure(home, "Host gpu\n  User me\n  Port 2222\n  IdentityFile ~/.ssh/other\n")
    make_keys(home, "other")
    mine = home / "mine key"
    mine.touch()
    who = resolve("server", "gpu", port=2200, user="you", key=mine)
    assert (who.user, who.port, who.known_as) == ("you", 2200, "[gpu]:2200")
    assert who.identities[0] == mine
    assert who.identities_only
    assert who.ssh == f"-p 2200 -o IdentitiesOnly=yes -i '{mine}' you@gpu"
    assert resolve("server", "them@gpu", user="you").user == "you"


def test_a_key_that_is_not_there_is_said(home: Path, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TestbedError, match=r"^pi: .*gone") as refused:
        resolve("pi", "pi", key=home / "gone")
    assert str(refused.value) == snapshot


def test_identities_with_tokens_and_only_those_that_exist(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHICH", "third")
    configure(
        home,
        "Host pi\n  HostName 10.0.0.7\n  User me\n  IdentitiesOnly yes\n  IdentityFile ~/.ssh/%r_%h\n"
        "  IdentityFile %d/.ssh/%n\n  IdentityFile ~/.ssh/${WHICH}\n  IdentityFile ~/.ssh/missing\n",
    )
    first, second, third = make_keys(home, "me_10.0.0.7", "pi", "third.pub")
    who = resolve("pi", "pi")
    assert who.identities == (first, second, third.with_suffix(""))  # the last has its private half elsewhere
    assert who.identities_only


def test_which_agent(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/somewhere/agent")
    monkeypatch.setenv("OTHER", "/other/agent")
    configure(
        home,
        "Host none\n  IdentityAgent none\nHost own\n  IdentityAgent ~/agent-%r\n  User me\n"
        "Host other\n  IdentityAgent $OTHER\n",
    )
    assert resolve("a", "plain").agent == "/somewhere/agent"
    assert resolve("a", "none").agent == ""
    assert resolve("a", "own").agent == f"{home}/agent-me"
    assert resolve("a", "other").agent == "/other/agent"


def test_a_chain_of_jump_hosts_ends_at_the_first_with_its_own_configuration(home: Path) -> None:
    configure(
        home,
        "Host gpu\n  ProxyJump you@one:2201,two\nHost one\n  HostName 10.0.0.1\n  ProxyJump zero\n"
        "Host two\n  HostName 10.0.0.2\n  User them\n  ProxyJump never\nHost zero\n  HostName 10.0.0.9\n",
    )
    gpu = resolve("server", "gpu")
    two = gpu.jump
    assert two is not None and two.jump is not None
    assert (two.name, two.user, two.address, two.port) == ("two", "them", "10.0.0.2", 22)
    one = two.jump
    assert (one.name, one.user, one.address, one.port, one.known_as) == (
        *("one", "you", "10.0.0.1", 2201),
        "[10.0.0.1]:2201",
    )
    assert one.jump is not None and one.jump.address == "10.0.0.9"
    assert one.jump.jump is None


def test_jump_hosts_that_lead_in_a_circle_are_said(home: Path) -> None:
    configure(home, "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(TestbedError, match="ProxyJump"):
        resolve("server", "a")
    configure(home, "Host *\n  ProxyJump b\n")
    with pytest.raises(TestbedError) as fault:
        resolve("server", "a")
    assert "\n" not in str(fault.value)


def test_a_jump_host_with_an_ipv6_address(home: Path) -> None:
    configure(home, "Host gpu\n  ProxyJump me@[fd00::1]:2222\n")
    jump = resolve("server", "gpu").jump
    assert jump is not None
    assert (jump.user, jump.address, jump.port, jump.known_as) == ("me", "fd00::1", 2222, "[fd00::1]:2222")


def test_a_proxy_command_with_tokens(home: Path) -> None:
    configure(
        home,
        "Host gpu\n  HostName 10.0.0.5\n  Port 2222\n  User me\n  ProxyCommand reach %h %p %r %n 100%%\n"
        "Host pi\n  ProxyCommand none\n  ProxyJump none\n",
    )
    assert resolve("server", "gpu").proxy_command == "reach 10.0.0.5 2222 me gpu 100%"
    pi = resolve("edge", "pi")
    assert (pi.proxy_command, pi.jump) == ("", None)


@pytest.mark.parametrize(
    ("config", "target", "words"),
    [
        ("Host pi\n  Frobnicate yes\n", "pi", "line 2: "),
        ("", "a b", "^edge: "),
    ],
)
def test_what_ssh_cannot_read_is_one_line(home: Path, config: str, target: str, words: str) -> None:
    configure(home, config)
    with pytest.raises(TestbedError, match=words) as fault:
        resolve("edge", target)
    assert str(fault.value).startswith("edge: ")
    assert "\n" not in str(fault.value)


def test_a_target_is_never_an_option(home: Path) -> None:
    with pytest.raises(TestbedError):
        resolve("edge", "-oProxyCommand=true")


def test_a_machine_without_ssh(
    home: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(TestbedError) as refused:
        resolve("edge", "pi")
    assert str(refused.value) == snapshot


def test_paths_are_shown_as_they_are_written(home: Path) -> None:
    assert shown(home / ".ssh" / "id_rsa") == "~/.ssh/id_rsa"
    assert shown(Path("/elsewhere/key")) == "/elsewhere/key"
