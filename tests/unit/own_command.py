"""The command in a process of its own, forked from one that has imported torch; on a disk of its own where wanted."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests import REPOSITORY
from tests.program import Ended
from tests.unit.forked import context

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000


class Command:
    """`python -m pareto arguments...`, started. before: called in that process at its beginning.

    keep: a folder on the process's own disk, and where to copy what is in it at the end, for nobody else sees it.
    """

    def __init__(
        self,
        *arguments: str, log: Path, before: Callable[[], Any] | None = None,
        keep: tuple[Path, Path] | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        log.mkdir(exist_ok=True)
        self._log = log
        given = arguments, log, before, keep, dict(environment or {})
        self.process = context.Process(target=_run, args=given, daemon=True)
        self.process.start()
        assert self.process.pid
        self.pid = self.process.pid

    @property
    def lives(self) -> bool:
        return self.process.is_alive()

    @property
    def said(self) -> str:
        """All that it has said so far."""
        return "".join(path.read_text() for path in self._log.iterdir())

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self, within_s: float = 120.0) -> Ended:
        """Its exit code (of a signal its number, negative), and what it said."""
        self.process.join(within_s)
        if self.lives:
            self.process.kill()
            raise AssertionError(f"it did not end: {self._said('out')}{self._said('err')}")
        code = self.process.exitcode
        assert code is not None
        return Ended(code, self._said("out"), self._said("err"))

    def _said(self, what: str) -> str:
        return (self._log / what).read_text()


def small_disk(folder: Path, options: str) -> None:
    """Put a tmpfs on a folder, which this process alone sees. Raises CalledProcessError where that is forbidden."""
    flags = _CLONE_NEWNS if os.geteuid() == 0 else _CLONE_NEWNS | _CLONE_NEWUSER
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True, capture_output=True)


def small_files(nbytes: int) -> None:
    """No file of this process becomes larger than that."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))


def can_mount(folder: Path) -> bool:
    process = context.Process(target=partial(small_disk, folder, "size=4k"), daemon=True)
    process.start()
    process.join(60)
    return process.exitcode == 0


def _run(
    arguments: tuple[str, ...], log: Path, before: Callable[[], Any] | None,
    keep: tuple[Path, Path] | None, environment: dict[str, str],
) -> None:  # fmt: skip
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(log / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.chdir(REPOSITORY)
    os.environ |= {"COLUMNS": "80", **environment}
    tempfile.tempdir = None  # TMPDIR may be another here
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["pareto", *arguments]
    if before is not None:
        before()
    from pareto.__main__ import guarded
    from pareto.commands import app

    code = guarded(app.main)
    if keep is not None:
        shutil.copytree(*keep)
    os._exit(code)
