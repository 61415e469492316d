"""Which host keys are known, and what is said of those that are not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pareto.hosts import known_hosts, ssh
from pareto.hosts.login import Login
from pareto.hosts.way import Unreachable

KEY, LINE = ssh.new_key()
OTHER, OTHER_LINE = ssh.new_key()


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
    with pytest.raises(Unreachable) as fault:
        check(login, key)
    assert "\n" not in str(fault.value)
    return str(fault.value)


@pytest.mark.parametrize(
    "names",
    ["192.168.7.2", "pi,192.168.7.2", "192.168.*", "192.168.7.?", "*,!10.*"],
)
def test_a_key_that_is_known(login: Login, names: str) -> None:
    write(login, f"{names} {LINE} a comment")
    check(login)


@pytest.mark.parametrize("names", ["192.168.7.20", "*,!192.168.7.2", "192.168.7.2.example", "192x168x7x2"])
def test_a_line_about_others(login: Login, names: str) -> None:
    write(login, f"{names} {LINE}")
    assert "is not in known_hosts" in refusal(login)


def test_a_port_of_its_own(login: Login) -> None:
    write(login, f"[192.168.7.2]:2222 {LINE}", f"192.168.7.2 {OTHER_LINE}")
    check(at_port(login, 2222))
    check(login, OTHER)
    assert "another host key" in refusal(login)
    assert "is not in known_hosts" in refusal(at_port(login, 22222))


@pytest.mark.parametrize("port", [22, 2222])
def test_hashed_names_as_openssh_writes_them(login: Login, port: int) -> None:
    login = at_port(login, port) if port != 22 else login
    write(login, f"{login.known_as} {LINE}", f"elsewhere {OTHER_LINE}")
    subprocess.run(["ssh-keygen", "-H", "-f", str(login.known_hosts[0])], check=True, capture_output=True)
    assert login.address not in login.known_hosts[0].read_text()
    check(login)
    assert "another host key" in refusal(login, OTHER)


def test_a_revoked_key_is_refused_whatever_else_is_said(login: Login) -> None:
    write(login, f"192.168.7.2 {LINE}", f"@revoked * {LINE}")
    assert "revoked" in refusal(login)
    write(login, f"@revoked * {OTHER_LINE}")
    assert "is not in known_hosts" in refusal(login)  # a revoked key alone is no key to expect


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
    assert "is not in known_hosts" in refusal(login)


def test_several_files_of_which_some_are_not_there(login: Login, tmp_path: Path) -> None:
    other = tmp_path / "machine"
    other.write_text(f"192.168.7.2 {LINE}\n")
    check(replace(login, known_hosts=(*login.known_hosts, tmp_path / "none", other)))


def test_a_file_that_cannot_be_read_is_said(login: Login, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"^pi \(pi@192\.168\.7\.2\): cannot read "):
        check(replace(login, known_hosts=(tmp_path,)))


def test_what_is_said_of_an_unknown_host(login: Login) -> None:
    assert refusal(login) == (
        f"pi (pi@192.168.7.2) is not in known_hosts; it shows {known_hosts.fingerprint(KEY)}: compare that with its "
        f"own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there) and add it: "
        f"ssh-keyscan -p 22 192.168.7.2 >> ~/.ssh/known_hosts"
    )
    assert "ssh-keyscan -p 2222 192.168.7.2 >>" in refusal(at_port(login, 2222))


def test_where_a_scan_would_not_see_it_the_line_itself_is_said(login: Login) -> None:
    behind = replace(login, jump=login)
    assert f"add it: echo '192.168.7.2 {LINE}' >> ~/.ssh/known_hosts" in refusal(behind)
    assert f"echo 'alias {LINE}' >>" in refusal(replace(login, known_as="alias"))


def test_what_is_said_of_a_changed_key(login: Login) -> None:
    write(login, f"192.168.7.2 {OTHER_LINE}", f"[192.168.7.2]:2222 {OTHER_LINE}")
    assert refusal(login) == (
        f"pi (pi@192.168.7.2) shows another host key ({known_hosts.fingerprint(KEY)}) than known_hosts has: "
        f"somebody may be in between; if it was set up anew: ssh-keygen -R 192.168.7.2"
    )
    assert refusal(at_port(login, 2222)).endswith("ssh-keygen -R '[192.168.7.2]:2222'")


def test_a_pinned_key_is_the_only_one(login: Login) -> None:
    write(login, f"192.168.7.2 {LINE}")
    pinned = replace(login, host_key=OTHER_LINE)
    check(pinned, OTHER)
    assert "another host key" in refusal(pinned)


def test_types_that_are_known_are_asked_for_first(login: Login) -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    write(login, "192.168.7.2 " + public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    supported = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]
    ordered = known_hosts.kinds(known_hosts.known(login), supported)
    assert ordered == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert known_hosts.kinds([], supported) == supported


def test_the_fingerprint_is_openssh_s(tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_text(f"{LINE}\n")
    said = subprocess.run(["ssh-keygen", "-lf", str(file)], check=True, capture_output=True, text=True).stdout
    assert said.split()[1] == known_hosts.fingerprint(KEY)


def test_adding_a_key_makes_what_is_not_there(login: Login) -> None:
    login = at_port(login, 2222)
    file = login.known_hosts[0]
    known_hosts.add(login, KEY)
    assert file.read_text() == f"[192.168.7.2]:2222 {LINE}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    check(login)


def test_adding_a_key_keeps_what_is_there(login: Login) -> None:
    write(login, f"elsewhere {OTHER_LINE}")
    file = login.known_hosts[0]
    file.write_text(file.read_text().rstrip("\n"))
    known_hosts.add(login, KEY)
    assert file.read_text() == f"elsewhere {OTHER_LINE}\n192.168.7.2 {LINE}\n"
