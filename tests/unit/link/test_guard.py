"""What a guarded program changed is put back on every way out: by its worker, by its guard, or by both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from pareto.hosts.connection import ChildProcess
from pareto.hosts.session import Session
from tests import REPOSITORY
from tests.program import ended, wait_until

pytestmark = pytest.mark.usefixtures("heeds_hangups")

GRACE_S = 0.5
"""For a worker that hangs; one that is well may take as long as a busy machine makes it."""
PATIENCE_S = 60.0
SILENCE_S = 0.5

PROGRAM = """
import ctypes, os, sys, threading
from pathlib import Path
from typing import IO
from pareto.protocol import jsonlines
from pareto.remote.link import guard

changed, silence_s, grace_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
hangs = changed.with_name("hangs")
lock = threading.Lock()

def change(request):
    changed.with_name("was changed").touch()
    changed.write_text("500 ms")
    return os.getpid()

def spin(request):
    with lock:
        hangs.touch()
        while True:
            pass

def hold(request):
    # With the interpreter's own lock, which no thread gets between the two calls.
    sys.setswitchinterval(600)
    library = ctypes.PyDLL(None)
    library.creat(bytes(hangs), 0o600)
    library.sleep(600)

def leave(request):
    sys.exit("somewhere in a library")

def die(request):
    os._exit(3)

def forget():
    changed.unlink(missing_ok=True)

def end():
    with lock:
        forget()

def put_back():
    if not changed.exists():
        return []
    forget()
    return ["put back by the guard"]

def work():
    ops = {"change": change, "spin": spin, "hold": hold, "leave": leave, "die": die}
    jsonlines.serve(ops, at_end=end, silence_limit_s=silence_s)

