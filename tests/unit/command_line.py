"""The command line as a user meets it, without a process of its own: importing torch takes seconds."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from pareto import cli
from tests import REPOSITORY


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def pareto(*arguments: str) -> Done:
    """`./pareto.sh ARGUMENTS` in the repository's folder, on a terminal of 80 columns."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, _handlers_kept(), redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["pareto", *arguments])
        patch.setenv("COLUMNS", "80")
        patch.chdir(REPOSITORY)
        code = cli.main()
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def _handlers_kept() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
