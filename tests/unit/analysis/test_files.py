"""Files in folders that somebody else has made."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pandas as pd
import pytest

from pareto.basics import files
from pareto.basics.files import StoreError
from pareto.protocol.errors import UserError


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


def odd(path: Path, what: str, victim: Path) -> None:
    """Something that is no plain file."""
    if what == "link":
        path.symlink_to(victim)
    elif what == "dangling link":
        path.symlink_to(victim.parent / "nothing")
    elif what == "FIFO":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))


ODD = ["link", "dangling link", "FIFO", "folder", "socket"]


@pytest.mark.parametrize("what", ODD)
def test_nothing_but_a_plain_file_is_read(tmp_path: Path, victim: Path, what: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    odd(run / "file", what, victim)
    with pytest.raises(StoreError, match=r"file is a (link|FIFO|folder|socket)") as refused:
        files.read(run, "file")
    assert "\n" not in str(refused.value)
    assert files.listing(run) == {"file": f"a {what.split()[-1]}"}


@pytest.mark.parametrize("what", [*ODD[1:], "/dev/zero", "large", "Latin-1", "a\0b", "x" * 300])
def test_a_text_that_a_user_names_is_a_plain_file_of_some_size(
    tmp_path: Path, victim: Path, what: str
) -> None:
    file = tmp_path / "file" if what in (*ODD, "large", "Latin-1") else Path(what)
    odd(file, what, victim)
    if what in ("large", "Latin-1"):
        file.write_bytes(b"caf\xe9" if what == "Latin-1" else bytes(files.MOST_TEXT_BYTES + 1))
    with pytest.raises(UserError, match=r"^[^\n]*the poem [^\n]*$"):
        files.text(file, "poem")


def test_a_text_may_be_named_through_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "link").symlink_to(victim)
    assert files.text(tmp_path / "link", "poem") == "mine"


def test_a_folder_is_named_through_a_link_and_none_beneath_it_is(tmp_path: Path) -> None:
    inner = tmp_path / "real" / "requests"
    inner.mkdir(parents=True)
    (inner / "one").write_text("1")
    (tmp_path / "named").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "elsewhere").symlink_to(inner)
    assert files.read(tmp_path / "named", "requests", "one") == b"1"
    assert files.listing(tmp_path / "named", "requests") == {"one": "a file"}
    assert files.listing(tmp_path / "named", "nowhere") == {}
    with pytest.raises(StoreError, match="elsewhere is a link"):
        files.read(tmp_path / "real", "elsewhere", "one")
    with pytest.raises(StoreError, match="elsewhere is a link"):
        files.listing(tmp_path / "real", "elsewhere")
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "real", "requests", "two")


def test_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read(tmp_path, "file", most_bytes=5) == b"12345"
    with pytest.raises(StoreError, match="larger"):
        files.read(tmp_path, "file", most_bytes=4)
    with path.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(StoreError, match="larger"):
        files.read(tmp_path, "file")


@pytest.mark.parametrize("what", ODD)
def test_nothing_is_written_through_what_is_no_plain_file(tmp_path: Path, victim: Path, what: str) -> None:
    path = tmp_path / "out.csv"
    odd(path, what, victim)
    with pytest.raises(StoreError, match=r"out\.csv"):
        files.write(path, "evil")
    assert victim.read_text() == "mine"
    assert files.kind(path) == f"a {what.split()[-1]}"


def test_a_file_comes_into_its_place_whole(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "out.csv"
    os.link(victim, path)
    (tmp_path / "out.csv.new").symlink_to(victim)
    files.write(path, "new \ud800")
    assert path.read_text() == "new ?"
    assert victim.read_text() == "mine", "neither by a hard link nor by one in the draft's place"
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "victim"]  # noqa: PTH208


def test_what_is_written_beneath_a_folder_goes_through_no_link(tmp_path: Path) -> None:
    """The folders on the way are made, also where the user names the first one by a link."""
    (victim := tmp_path / "victim").mkdir()
    (tmp_path / "real").mkdir()
    (run := tmp_path / "named").symlink_to("real")
    files.write(run / "profiles" / "net" / "one.csv", "1", under=run)
    assert (tmp_path / "real" / "profiles" / "net" / "one.csv").read_text() == "1"
    (run / "net").symlink_to(victim)
    (run / "profiles" / "other").symlink_to(victim)
    for path in (
        run / "net" / "one.csv",
        run / "net" / "in" / "one.csv",
        run / "profiles" / "other" / "one.csv",
    ):
        with pytest.raises(StoreError, match=r"(net|other) is a link"):
            files.write(path, "1", under=run)
    assert not list(victim.iterdir())


def test_a_folder_that_is_a_link_is_not_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(StoreError, match="link is a link"):
        files.make(tmp_path / "link")
    with pytest.raises(StoreError, match="link is a link"):
        files.write(tmp_path / "link" / "file", "")
    assert not list((tmp_path / "real").iterdir())
    monkeypatch.chdir(files.make(tmp_path / "a" / "b"))
    assert [files.write(Path(name), "x").read_text() for name in ("here", "../above")] == ["x", "x"]


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "link").symlink_to(victim)
    files.remove(tmp_path / "link")
    files.remove(tmp_path / "link")
    assert files.kind(tmp_path / "link") == ""
    assert victim.exists()


def test_a_table_s_text_is_no_formula(tmp_path: Path) -> None:
    table = pd.DataFrame({"model": ["=1+1", "net"], "difference_s": [-0.5, 0.25], "point": ["3+7", "all"]})
    path = files.write_table(tmp_path / "table.csv", table)
    assert path.read_text().splitlines() == ["model,difference_s,point", "'=1+1,-0.5,3+7", "net,0.25,all"]
    assert table["model"][0] == "=1+1"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_secret_that_others_can_read_is_refused(victim: Path, mode: int) -> None:
    victim.chmod(mode)
    with pytest.raises(UserError, match=f"^--key: .*: chmod 600 {victim}$"):
        files.refuse_shared(victim, "--key")
    victim.chmod(0o600)
    files.refuse_shared(victim, "--key")
