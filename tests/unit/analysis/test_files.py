"""Files and text that somebody else has made."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest

from pareto.analysis import as_json
from pareto.basics import files
from pareto.basics.escaping import say, short, spreadsheet, terminal
from pareto.basics.files import StoreError
from pareto.hosts.host import to_stderr
from pareto.protocol.errors import UserError
from tests.unit.refusals import refusal


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
def test_nothing_but_a_plain_file_is_read_or_written(tmp_path: Path, victim: Path, what: str) -> None:
    (run := tmp_path / "run").mkdir()
    odd(run / "file", what, victim)
    for line in (
        refusal(StoreError, files.read, run, "file"),
        refusal(StoreError, files.write, run / "file", "evil"),
    ):
        assert re.search("file is a (link|FIFO|folder|socket)", line)
    assert files.listing(run) == {"file": f"a {what.split()[-1]}"}
    assert files.kind(run / "file") == f"a {what.split()[-1]}"
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("what", [*ODD[1:], "/dev/zero", "large", "Latin-1", "a\0b", "x" * 300])
def test_a_text_that_a_user_names_is_a_plain_file_of_some_size(
    tmp_path: Path, victim: Path, what: str
) -> None:
    file = tmp_path / "file" if what in (*ODD, "large", "Latin-1") else Path(what)
    odd(file, what, victim)
    if what in ("large", "Latin-1"):
        file.write_bytes(b"caf\xe9" if what == "Latin-1" else bytes(files.MOST_TEXT_BYTES + 1))
    assert "the poem " in refusal(UserError, files.text, file, "poem")
    (tmp_path / "another").symlink_to(victim)
    assert files.text(tmp_path / "another", "poem") == "mine", "through a link that the user names"


def test_a_folder_is_named_through_a_link_and_none_beneath_it_is(tmp_path: Path) -> None:
    inner = tmp_path / "real" / "requests"
    inner.mkdir(parents=True)
    (inner / "one").write_text("1")
    (tmp_path / "named").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "elsewhere").symlink_to(inner)
    assert files.read(tmp_path / "named", "requests", "one") == b"1"
    assert files.listing(tmp_path / "named", "requests") == {"one": "a file"}
    assert files.listing(tmp_path / "named", "nowhere") == {}
    for call, names in ((files.read, ("one",)), (files.listing, ())):
        assert "elsewhere is a link" in refusal(StoreError, call, tmp_path / "real", "elsewhere", *names)
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "real", "requests", "two")


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
    for path in ("net/one.csv", "net/in/one.csv", "profiles/other/one.csv"):
        with pytest.raises(StoreError, match=r"(net|other) is a link"):
            files.write(run / path, "1", under=run)
    assert not list(victim.iterdir())


def test_a_folder_that_is_a_link_is_not_written_into(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for call in (lambda: files.make(tmp_path / "link"), lambda: files.write(tmp_path / "link" / "file", "")):
        assert "link is a link" in refusal(StoreError, call)
    assert not list((tmp_path / "real").iterdir())
    for _ in range(2):
        files.remove(tmp_path / "link")
    assert files.kind(tmp_path / "link") == ""
    assert (tmp_path / "real").exists(), "what it points to is not removed"
    monkeypatch.chdir(files.make(tmp_path / "a" / "b"))
    assert [files.write(Path(name), "x").read_text() for name in ("here", "../above")] == ["x", "x"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_secret_that_others_can_read_is_refused(victim: Path, mode: int) -> None:
    victim.chmod(mode)
    with pytest.raises(UserError, match=f"^--key: .*: chmod 600 {victim}$"):
        files.refuse_shared(victim, "--key")
    victim.chmod(0o600)
    files.refuse_shared(victim, "--key")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mobilenet_v2 µ → 12\n", "mobilenet_v2 µ → 12\n"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten\tby\x08", "over\\rwritten\\tby\\x08"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("line\u2028break\udcff", "line\\u2028break\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(
    text: str, shown: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert terminal(text) == shown
    say(text)
    to_stderr(text)
    assert capfd.readouterr() == (f"{shown}\n", f"{shown}\n")
    made = as_json.text({"µ": text})
    assert made.replace("\n", "").isprintable() and "µ" in made
    assert json.loads(made) == {"µ": text}


def test_what_is_long_is_cut_or_refused(tmp_path: Path) -> None:
    assert short(" a\nb  c ") == "a b c"
    assert short("x" * 300) == "x" * 300
    assert len(short("x" * 200_000)) == 300
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read(tmp_path, "file", most_bytes=5) == b"12345"
    assert "larger" in refusal(StoreError, files.read, tmp_path, "file", most_bytes=4)
    os.truncate(path, 1 << 40)
    assert "larger" in refusal(StoreError, files.read, tmp_path, "file")


@pytest.mark.parametrize(
    ("fault", "left"), [(KeyboardInterrupt, "a\nb\n"), (OSError(28, "No space left"), "a\n")]
)
def test_what_is_appended_whole_stays(
    fault: BaseException, left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever watched the file has seen it: an interrupt takes nothing back, a full disk does."""
    path = tmp_path / "trials.csv"
    files.append(path, b"a\n", new=True)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=fault))
    with pytest.raises((KeyboardInterrupt, StoreError)):
        files.append(path, b"b\n")
    assert path.read_text() == left


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\N{FULLWIDTH EQUALS SIGN}"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(tmp_path: Path, first: str) -> None:
    text = [f'{first}HYPERLINK("http://x")', "a=b", ""]
    for kind in ("str", "category"):
        cells = pd.DataFrame({"text": pd.Series(text, dtype=kind), "number": [-1.0, 2, 3]})
        made = spreadsheet(cells)
        assert made["text"].tolist() == [f"'{text[0]}", "a=b", ""]
        assert made["number"].tolist() == [-1.0, 2, 3]
    assert "\"'" in files.write_table(tmp_path / "table.csv", cells).read_text()
    assert cells["text"][0] == text[0]
