"""What OpenSSH's configuration makes of a name, asked of the real `ssh -G`; and the user's keys.

Which are tried, in which order, and when a passphrase is asked for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import TestbedError
from pareto.hosts.ssh import keys
from pareto.hosts.ssh.keys import Keyring, NoKey
from pareto.hosts.ssh.login import Login, shown
from tests.unit.example_host import resolve
from tests.unit.refusals import refusal

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def configure(home: Path, *lines: str) -> None:
    """Lines of several options, with `;` between them."""
    (home / ".ssh" / "config").write_text("\n".join(lines).replace("; ", "\n  ") + "\n")


def make_keys(home: Path, *names: str) -> list[Path]:
    paths = [home / ".ssh" / name for name in names]
    for path in paths:
        path.touch()
    return paths


def told(who: Login | None) -> tuple[str, str, int, str]:
    assert who is not None
    return who.user, who.address, who.port, who.known_as


def test_an_address_needs_no_configuration(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = make_keys(home, "id_ed25519")
    who = resolve("pi", "pi@192.168.7.2")
    assert told(who) == ("pi", "192.168.7.2", 22, "192.168.7.2")
    assert (who.name, str(who), who.ssh) == ("pi", "pi (pi@192.168.7.2)", "pi@192.168.7.2")
    assert who.known_hosts[0] == home / ".ssh" / "known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in who.known_hosts
    assert who.identities == (key,)
    assert (who.agent, who.identities_only, who.jump, who.proxy_command) == ("", False, None, "")
    assert [shown(path) for path in (key, Path("/elsewhere/key"))] == ["~/.ssh/id_ed25519", "/elsewhere/key"]
    # A name of the configuration and what it includes.
    included = "Host gpu\n  HostName 10.0.0.5\n  User me\n  Port 2222\n  HostKeyAlias big\n"
    (home / "lab.conf").write_text(included)
    configure(home, f"Include {home}/lab.conf", "Host *; UserKnownHostsFile ~/.ssh/kh_%h /dev/null")
    who = resolve("server", "gpu")
    assert told(who) == ("me", "10.0.0.5", 2222, "big")
    assert who.known_hosts[0] == home / ".ssh" / "kh_10.0.0.5"
    assert home / "/dev/null" not in who.known_hosts
    # The testbed file goes first.
    configure(home, "Host gpu; User me; Port 2222; IdentityFile ~/.ssh/other")
    make_keys(home, "other")
    (mine := home / "mine key").touch()
    who = resolve("server", "gpu", port=2200, user="you", key=mine)
    assert told(who) == ("you", "gpu", 2200, "[gpu]:2200")
    assert (who.identities[0], who.identities_only) == (mine, True)
    assert who.ssh == f"-p 2200 -o IdentitiesOnly=yes -i '{mine}' you@gpu"
    assert resolve("server", "them@gpu", user="you").user == "you"
    # The agent.
    monkeypatch.setenv("SSH_AUTH_SOCK", "/somewhere/agent")
    monkeypatch.setenv("OTHER", "/other/agent")
    own = "Host own; IdentityAgent ~/agent-%r; User me"
    configure(home, "Host none; IdentityAgent none", own, "Host other; IdentityAgent $OTHER")
    agents = {"plain": "/somewhere/agent", "none": "", "own": f"{home}/agent-me", "other": "/other/agent"}
    assert {name: resolve("a", name).agent for name in agents} == agents


def test_identities_with_tokens_of_those_that_exist(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHICH", "third")
    named = [
        f"IdentityFile {path}" for path in ("~/.ssh/%r_%h", "%d/.ssh/%n", "~/.ssh/${WHICH}", "~/.ssh/no")
    ]
    configure(home, "; ".join(["Host pi; HostName 10.0.0.7; User me; IdentitiesOnly yes", *named]))
    first, second, third = make_keys(home, "me_10.0.0.7", "pi", "third.pub")
    who = resolve("pi", "pi")
    assert who.identities == (first, second, third.with_suffix(""))  # the last has its private half elsewhere
    assert who.identities_only


def test_a_chain_of_jump_hosts_ends_at_the_first_with_its_own_configuration(home: Path) -> None:
    configure(
        home,
        *("Host gpu; ProxyJump you@one:2201,two", "Host one; HostName 10.0.0.1; ProxyJump zero"),
        *("Host two; HostName 10.0.0.2; User them; ProxyJump never", "Host zero; HostName 10.0.0.9"),
        "Host six; ProxyJump me@[fd00::1]:2222",
    )
    two = resolve("server", "gpu").jump
    assert two is not None and two.jump is not None
    one = two.jump
    assert (two.name, *told(two)) == ("two", "them", "10.0.0.2", 22, "10.0.0.2")
    assert (one.name, *told(one)) == ("one", "you", "10.0.0.1", 2201, "[10.0.0.1]:2201")
    assert one.jump is not None and (one.jump.address, one.jump.jump) == ("10.0.0.9", None)
    assert told(resolve("server", "six").jump) == ("me", "fd00::1", 2222, "[fd00::1]:2222")
    # A proxy command with tokens.
    reach = "ProxyCommand reach %h %p %r %n 100%%"
    none = "Host pi; ProxyCommand none; ProxyJump none"
    configure(home, f"Host gpu; HostName 10.0.0.5; Port 2222; User me; {reach}", none)
    assert resolve("server", "gpu").proxy_command == "reach 10.0.0.5 2222 me gpu 100%"
    pi = resolve("edge", "pi")
    assert (pi.proxy_command, pi.jump) == ("", None)


def test_what_ssh_cannot_read(
    home: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """A target is never an option; jump hosts may lead in a circle, keys and ssh itself may not be there."""
    circle = ("Host a; ProxyJump b", "Host b; ProxyJump a")
    for config, target, words in (
        (("Host pi; Frobnicate yes",), "pi", "^edge: .*line 2: "),
        ((), "a b", "^edge: "),
        ((), "-oProxyCommand=true", ""),
        (circle, "a", "ProxyJump"),
        (("Host *; ProxyJump b",), "a", ""),
    ):
        configure(home, *config)
        assert re.search(words, refusal(TestbedError, resolve, "edge", target))
    configure(home)
    said = refusal(TestbedError, resolve, "pi", "pi", key=home / "gone")
    assert said.startswith("pi: ") and "gone" in said
    monkeypatch.setenv("PATH", str(home))
    assert [said, refusal(TestbedError, resolve, "edge", "pi")] == snapshot


# Keys.

SECRET = "secret"  # noqa: S105


def make(path: Path, *options: str, passphrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", *(options or ("-t", "ed25519")), "-N", passphrase, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def login(*identities: Path) -> Login:
    return Login("pi", "10.0.0.1", 22, "pi", identities=identities)


def offered(keyring: Keyring, login: Login) -> list[str]:
    with closing(keyring.offers(login)) as offers:
        return [words for _, words in offers]


@pytest.mark.parametrize("passphrase", ["", "secret"])
@pytest.mark.parametrize("options", [("-t", "ed25519"), ("-t", "rsa", "-b", "1024", "-m", "PEM")])
def test_every_kind_of_file_is_read(home: Path, options: tuple[str, ...], passphrase: str) -> None:
    path = make(home / "key", *options, passphrase=passphrase)
    assert keys.is_locked(path) == bool(passphrase)
    key = keys.load(path, passphrase or None)
    public = path.with_suffix(".pub").read_text().split()[:2]
    assert [key.get_name(), key.get_base64()] == public
    assert keys.public_half(path) == key.asbytes()
    assert keys.public_half(path.with_suffix(".pub")) == key.asbytes()  # named as identity it is its own half
    path.with_suffix(".pub").unlink()
    assert keys.public_half(path) == (None if "PEM" in options and passphrase else key.asbytes())


def test_a_key_of_this_run_is_the_only_one(home: Path) -> None:
    key, _ = keys.new_key()
    with closing(Keyring(only=key).offers(login(make(home / "file")))) as offers:
        assert [each for each, _ in offers] == [key]


def test_a_passphrase_is_asked_for_once_and_last(home: Path, snapshot: SnapshotAssertion) -> None:
    locked = make(home / "locked", passphrase=SECRET)
    plain = make(home / "plain")
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "secret"

    keyring = Keyring(ask)
    with closing(keyring.offers(login(locked, plain))) as offers:
        assert next(offers)[1] == "~/plain"
        assert asked == []
        assert next(offers)[1] == "~/locked"
    assert asked == snapshot
    assert offered(keyring, login(locked, plain)) == ["~/locked", "~/plain"]  # it is open now
    assert len(asked) == 1
    # A wrong passphrase may be mended and none given is not asked for again.
    answers = ["wrong", "secret"]
    assert offered(Keyring(lambda _: answers.pop(0)), login(locked)) == ["~/locked"]
    given = ["", "secret"]
    keyring = Keyring(lambda _: given.pop(0))
    assert offered(keyring, login(locked)) == offered(keyring, login(locked)) == []
    assert given == ["secret"]


def test_without_a_terminal_the_agent_is_recommended(home: Path, snapshot: SnapshotAssertion) -> None:
    first, second = (make(home / name, passphrase=SECRET) for name in ("first", "second"))
    one, both = (refusal(NoKey, offered, Keyring(), login(*them)) for them in ((first,), (first, second)))
    assert "ssh-add ~/first" in one and "ssh-add ~/first ~/second" in both
    assert [one, both] == snapshot


def test_files_that_are_no_keys_are_passed_over(home: Path) -> None:
    """An agent that is not there has none."""
    torn = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"
    paths = [home / name for name in ("empty", "binary", "torn", "missing")]
    for path, content in zip(paths, (b"", b"\xff\x00", torn), strict=False):
        path.write_bytes(content)
    good = make(home / "good")
    assert offered(Keyring(), login(*paths, good)) == ["~/good"]
    assert offered(Keyring(), replace(login(good), agent=str(home / "gone"))) == ["~/good"]
