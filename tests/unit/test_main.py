"""A fault of the program's own, or of its installation: one line, with the place of a log that has the rest."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pareto import __main__
from tests import REPOSITORY

BROKEN = "def broken():\n    raise RuntimeError('a line\\nand \\x1b[31m another')\nbroken()\n"


def ended(
    tmp_path: Path, *argv: str, before: Callable[[], object] | None = None, out: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": f"{tmp_path}/state"},
        stdout=out or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )


def line_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == os.EX_SOFTWARE, done
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.isprintable()
    return line


def test_a_broken_installation(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text(BROKEN)
    line = line_of(ended(tmp_path, "-m", "pareto", "netem", "list"))
    (log,) = (tmp_path / "state" / "pareto").iterdir()
    assert str(log) in line
    assert "RuntimeError: a line and" in line
    text = log.read_text()
    assert "Traceback" in text
    assert "in broken" in text
    assert "'netem', 'list'" in text
    assert log.stat().st_mode & 0o77 == 0


def test_where_no_log_can_be_written(tmp_path: Path) -> None:
    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    (tmp_path / "typer.py").write_text(BROKEN)
    line = line_of(ended(tmp_path, "-B", "-m", "pareto", "netem", "list", before=no_files))
    assert "no log file" in line
    assert "RuntimeError: a line and" in line
    assert "typer.py:2" in line
    assert not [*(tmp_path / "state").rglob("*.log")]


def test_a_full_disk_behind_standard_output(tmp_path: Path) -> None:
    for arguments in (["netem", "list"], ["--help"]):
        with Path("/dev/full").open("w") as full:
            done = ended(tmp_path, "-m", "pareto", *arguments, out=full.fileno())
        words = "error: what is printed cannot be written: No space left on device\n"
        assert (done.returncode, done.stderr) == (2, words)


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    for arguments in (["netem", "list"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = ended(tmp_path, "-m", "pareto", *arguments, out=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_fault_of_standard_output_is_taken_for_no_other_file_s(tmp_path: Path) -> None:
    body = "try:\n  print('x', flush=True)\nexcept OSError:\n  return 7"
    code = f"import sys\nfrom pareto.__main__ import guarded\ndef run():\n{textwrap.indent(body, '  ')}\n"
    with Path("/dev/full").open("w") as full:
        assert ended(tmp_path, "-c", f"{code}sys.exit(guarded(run))", out=full.fileno()).returncode == 2


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()", 1),
        ("class It:\n  def __del__(self): raise ValueError\nIt()", 0),
        ("raise RecursionError", 1),
        ("raise MemoryError", 1),
        ("try:\n  [0] * (1 << 60)\nexcept MemoryError:\n  raise ValueError('the model') from None", 1),
        ("raise UnicodeEncodeError('ascii', '\\udc80', 0, 1, 'no')", 1),
        ("raise KeyboardInterrupt", 0),
    ],
    ids=["thread", "destructor", "recursion", "memory", "memory, as another fault", "encoding", "Ctrl-C"],
)
def test_nothing_ends_in_a_traceback(tmp_path: Path, body: str, lines: int) -> None:
    code = f"import sys, threading\nfrom pareto.__main__ import guarded\ndef run():\n  exec({body!r})\n  return 0\n"
    done = ended(tmp_path, "-c", f"{code}sys.exit(guarded(run))")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == lines
    assert all(line.startswith("error: ") for line in done.stderr.splitlines())
    assert ("too little free memory" in done.stderr) == ("MemoryError" in body)


INTERRUPTED = """
import signal, sys, threading
from pareto.__main__ import guarded
class Closing:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        print("not reached")
def command():
    Closing()
    print("goes on", flush=True)
    threading.Event().wait(20)
sys.exit(guarded(command))
"""


def test_an_interruption_that_arrives_in_a_destructor(tmp_path: Path) -> None:
    done = ended(tmp_path, "-c", INTERRUPTED)
    assert (done.returncode, done.stdout, done.stderr) == (130, "goes on\n", "")


@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_the_analysis_shares_the_machine(
    given: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(__main__, "guarded", lambda command: 0)
    assert __main__.main() == 0
    assert os.environ.pop("OPENBLAS_NUM_THREADS") == used
