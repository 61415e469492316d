"""What `hosts setup` installs for root; what `serve` decides, and the word that it prints, which `hosts add` reads."""

from __future__ import annotations

import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import TestbedError
from pareto.hosts.local import rights, sshd
from pareto.hosts.setup import invitation, privileged, serve
from pareto.hosts.setup.invitation import Invitation
from pareto.hosts.ssh import keys
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.less_than_root import needs_networks
from tests.program import refused
from tests.unit.example_host import ExampleHost, has
from tests.unit.refusals import refusal

needs_visudo = pytest.mark.skipif(
    shutil.which("visudo", path="/usr/sbin:/usr/bin:/sbin:/bin") is None, reason="needs sudo's visudo"
)


def install(
    root: Path, user: str = "pi", *, archive: bytes | None = None, script: str = ""
) -> subprocess.CompletedProcess[str]:
    path = root / "archive.tar"
    root.mkdir(exist_ok=True)
    path.write_bytes(privileged.archive() if archive is None else archive)
    text = script or privileged.install_script(user, prefix=str(root))
    return subprocess.run(["sh", "-c", text, "sh", str(path)], capture_output=True, text=True, check=False)


def starts(launcher: Path) -> bool:
    """Whether the installed program does from a folder and in an environment that would mislead a careless one."""
    trap = launcher.parent / "trap"
    (trap / "pareto").mkdir(parents=True, exist_ok=True)
    for module in ("pareto/__init__.py", "pyroute2.py", "json.py", "sitecustomize.py"):
        (trap / module).write_text("raise SystemExit('the user became root')\n")
    misleading = {"PYTHONPATH": str(trap), "HOME": str(trap), "PYTHONSTARTUP": str(trap / "json.py")}
    argv = [launcher, "--supported"]
    said = subprocess.check_output(argv, cwd=trap, env=misleading, text=True)
    return said in ("True\n", "False\n")


