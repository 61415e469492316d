"""A guest with a real sch_netem: up in seconds, sees this machine's files but for /tmp and /run, and keeps nothing
of what it changes.

    python -m tests.vm.machine -- tc qdisc add dev lo root netem delay 10ms

runs the command as root in the guest, from the repository root, prints what it prints and ends with its status:
124 where the time limit ended it, 125 where there was no guest or it died.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, BinaryIO

from tests.vm.boot import Boot, Console, OverdueError
from tests.vm.kernel import CACHE, REPOSITORY, UnavailableError, prepare

LOG = CACHE / "console.log"  # of the machine that was started last
LIMIT_S = 1800.0
SILENCE_LIMIT_S = 60.0  # it is up in 7; but once in a while one hangs before it has begun
POWER_OFF_LIMIT_S = 10.0


class MachineError(RuntimeError):
    """A guest that did not boot, or that ended before its command did: one line."""


class TimeLimitError(MachineError):
    """A command that took longer than it may."""


class Machine:
    """One command in one guest, from boot to power-off; everything is ended with the `with` block."""

    def __init__(
        self, command: Sequence[str], limit_s: float = LIMIT_S, echo: BinaryIO | None = None
    ) -> None:
        """`echo` gets what the command prints, as it comes. Raises UnavailableError."""
        self.status: int | None = None
        self._kernel = prepare()
        self._command = command
        self._limit_s = limit_s
        self._console = Console(LOG, echo)
        self._reports = self._run()

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._reports.close()
        self._console.close()

    def reports(self) -> Iterator[dict[str, Any]]:
        """What the command writes to $PARETO_GUEST, one JSON object a line, as it comes; then `status` is set.

        The guest boots when the first is asked for. Raises MachineError.
        """
        return self._reports

    @property
    def tail(self) -> str:
        """The last lines of what the kernel and the command printed."""
        return self._console.tail

    def _run(self) -> Generator[dict[str, Any], None, None]:
        for _ in range(2):
            with Boot(self._kernel, self._script(), self._console) as boot:
                reports = boot.reports()
                if self._is_up(boot, reports):
                    yield from self._until_exit(boot, reports)
                    return
        raise MachineError(
            f"the guest fell silent for {SILENCE_LIMIT_S:g} s as it booted, and when it was tried again"
        )

    def _script(self) -> str:
        repository, modules = (shlex.quote(str(path)) for path in (REPOSITORY, self._kernel.modules))
        # What other programs write to this machine's /tmp would be seen, and taken for what a test left there;
        # but the repository may be there, too.
        lines = [
            "mkdir -p /run/vm/repository /lib/modules",
            f"mount --bind {repository} /run/vm/repository",
            "mount -t tmpfs tmpfs /tmp",
            f"mkdir -p {repository}",
            f"mount --move /run/vm/repository {repository}",
            f"mount --bind {modules} /lib/modules",
            f"cd {repository}",
            f"exec {shlex.join(self._command)}",
        ]
        return " &&\n".join(lines) + "\n"

    def _is_up(self, boot: Boot, reports: Iterator[dict[str, Any]]) -> bool:
        boot.limit(SILENCE_LIMIT_S, silent=True)
        try:
            return next(reports, None) is not None
        except OverdueError:
            return False

    def _until_exit(
        self, boot: Boot, reports: Iterator[dict[str, Any]]
    ) -> Generator[dict[str, Any], None, None]:
        boot.limit(self._limit_s)
        try:
            for report in reports:
                if "exit" in report:
                    self.status = int(report["exit"])
                    boot.limit(POWER_OFF_LIMIT_S)
                else:
                    yield report
        except OverdueError:
            if self.status is None:
                raise TimeLimitError(f"the guest's command did not end within {self._limit_s:g} s") from None
        if self.status is None:
            raise MachineError("the guest died before its command had ended")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run a command as root in a guest whose kernel has sch_netem."
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds (default: %(default)g)")
    parser.add_argument("command", nargs="+", help="after --, with its arguments")
    options = parser.parse_args()
    try:
        with Machine(options.command, options.limit, sys.stdout.buffer) as machine:
            for _ in machine.reports():
                pass
    except UnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 125
    except MachineError as error:
        print(f"error: {error}; the end of its console, all of which is in {LOG}:", file=sys.stderr)
        print(machine.tail, file=sys.stderr)
        return 124 if isinstance(error, TimeLimitError) else 125
    except KeyboardInterrupt:
        return 130
    return machine.status if machine.status is not None else 125


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
