"""How commands reach a host: over SSH (`ssh.Ssh`), or as child processes where the host is this machine (`Here`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from analysis.escaping import short
from pareto.hosts.session import PipeWire, SessionError, SessionLost, Wire

RUN_TIMEOUT_S = 30.0


class Unreachable(Exception):
    """A host that cannot be logged in to, or that was lost: one line that says why and what to do."""


@dataclass(frozen=True)
class Outcome:
    """What a command said, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Why it failed, in a line: the last that it said on stderr."""
        lines = self.err.strip().splitlines() or self.out.strip().splitlines()
        return short(lines[-1]) if lines else f"exit status {self.status}"


FAULTS = (SessionError, SessionLost, TimeoutError, Unreachable)
"""What asking a host for something ends in when it cannot be had."""


class Way(Protocol):
    """Commands are for `sh`, and begin in the user's home. As text: whose way it is."""

    def run(
        self,
        command: str,
        stdin: IO[bytes] | None = None,
        *,
        timeout_s: float = RUN_TIMEOUT_S,
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Run a command to its end, all of `stdin` its input. `on_line` gets each line of its output at once.

        `timeout_s` is how long it may say nothing, and take nothing of its input. Raises Unreachable.
        """

    def open(self, command: str, log: str) -> Wire:
        """Start a program that talks on stdin and stdout; its stderr goes to `log` there. Raises Unreachable."""

    def loss(self) -> str:
        """Why the connection to the host is lost; empty where it lives."""

    def renew(self) -> None:
        """Make sure that the host answers, logging in again where it does not. Raises Unreachable."""

    def close(self) -> None: ...


class Here:
    """This machine, as one host of a testbed: no SSH to itself."""

    prefix: Sequence[str] = ()

    def __str__(self) -> str:
        return "this machine"

    def run(
        self,
        command: str,
        stdin: IO[bytes] | None = None,
        *,
        timeout_s: float = RUN_TIMEOUT_S,
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        process = subprocess.Popen(  # noqa: S603  (the command is built by the callers)
            _shell(self.prefix, command),
            cwd=_home(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        said: dict[str, bytes] = {}
        taken, faults = [0], []

        def keep(name: str, stream: IO[bytes], on_line: Callable[[str], None] | None) -> None:
            lines = []
            for line in stream:
                lines.append(line)
                if on_line is not None:
                    on_line(line.decode(errors="replace").rstrip())
            said[name] = b"".join(lines)

        def feed(into: IO[bytes]) -> None:
            try:
                # Its exit status says why it did not want all.
                with contextlib.suppress(BrokenPipeError), into:
                    while stdin is not None and (block := stdin.read(1 << 18)):
                        into.write(block)
                        taken[0] += len(block)
            except Exception as error:  # not to be taken for the end of the input
                faults.append(error)
                _end(process)

        assert process.stdin is not None and process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        threads = [
            threading.Thread(target=feed, args=(process.stdin,)),
            threading.Thread(target=keep, args=("out", process.stdout, on_line)),
            threading.Thread(target=keep, args=("err", process.stderr, None)),
        ]
        for thread in threads:
            thread.start()
        try:
            while process.poll() is None:
                before = taken[0]
                try:
                    # The time that it may be silent is not told from the time that it may take, once it has its input.
                    process.wait(None if on_line else timeout_s)
                except subprocess.TimeoutExpired:
                    if taken[0] == before:
                        raise Unreachable(
                            f"a command on this machine took longer than {timeout_s:g} s"
                        ) from None
        finally:
            _end(process)
            for thread in threads:
                thread.join()
        if faults:
            raise faults[0]
        out, err = (said[name].decode(errors="replace") for name in ("out", "err"))
        return Outcome(process.returncode, out, err)

    def open(self, command: str, log: str) -> Wire:
        # A group of its own: Ctrl-C is for the driver, which then closes the pipes.
        return _LoggedPipe(_shell(self.prefix, command), log)

    def loss(self) -> str:
        return ""

    def renew(self) -> None: ...

    def close(self) -> None: ...


class Inside(Here):
    """Namespaces on this machine, which the prefix of each command's argv enters."""

    def __init__(self, prefix: Sequence[str]) -> None:
        self.prefix = prefix


class _LoggedPipe(PipeWire):
    """A child process whose last words are in a file."""

    def __init__(self, argv: list[str], log: str) -> None:
        super().__init__(argv, cwd=_home(), preexec_fn=os.setpgrp)
        self._log = Path(log)

    def _kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # the shell, and what it waits for

    def last_words(self) -> str:
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what still runs, and what it has started with it, which would keep its outputs open."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _shell(prefix: Sequence[str], command: str) -> list[str]:
    return [*prefix, "/bin/sh", "-c", command]


def _home() -> Path:
    """The user's; not everybody in a container has one."""
    home = Path.home()
    return home if home.is_dir() else Path("/")