def launcher_of(root: Path) -> Path:
    return Path(f"{root}{privileged.LAUNCHER}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root beneath which it is, which no test changes. Interpreters that others can change were found first."""
    folder = tmp_path_factory.mktemp("installed")
    of_another, of_a_group = folder / "python3", folder / "python3.11"
    for path in (of_another, of_a_group):
        shutil.copy("/bin/true", path)
    if os.geteuid() == 0:
        os.chown(of_another, 1000, 1000)
    of_a_group.chmod(0o775)
    script = privileged.install_script("pi", prefix=str(folder / "root"))
    script = script.replace("in /usr/bin/python3 ", f"in {of_another} {of_a_group} /usr/bin/python3 ")
    done = install(folder / "root", script=script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "root"


@needs_visudo
@needs_networks
def test_what_is_installed_is_complete_and_starts_by_itself(installed: Path) -> None:
    launcher = launcher_of(installed)
    assert starts(launcher)
    assert subprocess.check_output([launcher, "--digest"], text=True).strip() == privileged.digest()
    sudoers = Path(f"{installed}{privileged.SUDOERS}")
    assert sudoers.read_text() == "pi ALL=(root) NOPASSWD: /usr/local/sbin/pareto-link\n"
    assert sudoers.stat().st_mode & 0o777 == 0o440
    assert launcher.stat().st_mode & 0o777 == 0o755
    library = Path(f"{installed}{privileged.LIBRARY}")
    assert [path.name for path in library.iterdir()] == [privileged.digest()]
    assert list(library.rglob("*.pyc"))
    assert [path for path in library.rglob("*") if path.stat().st_mode & 0o022] == []
    if os.geteuid() == 0:
        assert {(path.stat().st_uid, path.stat().st_gid) for path in library.rglob("*")} == {(0, 0)}
    # No interpreter that somebody else can change becomes root's.
    assert f" {installed.parent}/python3" not in launcher.read_text()
    assert "/usr/bin/python3" in launcher.read_text()


@needs_visudo
@needs_networks
def test_installing_again_replaces_what_was_there_and_keeps_other_users(tmp_path: Path) -> None:
    install(tmp_path)
    library = Path(f"{tmp_path}{privileged.LIBRARY}")
    (library / "older").mkdir()
    (library / ".new.killed").mkdir()
    damaged = library / privileged.digest() / "pareto" / "jsonlines.py"
    damaged.write_text("raise SystemExit\n")
    for _ in range(2):
        assert install(tmp_path, "ann").returncode == 0
    assert [path.name for path in library.iterdir()] == [privileged.digest()]
    assert starts(launcher_of(tmp_path))
    lines = Path(f"{tmp_path}{privileged.SUDOERS}").read_text().splitlines()
    assert lines == [privileged.sudoers_line("pi"), privileged.sudoers_line("ann")]


@needs_visudo
@needs_networks
def test_what_cannot_be_installed_leaves_what_was_there(installed: Path, snapshot: SnapshotAssertion) -> None:
    before = sorted(installed.rglob("*"))
    changed = install(installed, archive=privileged.archive() + b"\0")
    assert changed.returncode != 0
    assert changed.stderr.replace(str(installed), "TMP") == snapshot

    script = privileged.install_script("pi", prefix=str(installed))
    broken = install(installed, script=script.replace("pareto.remote.link", "pareto.lonk"))
    assert "lonk" in broken.stderr
    refused = install(installed, script=script.replace("pi ALL=", "pi =="))
    assert "visudo" in refused.stderr
    assert all(len(each.stderr.splitlines()) == 1 for each in (changed, broken, refused))
    assert sorted(installed.rglob("*")) == before
    assert starts(launcher_of(installed))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_it_says_that_it_needs_root(tmp_path: Path) -> None:
    done = install(tmp_path, script=privileged.install_script("pi"))
    assert (done.returncode, done.stderr) == (1, "run this as root\n")


def test_the_archive_is_the_same_for_the_same_files_and_the_digest_follows_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(
            REPOSITORY / "pareto", tmp_path / name / "pareto", ignore=shutil.ignore_patterns("__pycache__")
        )
    one, two = tmp_path / "one", tmp_path / "two"
    os.utime(two / "pareto" / "protocol" / "jsonlines.py", (1, 1))
    assert privileged.archive(one) == privileged.archive(two) == privileged.archive()
    assert privileged.digest(one) == privileged.digest()
    (two / "pareto" / "remote" / "link" / "tc.py").write_text("# changed\n")
    assert privileged.digest(two) != privileged.digest()


def test_nothing_travels_that_the_link_does_not_need() -> None:
    with tarfile.open(fileobj=io.BytesIO(privileged.archive())) as tar:
        names = tar.getnames()
        assert {(info.mode, info.uid, info.gid, info.mtime) for info in tar} == {(0o644, 0, 0, 0)}
    link = "pareto/remote/link/"
    ours = {name for name in names if name.startswith("pareto/") and not name.startswith(link)}
    needed = ("__init__", "constants", "errors", "jsonlines", "messages", "own", "validation")
    inits = {"pareto/__init__.py", "pareto/remote/__init__.py"}
    assert ours == inits | {f"pareto/protocol/{name}.py" for name in needed}
    assert {name.split("/")[0] for name in names} == {"pareto", "pyroute2"}
    assert f"{link}__main__.py" in names


def test_usual_names_are_taken_and_one_that_sudoers_takes_for_something_else_is_refused() -> None:
    for user in ["pi", "Ann", "j.doe", "lab-user", "_ci", "pi2"]:
        assert privileged.sudoers_line(user).startswith(f"{user} ALL=(root) NOPASSWD: ")
    for user in ("ALL", "%sudo", "#0", "+group", "pi ALL", "PI", "pi,ann", "a\nb", "", "pi\n"):
        assert repr(user) in refusal(TestbedError, privileged.sudoers_line, user)


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("uid", [0, 1000])
def test_the_server_lets_in_one_user_by_one_key_and_forwards_nothing(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, uid: int, locked: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(sshd, "is_locked", lambda user: locked)
    text = serve.configuration(Path("/run/user/1000/its folder"), "192.0.2.1", 7410, "ann")
    assert f"UsePAM {'yes' if uid == 0 and locked else 'no'}\n" in text
    assert text.replace("UsePAM yes", "UsePAM no") == snapshot


def test_places_that_are_none(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    """A place is free and this machine's; of several addresses one is to be named."""
    texts = ["nowhere", *(f"1.2.3.4:{port}" for port in ("0", "65536", "x", "")), "::1", "127.1"]
    texts += ["0.0.0.0", "0.0.0.0:22"]  # noqa: S104
    assert {text: refusal(UserError, serve.place, text) for text in texts} == snapshot
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--listen 127.0.0.1:{port}: Address already in use$"):
            serve.place(f"127.0.0.1:{port}")
    with pytest.raises(UserError, match=r"--listen 192.0.2.1: Cannot assign requested address$"):
        serve.place("192.0.2.1")
    address, port = serve.place("127.0.0.1")
    assert (address, port > 0) == ("127.0.0.1", True)
    has(host, lo="127.0.0.1/8", eth0="192.168.7.2/24", wlan0="192.168.1.20/24")
    with pytest.raises(UserError, match=r"192.168.7.2 \(eth0\), 192.168.1.20 \(wlan0\)$"):
        serve.place("")


def test_what_is_missing_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "sshd", lambda: None)
    with pytest.raises(UserError, match="no sshd on this machine: install it"):
        serve.serve("127.0.0.1", lambda _: None)
    monkeypatch.setattr(rights, "sshd", lambda: "/usr/sbin/sshd")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(UserError, match="the user 4000000 has no account here"):
        serve.serve("127.0.0.1", lambda _: None)


HOST, GUEST = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
PYTHON = "/home/ann/a clone/.venv/bin/python"
INVITED = Invitation(HOST.public_key(), GUEST, PYTHON)


def test_what_is_read_is_what_was_printed() -> None:
    assert INVITED.text.replace("-", "").replace("_", "").rstrip("=").isalnum()
    read = invitation.parse(f"  {INVITED.text}\n")
    assert invitation.public_line(read.host_key) == invitation.public_line(HOST.public_key())
    assert read.python == PYTHON
    assert read.guest_key.private_bytes_raw() == GUEST.private_bytes_raw()


def flipped(text: str) -> str:
    data = bytearray(urlsafe_b64decode(text))
    data[10] ^= 1
    return urlsafe_b64encode(data).decode()


WRONG: dict[str, Callable[[str], str]] = {
    "nothing": lambda _: "",
    "a word": lambda _: "word",
    "its end is missing": lambda text: text[:-8],
    "its beginning is missing": lambda text: text[4:],
    "one bit": flipped,
    "the whole line": lambda text: f"echo {text} | ./pareto.sh hosts add",
    "another alphabet": lambda _: "é" * 40,
    "a path of no host": lambda _: Invitation(HOST.public_key(), GUEST, "python3").text,
    "no path": lambda _: Invitation(HOST.public_key(), GUEST, "").text,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_invitation(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{WRONG[wrong](INVITED.text)}\n"))
    to = ("--role", "server", "--testbed", str(tmp_path / "lab.yaml"))
    assert refused("hosts", "add", "ann@192.0.2.1", *to, "--key", "-").startswith("error: --key -: ")
    assert not list(tmp_path.iterdir())


def test_the_key_is_its_owners_and_the_one_before_stays_if_no_host_is_added(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "key.pem"
    other = Invitation(GUEST.public_key(), HOST, PYTHON)

    def is_kept(key: Ed25519PrivateKey) -> bool:
        return keys.load(path).get_base64() == invitation.public_line(key.public_key()).split()[1]

    with pytest.raises(UserError, match="no"), invitation.kept(INVITED, path):
        raise UserError("no")
    assert not path.exists()
    with invitation.kept(INVITED, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert is_kept(GUEST)
    with pytest.raises(UserError, match="no"), invitation.kept(other, path):
        assert is_kept(HOST)
        raise UserError("no")
    assert is_kept(GUEST)
    with invitation.kept(other, path):
        pass
    assert [each.name for each in path.parent.iterdir()] == ["key.pem"]
    (tmp_path / "file").touch()
    cannot = pytest.raises(UserError, match="the key cannot be kept")
    with cannot, invitation.kept(INVITED, tmp_path / "file/key"):
        pass
