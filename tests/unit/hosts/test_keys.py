"""The user's keys: which are tried, in which order, and when a passphrase is asked for."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.ssh import keys
from pareto.hosts.ssh.keys import Keyring, NoKey
from pareto.hosts.ssh.login import Login

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


SECRET = "secret"  # noqa: S105


def make(path: Path, *options: str, passphrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", *(options or ("-t", "ed25519")), "-N", passphrase, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def login(*identities: Path) -> Login:
    return Login("pi", "10.0.0.1", 22, "pi", identities=identities)


def offered(keyring: Keyring, login: Login) -> list[str]:
    with closing(keyring.offers(login)) as offers:
        return [offer.words for offer in offers]


@pytest.mark.parametrize("passphrase", ["", "secret"])
@pytest.mark.parametrize("options", [("-t", "ed25519"), ("-t", "rsa", "-b", "1024", "-m", "PEM")])
def test_every_kind_of_file_is_read(home: Path, options: tuple[str, ...], passphrase: str) -> None:
    path = make(home / "key", *options, passphrase=passphrase)
    assert keys.is_locked(path) == bool(passphrase)
    key = keys.load(path, passphrase or None)
    public = path.with_suffix(".pub").read_text().split()[:2]
    assert [key.get_name(), key.get_base64()] == public
    assert keys.public_half(path) == key.asbytes()
    path.with_suffix(".pub").unlink()
    assert keys.public_half(path) == (None if "PEM" in options and passphrase else key.asbytes())


def test_a_public_key_named_as_identity_is_its_own_half(home: Path) -> None:
    path = make(home / "key")
    assert keys.public_half(path.with_suffix(".pub")) == keys.load(path).asbytes()


def test_a_key_of_this_run_is_the_only_one(home: Path) -> None:
    key, _ = keys.new_key()
    with closing(Keyring(only=key).offers(login(make(home / "file")))) as offers:
        assert [offer.key for offer in offers] == [key]


def test_a_passphrase_is_asked_for_once_and_last(home: Path, snapshot: SnapshotAssertion) -> None:
    locked = make(home / "locked", passphrase=SECRET)
    plain = make(home / "plain")
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "secret"

    keyring = Keyring(ask)
    with closing(keyring.offers(login(locked, plain))) as offers:
        assert next(offers).words == "~/plain"
        assert asked == []
        assert next(offers).words == "~/locked"
    assert asked == snapshot
    assert offered(keyring, login(locked, plain)) == ["~/locked", "~/plain"]  # it is open now
    assert len(asked) == 1


def test_a_wrong_passphrase_may_be_mended_and_none_given_is_not_asked_for_again(home: Path) -> None:
    locked = make(home / "locked", passphrase=SECRET)
    answers = ["wrong", "secret"]
    assert offered(Keyring(lambda _: answers.pop(0)), login(locked)) == ["~/locked"]
    given = ["", "secret"]
    keyring = Keyring(lambda _: given.pop(0))
    assert offered(keyring, login(locked)) == offered(keyring, login(locked)) == []
    assert given == ["secret"]


def test_without_a_terminal_the_agent_is_recommended(home: Path, snapshot: SnapshotAssertion) -> None:
    first, second = (make(home / name, passphrase=SECRET) for name in ("first", "second"))
    with pytest.raises(NoKey, match="ssh-add ~/first") as one:
        offered(Keyring(), login(first))
    with pytest.raises(NoKey, match="ssh-add ~/first ~/second") as both:
        offered(Keyring(), login(first, second))
    assert [str(refused.value) for refused in (one, both)] == snapshot


def test_files_that_are_no_keys_are_passed_over(home: Path) -> None:
    for name, content in {
        "empty": b"",
        "binary": b"\xff\x00",
        "torn": b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
    }.items():
        (home / name).write_bytes(content)
    paths = [home / name for name in ("empty", "binary", "torn", "missing")]
    assert offered(Keyring(), login(*paths, make(home / "good"))) == ["~/good"]


def test_an_agent_that_is_not_there_has_no_keys(home: Path) -> None:
    who = Login("pi", "10.0.0.1", 22, "pi", identities=(make(home / "key"),), agent=str(home / "gone"))
    assert offered(Keyring(), who) == ["~/key"]
