"""Commands on this machine as one of the hosts: what they say, take and leave."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pareto.hosts.connection import Outcome, ThisMachine, Unreachable
from pareto.hosts.session import Session, SessionLost
from tests.program import wait_until

FIVE_MB = 5 << 20
CEILING_S = 60.0
"""Against hanging."""


def with_argument(mark: str) -> list[str]:
    """The processes that were given it, whoever their parent is now."""
    return [
        process.info["name"]
        for process in psutil.process_iter(["name", "cmdline", "status"])
        if mark in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_a_commands_outputs_and_status() -> None:
    outcome = ThisMachine().run("echo one; echo two >&2; printf three; exit 7")
    assert outcome == Outcome(7, "one\nthree", "two\n")


def test_it_begins_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ThisMachine().run("pwd -P").out.strip() == str(tmp_path.resolve())


def test_all_of_the_input_goes_in() -> None:
    assert ThisMachine().run("wc -c", [bytes(FIVE_MB)]).out.split() == [str(FIVE_MB)]


def test_without_input_there_is_its_end() -> None:
    assert ThisMachine().run("cat") == Outcome(0, "", "")


def test_much_output_while_much_goes_in() -> None:
    data = b"0123456789abcde\n" * (FIVE_MB // 16)
    outcome = ThisMachine().run("tee /dev/stderr", [data])
    assert (len(outcome.out), len(outcome.err)) == (FIVE_MB, FIVE_MB)


def test_input_that_is_not_wanted() -> None:
    outcome = ThisMachine().run("echo 'no room' >&2; exec 0<&-; exit 3", [bytes(FIVE_MB)])
    assert (outcome.status, outcome.words) == (3, "no room")


def test_each_line_is_told_at_once(tmp_path: Path) -> None:
    """The command goes on only when its first line was heard."""
    os.mkfifo(gate := tmp_path / "gate")
    lines: list[str] = []

    def heard(line: str) -> None:
        lines.append(line)
        if line == "first":
            gate.write_text("go\n")

    outcome = ThisMachine().run(
        f"echo first; echo aside >&2; read go <'{gate}'; echo '  second '", on_line=heard
    )
    assert lines == ["first", "  second"]
    assert outcome == Outcome(0, "first\n  second \n", "aside\n")


def test_a_command_that_there_is_not() -> None:
    outcome = ThisMachine().run("pareto-no-such-program")
    assert outcome.status == 127
    assert outcome.words.endswith("not found")


def test_a_command_that_takes_too_long_is_ended() -> None:
    mark = f"1000.{uuid.uuid4().int}"
    with pytest.raises(Unreachable, match=r"0\.3 s"):
        ThisMachine().run(f"exec sleep {mark}", timeout_s=0.3)
    assert wait_until(lambda: with_argument(mark) == [])  # what is killed has yet to get a core for it


@pytest.mark.parametrize("stdin", [None, bytes(FIVE_MB)])
def test_what_a_command_started_ends_with_it(stdin: bytes | None) -> None:
    """Also where it takes nothing of what it is given."""
    mark = f"1000.{uuid.uuid4().int}"
    with pytest.raises(Unreachable):
        ThisMachine().run(f"sleep {mark}; true", [stdin] if stdin else (), timeout_s=0.3)
    assert wait_until(lambda: with_argument(mark) == [])  # what is killed has yet to get a core for it


def test_a_source_that_fails_is_not_the_end_of_the_input() -> None:
    def torn() -> Iterator[bytes]:
        yield bytes(FIVE_MB)
        raise OSError("Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        ThisMachine().run("cat", torn())


def test_output_that_is_no_text() -> None:
    assert ThisMachine().run(r"printf 'a\377b'").out == "a\ufffdb"


def test_ctrl_c_is_not_for_them(tmp_path: Path) -> None:
    """A group of its own: the driver ends what it started."""
    own = os.getpgrp()
    assert int(ThisMachine().run("ps -o pgid= -p $$").out) != own
    wire = ThisMachine().open("cat", str(tmp_path / "log"))
    assert os.getpgid(wire.process.pid) != own  # type: ignore[attr-defined]
    wire.close()


def test_a_program_that_talks(tmp_path: Path) -> None:
    wire = ThisMachine().open("pwd; cat", str(tmp_path / "log"))
    try:
        assert wire.read(CEILING_S).decode().strip() == str(Path.home())
        wire.send(b"there and back\n")
        assert wire.read(CEILING_S) == b"there and back\n"
    finally:
        wire.close()
    assert wire.process.returncode == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("writes", "words"), [(r"printf 'first\nout of \377 memory\n' >log", "out of � memory"), ("exit 1", "")]
)
def test_last_words_are_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str, words: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    wire = ThisMachine().open(writes, "log")
    assert wire.read(CEILING_S) == b""
    with pytest.raises(SessionLost, match=f"^pi ended(: )?{words}$"):
        Session("pi", wire).request("trial")
    wire.close()


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(1, "", "\x1b]0;mine\x07no\n"), r"\x1b]0;mine\x07no"),
        (Outcome(1, "said\n", "a warning\ntar: disk full \n\n"), "tar: disk full"),
        (Outcome(1, "only\nhere \n", " \n"), "here"),
        (Outcome(3, "", ""), "exit status 3"),
    ],
)
def test_why_a_command_failed(outcome: Outcome, words: str) -> None:
    assert outcome.words == words
