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
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from tests.vm.boot import Boot, Console, OverdueError
from tests.vm.kernel import CACHE, REPOSITORY, Kernel, UnavailableError, prepare

LOG = CACHE / "console.log"  # of the machine that was started last
LIMIT_S = 1800.0
SILENCE_LIMIT_S = 60.0  # it is up in 7; but once in a while one hangs before it has begun
POWER_OFF_LIMIT_S = 10.0


class MachineError(RuntimeError):
    """A guest that did not boot, or that ended before its command did; with the end of what its console says."""


class TimeLimitError(MachineError):
    """A command that took longer than it may."""


def run(command: Sequence[str], limit_s: float = LIMIT_S, echo: BinaryIO | None = None) -> int:
    """The exit status of a command in a guest, which boots for it; `echo` gets what it prints, as it comes.

    Raises UnavailableError and MachineError.
    """
    kernel = prepare()
    with contextlib.closing(Console(LOG, echo)) as console:
        for _ in range(2):
            with Boot(kernel, _script(kernel, command), console) as boot, contextlib.suppress(OverdueError):
                reports = boot.reports()
                boot.limit(SILENCE_LIMIT_S, silent=True)
                if next(reports, None) is not None:
                    return _status(boot, reports, console, limit_s)
        raise _broken(console, f"the guest fell silent for {SILENCE_LIMIT_S:g} s as it booted, twice")


def _status(boot: Boot, reports: Iterator[dict[str, Any]], console: Console, limit_s: float) -> int:
    """What the command in a guest that is up ends with, once all that it printed has come."""
    boot.limit(limit_s)
    try:
        ended = next(reports, None)
    except OverdueError:
        raise _broken(console, f"the command did not end within {limit_s:g} s", TimeLimitError) from None
    if ended is None:
        raise _broken(console, "the guest died before its command had ended")
    boot.limit(POWER_OFF_LIMIT_S)
    with contextlib.suppress(OverdueError):
        next(reports, None)
    return int(ended["exit"])


def _broken(console: Console, why: str, kind: type[MachineError] = MachineError) -> MachineError:
    return kind(f"{why}; the end of its console, all of which is in {LOG}:\n{console.tail}")


def _script(kernel: Kernel, command: Sequence[str]) -> str:
    repository, modules = (shlex.quote(str(path)) for path in (REPOSITORY, kernel.modules))
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
        f"exec {shlex.join(command)}",
    ]
    return " &&\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run a command as root in a guest whose kernel has sch_netem."
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds (default: %(default)g)")
    parser.add_argument("command", nargs="+", help="after --, with its arguments")
    options = parser.parse_args()
    try:
        return run(options.command, options.limit, sys.stdout.buffer)
    except (UnavailableError, MachineError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 124 if isinstance(error, TimeLimitError) else 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
