"""Run a command on a disturbed machine: `python -m tests.chaos -- COMMAND...`.

Busy loops take the cores, and at random all processes of the command stand still for 0.1 to 1.2 s, as on a machine
that is lent to others in bursts. Ends with the command's status. CHAOS_SEED chooses when (1), CHAOS_LOAD how many
loops (3).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

STILL_S = (0.1, 0.2, 0.4, 0.8, 1.2)
BETWEEN_S = (0.5, 2.0)


def main(command: Sequence[str]) -> int:
    draw = random.Random(os.environ.get("CHAOS_SEED", "1"))  # noqa: S311
    still_s: list[float] = []
    with busy(int(os.environ.get("CHAOS_LOAD", "3"))), subprocess.Popen(command) as process:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(*BETWEEN_S))
                break
            still_s.append(draw.choice(STILL_S))
            with stopped(process.pid):
                time.sleep(still_s[-1])
    print(f"chaos: all processes stood still {len(still_s)} times, {sum(still_s):.1f} s", flush=True)
    return process.returncode


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many programs that compute all the time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


@contextmanager
def stopped(root: int) -> Iterator[None]:
    """A process and all that it has started stand still, but for what a test had stopped before, and sshd.

    sshd's sandbox has no restart_syscall, which the kernel calls after a stop: it would be killed.
    """
    held: list[psutil.Process] = []
    with suppress(psutil.Error):
        for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_STOPPED and process.name() != "sshd":
                    process.suspend()
                    held.append(process)
    try:
        yield
    finally:
        # Children first: a parent that looks must not find them stopped.
        for process in reversed(held):
            with suppress(psutil.Error):
                process.resume()
        # Each nsenter again a little later: it stops itself when it hears that its child was stopped.
        for wait_s in (0.05, 0.1, 0.2):
            time.sleep(wait_s)
            for process in held:
                with suppress(psutil.Error):
                    if process.name() == "nsenter" and process.status() == psutil.STATUS_STOPPED:
                        process.resume()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] if sys.argv[1] != "--" else sys.argv[2:]))
