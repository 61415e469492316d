"""Which host keys are known, and what is said of those that are not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.ssh import keys, known_hosts
from pareto.hosts.ssh.login import Login
from tests.unit.refusals import refusal as refused

KEY, LINE = keys.new_key()
OTHER, OTHER_LINE = keys.new_key()
UNKNOWN, CHANGED, REVOKED = "is not in known_hosts", "another host key", "revoked"
"""What tells the refusals from each other."""


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ssh" / "known_hosts"
    return Login("pi", "192.168.7.2", 22, "pi", known_hosts=(file,), known_as="192.168.7.2")


def at_port(login: Login, port: int) -> Login:
    return replace(login, port=port, known_as=f"[{login.address}]:{port}")


def write(login: Login, *lines: str) -> None:
    login.known_hosts[0].parent.mkdir(exist_ok=True)
    login.known_hosts[0].write_text("\n".join(lines) + "\n")


def check(login: Login, key: paramiko.PKey = KEY) -> None:
    known_hosts.check(login, key, known_hosts.known(login))


def refusal(login: Login, key: paramiko.PKey = KEY) -> str:
    return refused(Unreachable, check, login, key)


NAMES = {
    **dict.fromkeys(["192.168.7.2", "pi,192.168.7.2", "192.168.*", "192.168.7.?", "*,!10.*"], True),
    **dict.fromkeys(["192.168.7.20", "*,!192.168.7.2", "192.168.7.2.example", "192x168x7x2"], False),
}


@pytest.mark.parametrize("names", NAMES)
def test_whom_a_line_is_about(login: Login, names: str) -> None:
    write(login, f"{names} {LINE} a comment")
    if NAMES[names]:
        check(login)
    else:
        assert UNKNOWN in refusal(login)


def test_a_port_of_its_own(login: Login) -> None:
    write(login, f"[192.168.7.2]:2222 {LINE}", f"192.168.7.2 {OTHER_LINE}")
    check(at_port(login, 2222))
    check(login, OTHER)
    assert CHANGED in refusal(login)
    assert UNKNOWN in refusal(at_port(login, 22222))


@pytest.mark.parametrize("port", [22, 2222])
def test_hashed_names_as_openssh_writes_them(login: Login, port: int) -> None:
    login = at_port(login, port) if port != 22 else login
    write(login, f"{login.known_as} {LINE}", f"elsewhere {OTHER_LINE}")
    subprocess.run(["ssh-keygen", "-H", "-f", str(login.known_hosts[0])], check=True, capture_output=True)
    assert login.address not in login.known_hosts[0].read_text()
    check(login)
    assert CHANGED in refusal(login, OTHER)


def test_a_revoked_key_is_refused_whatever_else_is_said(login: Login) -> None:
    write(login, f"192.168.7.2 {LINE}", f"@revoked * {LINE}")
    assert REVOKED in refusal(login)
    write(login, f"@revoked * {OTHER_LINE}")
    assert UNKNOWN in refusal(login)  # a revoked key alone is no key to expect


def test_lines_that_mean_nothing_are_passed_over(login: Login) -> None:
    write(
        login,
        *("", "# a comment", "192.168.7.2", "192.168.7.2 ssh-ed25519", "192.168.7.2 ssh-ed25519 !!!!"),
        *("192.168.7.2 ssh-rsa AAAA", "|1|x|y ssh-ed25519 AAAA", "|1| ssh-ed25519 AAAA", "\x00\xff\xfe"),
        f"@cert-authority * {OTHER_LINE}",
        f"192.168.7.2 ssh-rsa {OTHER_LINE.split()[1]}",
        f"  192.168.7.2\t{LINE.replace(' ', chr(9))}",
    )
    assert [entry.kind for entry in known_hosts.known(login)] == ["ssh-ed25519"]
    check(login)
    write(login, f"@cert-authority * {LINE}")
    assert UNKNOWN in refusal(login)


def test_several_files_of_which_some_are_not_there(login: Login, tmp_path: Path) -> None:
    other = tmp_path / "machine"
    other.write_text(f"192.168.7.2 {LINE}\n")
    check(replace(login, known_hosts=(*login.known_hosts, tmp_path / "none", other)))
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(Unreachable, match="~/folder"):
        check(replace(login, known_hosts=(folder,)))


def shown(refusals: list[str]) -> list[str]:
    """With a name in place of the key, which is another one in each run."""
    fingerprint = KEY.fingerprint
    assert all(fingerprint in each for each in refusals)
    return [each.replace(fingerprint, "FINGERPRINT").replace(LINE, "LINE") for each in refusals]


def test_what_is_said_of_an_unknown_host_and_of_a_changed_key(
    login: Login, snapshot: SnapshotAssertion
) -> None:
    """Where a scan would not see the host, the line itself is said."""
    other_port = at_port(login, 2222)
    unseen = replace(login, jump=login), replace(login, known_as="alias")
    refusals = [refusal(each) for each in (login, other_port, *unseen)]
    write(login, f"192.168.7.2 {OTHER_LINE}", f"[192.168.7.2]:2222 {OTHER_LINE}")
    refusals += [refusal(login), refusal(other_port)]
    for said, named in zip(
        refusals[1:],
        (
            "ssh-keyscan -p 2222 192.168.7.2 >>",
            f"echo '192.168.7.2 {LINE}' >> ~/.ssh/known_hosts",
            f"echo 'alias {LINE}' >>",
            "ssh-keygen -R 192.168.7.2",
            "ssh-keygen -R '[192.168.7.2]:2222'",
        ),
        strict=True,
    ):
        assert named in said
    assert shown(refusals) == snapshot


def test_a_pinned_key_is_the_only_one(login: Login) -> None:
    write(login, f"192.168.7.2 {LINE}")
    pinned = replace(login, host_key=OTHER_LINE)
    check(pinned, OTHER)
    assert CHANGED in refusal(pinned)


def test_types_that_are_known_are_asked_for_first(login: Login) -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    write(login, "192.168.7.2 " + public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    supported = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]
    ordered = known_hosts.kinds(known_hosts.known(login), supported)
    assert ordered == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert known_hosts.kinds([], supported) == supported
