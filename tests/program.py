"""Programs that tests start: by themselves, as from a command line, or the command within this process."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil

from tests import REPOSITORY

LENIENT_LINK = ("--rtt-floor", "100ms", "--rtt-tolerance", "50%", "--tolerance", "50%")
LENIENT = (*LENIENT_LINK, "--slowdown", "100", "--others", "100%")
"""For sweeps whose trials are to be valid also where other programs keep the machine busy."""


_started: list[subprocess.Popen[str]] = []


class Program:
    """The driver's end of the control protocol; the other is `python -m module arguments...`."""

    def __init__(self, *module_and_arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *module_and_arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def reply(self, op: str, **fields: Any) -> dict[str, Any]:
        """All of the answer, also where the request is refused."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def result(self, op: str, **fields: Any) -> Any:
        """What was asked for. Raises AssertionError where it is refused."""
        reply = self.reply(op, **fields)
        assert reply["ok"], reply
        return reply["result"]

    def close(self) -> int:
        """End of file, as when the driver dies; the exit code."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


def started(*argv: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A process in a session of its own, without a terminal, that Ctrl-C ends: also where the tests run in the
    background of a shell that ignores it, which every child inherits."""
    process = subprocess.Popen(
        argv,
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_heed_ctrl_c,
    )
    _started.append(process)
    return process


def end_started() -> None:
    """Kill what a test that failed has left running."""
    while _started:
        with _started.pop() as process:
            process.kill()


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pareto(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The command, as from a command line of its own."""
    return started(sys.executable, "-m", "pareto", *arguments, environment=environment)


class Ended(NamedTuple):
    """How the command ended, and what it said."""

    code: int
    out: str
    err: str


def command(*arguments: str, where: Path = REPOSITORY) -> Ended:
    """The command within this process, which saves what importing takes: in this folder, at 80 columns."""
    from pareto.commands import app

    out, err = io.StringIO(), io.StringIO()
    of_signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    folder = Path.cwd()
    try:
        os.chdir(where)
        with (
            patch.object(sys, "argv", ["pareto", *arguments]),
            patch.dict(os.environ, {"COLUMNS": "80"}),
            patch.object(app, "BEGAN", time.monotonic()),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = app.main()
    finally:
        os.chdir(folder)
        for number, handler in of_signals.items():
            signal.signal(number, handler)
    return Ended(code, out.getvalue(), err.getvalue())


def well(*arguments: str) -> Ended:
    """How the command ended, which is well and without a complaint."""
    done = command(*arguments)
    assert (done.code, done.err) == (0, "")
    return done


def refused(*arguments: str) -> str:
    """The one line that is all that the command says of bad input."""
    done = command(*arguments)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    return line


def measured(*arguments: str) -> Ended:
    """The command without the report at its end, which takes most of its time: for what is asked of the trials.

    Of an option that stands there twice, as in a test's own after those that it shares, the last counts.
    """
    from pareto.commands import report

    begins = [place for place, word in enumerate(arguments) if word.startswith("--")]
    parts = [arguments[begin:end] for begin, end in itertools.pairwise([*begins, len(arguments)])]
    last = {part[0]: part for part in parts}
    with patch.object(report, "show"):
        return command(*arguments[: begins[0]], *itertools.chain(*last.values()))


def descendants(pid: int, text: str = "") -> list[psutil.Process]:
    """What that process and its children have started and is alive, with that text in its command, oldest first."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if text in " ".join(process.cmdline()):
                    found.append(process)
    return sorted(found, key=lambda process: process.create_time())


def python_programs(pid: int, module: str) -> list[psutil.Process]:
    """The descendants that are `python -m module`: not the shells that started them."""
    found = []
    for process in descendants(pid, f"-m {module}"):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            is_it = ("-m", module) in itertools.pairwise(process.cmdline())
            if is_it and Path(process.exe()).name.startswith("python"):
                found.append(process)
    return found


def ended(processes: list[psutil.Process], within_s: float = 20.0) -> bool:
    """Whether all of these are gone in time. What is dead and waits for its parent to notice is gone."""
    return wait_until(lambda: not any(map(_lives, processes)), within_s)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(true: Callable[[], object], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
