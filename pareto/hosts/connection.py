"""How commands reach a host: over SSH (`ssh.SshConnection`), or as child processes where it is this machine."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from pareto.basics.escaping import short
from pareto.hosts.session import BLOCK_BYTES, Command, SessionError, SessionLost

RUN_TIMEOUT_S = 30.0
GRACE_S = 10.0
"""How long a program on this machine may take to end after the end of its input."""
ENDING_S = 0.5
"""How long a process that has closed its output may take to end."""
ANSWER_S = 5.0
"""A host that lives answers a command like `true` within this."""
_TICK_S = 0.2


class Unreachable(Exception):
    """A host that cannot be logged in to, or that was lost: one line that says why and what to do."""


class NotAdmitted(Unreachable):
    """A host that answers, but that is not known yet or takes no key of the user's: `hosts add` helps."""


FAULTS = (SessionError, SessionLost, TimeoutError, Unreachable)
"""The exceptions of a request to a host that is not answered."""


@dataclass(frozen=True)
class Outcome:
    """A command's output, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Why the command failed, in one line: the last line of its stderr, else of its stdout."""
        lines = self.err.strip().splitlines() or self.out.strip().splitlines()
        return short(lines[-1]) if lines else f"exit status {self.status}"


def complete(
    command: Command, stdin: Iterable[bytes], timeout_s: float, on_line: Callable[[str], None] | None = None
) -> Outcome:
    """Run a command to its end; input and both outputs move at the same time, so that none blocks another. Raises
    TimeoutError after `timeout_s` without progress, Unreachable, and what reading `stdin` or `on_line` raises."""
    moved_s = time.monotonic()
    out, err = bytearray(), bytearray()
    faults: list[Exception] = []

    def moved() -> None:
        nonlocal moved_s
        moved_s = time.monotonic()

    def feed() -> None:
        for block in stdin:
            try:
                command.send(block, moved)
            except BrokenPipeError:  # its exit status says why it does not want the rest
                return
        command.end_input()

    def collect(read: Callable[[], bytes], into: bytearray, on_line: Callable[[str], None] | None) -> None:
        told = 0
        while part := read():
            moved()
            into.extend(part)
            while on_line is not None and (end := into.find(b"\n", told)) >= 0:
                on_line(_text(into[told:end]).rstrip())
                told = end + 1
        if on_line is not None and into[told:]:
            on_line(_text(into[told:]).rstrip())

    def guarded(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            # A failed read of `stdin` must not look like the end of the input: what arrived would seem whole.
            faults.append(error)
            command.kill()

    works = (collect, command.read, out, on_line), (collect, command.read_errors, err, None), (feed,)
    threads = [threading.Thread(target=guarded, args=work, name="command", daemon=True) for work in works]
    for thread in threads:
        thread.start()
    status = None
    try:
        while status is None:
            for thread in threads[:2]:
                thread.join(_TICK_S)
            if not any(thread.is_alive() for thread in threads[:2]):
                status = command.wait(_TICK_S)
            if status is None and time.monotonic() - moved_s > timeout_s:
                raise TimeoutError
    finally:
        command.kill()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
    return Outcome(status, _text(out), _text(err))


def _text(data: bytes | bytearray) -> str:
    return data.decode(errors="replace")


class Connection:
    """How commands reach a host. They are for `sh` and begin in the user's home. `str()` names the host."""

    def run(
        self,
        command: str,
        stdin: Iterable[bytes] = (),
        *,
        timeout_s: float = RUN_TIMEOUT_S,
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Run a command to its end with all of `stdin` as its input. `on_line` gets each output line at once.
        timeout_s: how long it may print nothing and take none of its input. Raises Unreachable."""
        try:
            return complete(self.start(command, timeout_s), stdin, timeout_s, on_line)
        except TimeoutError:
            raise Unreachable(f"{self}: a command said nothing for {timeout_s:g} s") from None

    def start(self, command: str, timeout_s: float) -> Command:
        """Start a command; `timeout_s` is how long its start may take. Raises Unreachable."""
        raise NotImplementedError

    def open(self, command: str, log: str) -> Command:
        """Start a program that talks on stdin and stdout; its stderr goes to `log` there. Raises Unreachable."""

        def last_words() -> str:
            try:
                return self.run(f"tail -c 4096 {shlex.quote(log)}", timeout_s=ANSWER_S).out
            except Unreachable as error:
                return str(error)

        program = self.start(command, RUN_TIMEOUT_S)
        program.last_words = last_words
        return program

    def loss(self) -> str:
        """Why the connection to the host is lost; empty while it lives."""
        return ""

    def renew(self) -> None:
        """Make sure that the host answers, and log in again where it does not. Raises Unreachable."""

    def close(self) -> None:
        """Log out."""


class ThisMachine(Connection):
    """The driver's own machine as a host: no SSH to itself. prefix: begins each command's argv, to enter namespaces."""

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = prefix

    def __str__(self) -> str:
        return "this machine"

    def start(self, command: str, timeout_s: float) -> Command:
        argv = [*self._prefix, "/bin/sh", "-c", command]
        home = Path.home() if Path.home().is_dir() else "/"  # not everybody in a container has one
        # In a session of its own: Ctrl-C is for the driver, which then ends it.
        return ChildProcess(argv, cwd=home, errors=subprocess.PIPE, start_new_session=True)


class ChildProcess(Command):
    """A command on this machine; `popen` are `Popen`'s arguments. errors: its stderr. ends: its stdin and stdout."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        errors: IO[bytes] | int | None = None,
        ends: int = subprocess.PIPE,
        **popen: Any,
    ) -> None:
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  (argv is built by the callers)
            argv, bufsize=0, stdin=ends, stdout=ends, stderr=errors, **popen
        )
        self.last_words = partial(self._words, errors)
        self._stdin: Any = self.process.stdin
        self._stdout: Any = self.process.stdout

    def write(self, block: bytes) -> int:
        try:
            return int(self._stdin.write(block))
        except (BrokenPipeError, ValueError):  # a file that is closed raises ValueError
            return 0

    def end_input(self) -> None:
        self._stdin.close()

    def read(self, timeout_s: float | None = None) -> bytes:
        if not select.select([self._stdout], [], [], timeout_s)[0]:
            raise TimeoutError
        return bytes(self._stdout.read(BLOCK_BYTES))

    def read_errors(self) -> bytes:
        return self.process.stderr.read(BLOCK_BYTES) if self.process.stderr else b""

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        self.end_input()
        if self.wait(GRACE_S) is None:
            self.kill()

    def kill(self) -> None:
        pid = self.process.pid
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                # What a command has started in its group dies with it: it would keep the outputs open.
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    self.process.kill()
            self.process.wait()

    def _words(self, errors: IO[bytes] | int | None) -> str:
        """The command's words on stderr, or the signal that killed it."""
        if (status := self.wait(ENDING_S) or 0) < 0:
            return ending(status)
        if errors is None or isinstance(errors, int):
            return ""
        errors.seek(0)
        return _text(errors.read())


def ending(status: int) -> str:
    """How a process was killed, from `Popen.returncode`."""
    return f"killed by signal {-status}" + (": out of memory?" if -status == signal.SIGKILL else "")