guard.run(work, put_back, silence_limit_s=silence_s, grace_s=grace_s)
"""


class Guarded:
    """A program that has changed something, its two processes, and what it says at its end.

    then: what it is asked as well, before its silence can begin.
    """

    def __init__(
        self,
        folder: Path,
        silence_s: float = 60.0,
        words: IO[bytes] | None = None,
        grace_s: float = PATIENCE_S,
        then: str = "",
    ) -> None:
        self.changed, self._words = folder / "changed", folder / "stderr"
        argv = [sys.executable, "-c", PROGRAM, str(self.changed), str(silence_s), str(grace_s)]
        self.wire = ChildProcess(argv, cwd=REPOSITORY, errors=words or self._words.open("w+b"))
        self.process = self.wire.process
        self.guard = psutil.Process(self.process.pid)
        self.session = Session("program", self.wire)
        number = self.session.send("change")
        if then:
            self.session.send(then)
        self.workers: list[psutil.Process] = []
        """The one worker, or none where it has ended by now, of a short silence."""
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(self.session.report(number))
            assert worker.ppid() == self.process.pid
            self.workers.append(worker)
        assert self.changed.with_name("was changed").exists()

    @property
    def worker(self) -> psutil.Process:
        (worker,) = self.workers
        return worker

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def hang(self, how: str) -> None:
        if how == "stop":
            self.worker.suspend()
            assert wait_until(lambda: self.worker.status() == psutil.STATUS_STOPPED)
        elif how:
            self.session.send(how)
            assert wait_until(self.changed.with_name("hangs").exists)

    def ended(self) -> tuple[int, str]:
        """With which code, and what it said; nothing is left of it or of what it changed."""
        code = self.process.wait(20)
        assert not self.changed.exists()
        assert ended(self.workers)
        return code, self._words.read_text() if self._words.exists() else ""

    def close(self) -> None:
        for process in (self.guard, *self.workers):
            if process.is_running():
                process.kill()
        self.wire.close()


Start = Callable[..., Guarded]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as undo:
        yield lambda *given, **named: undo.enter_context(closing(Guarded(tmp_path, *given, **named)))


END: dict[str, Callable[[Guarded], object]] = {
    "end of file": lambda it: it.stdin.close(),
    "term": lambda it: it.guard.send_signal(signal.SIGTERM),
    "hang-up": lambda it: it.guard.send_signal(signal.SIGHUP),
    "nonsense": lambda it: it.wire.send(b"[1]\n"),
    "the worker leaves": lambda it: it.session.send("leave"),
    "the worker dies": lambda it: it.session.send("die"),
    "the worker is killed": lambda it: it.worker.send_signal(signal.SIGKILL),
    "the worker crashes": lambda it: it.worker.send_signal(signal.SIGSEGV),
}


@pytest.mark.parametrize("end", ["end of file", "term", "hang-up", "nonsense", "the worker leaves"])
def test_a_worker_that_is_well_puts_back_itself(start: Start, end: str) -> None:
    guarded = start()
    END[end](guarded)
    code, said = guarded.ended()
    assert (code, "by the guard" in said) == (0, False)


HUNG = [(how, "end of file") for how in ("spin", "stop", "hold")] + [("hold", "term"), ("spin", "hang-up")]
GONE = [("", f"the worker {end}") for end in ("dies", "is killed", "crashes")]


@pytest.mark.parametrize(("fault", "end"), HUNG + GONE)
def test_a_worker_that_hangs_is_killed_and_the_guard_puts_back(start: Start, fault: str, end: str) -> None:
    """Also for one that ends by itself before it has put back."""
    guarded = start(grace_s=GRACE_S)
    guarded.hang(fault)
    END[end](guarded)
    code, said = guarded.ended()
    assert (code, "put back by the guard" in said) == (1, True)


def test_a_worker_that_hangs_with_its_pipe_full_does_not_hide_the_end(start: Start) -> None:
    """Of the input too: what the driver said last is never read."""
    guarded = start(grace_s=GRACE_S)
    guarded.hang("stop")
    os.set_blocking(guarded.stdin.fileno(), False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(guarded.stdin.fileno(), b'{"op": "ping"}\n' * 100)
    guarded.stdin.close()
    assert guarded.ended()[0] == 1


@pytest.mark.parametrize("hung", [False, True])
def test_a_driver_that_falls_silent_is_gone_whatever_the_worker_does(start: Start, hung: bool) -> None:
    grace_s, then = (GRACE_S, "hold") if hung else (PATIENCE_S, "")
    code, said = start(SILENCE_S, grace_s=grace_s, then=then).ended()
    assert code == int(hung)
    assert f"nothing heard from the driver for {SILENCE_S} s" in said


def test_a_guard_that_is_killed_leaves_nothing_and_one_that_is_stopped_hides_no_silence(start: Start) -> None:
    """Nor does its process group."""
    guarded = start()
    os.kill(guarded.process.pid, signal.SIGKILL)
    assert os.getpgid(guarded.worker.pid) != os.getpgid(guarded.process.pid)
    assert wait_until(lambda: not guarded.changed.exists())
    assert ended([guarded.worker])
    guarded = start(SILENCE_S)
    guarded.guard.suspend()
    assert wait_until(lambda: not guarded.changed.exists())
    guarded.guard.resume()
    assert guarded.process.wait(20) == 0


def test_a_hangup_that_whoever_started_it_ignores_is_ignored(start: Start) -> None:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        guarded = start()
    finally:
        signal.signal(signal.SIGHUP, before)
    for process in (guarded.guard, guarded.worker):
        process.send_signal(signal.SIGHUP)
    assert guarded.session.request("change") == guarded.worker.pid


@pytest.mark.parametrize(("end", "fault"), [("nonsense", ""), ("end of file", "hold"), ("term", "hold")])
def test_nobody_need_read_what_is_said_at_the_end(start: Start, end: str, fault: str) -> None:
    """As where SSH is lost: stderr goes with stdin."""
    read, write = os.pipe()
    with os.fdopen(read, "rb"), os.fdopen(write, "wb") as words:
        guarded = start(words=words, grace_s=GRACE_S if fault else PATIENCE_S)
    guarded.hang(fault)
    END[end](guarded)
    assert guarded.ended()[0] == int(bool(fault))


def test_a_driver_whose_replies_nobody_reads_is_gone(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "changed"), "60", str(PATIENCE_S)]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b'{"op": "change"}\n')
    process.stdin.flush()
    assert process.wait(20) == 0
    assert not (tmp_path / "changed").exists()
    process.stdin.close()
