"""What a machine starts for a driver without SSH: programs of a list, with options of a list."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.escaping import short
from pareto.hosts import shipping
from pareto.hosts.channel import Channel
from pareto.hosts.connection import ENDING_S, ChildProcess, ending
from pareto.jsonlines import Refused

LAST_WORDS_BYTES = 4096
_WORKER, _MONITOR, _LEASE = "pareto.worker", "pareto.worker.monitor", "pareto.worker.lease"


@dataclass(frozen=True)
class Settings:
    """What the user of this machine offers. allowed: files of Python that drivers may have run."""

    address: str
    port: int
    token: str
    folder: Path
    device: str = "cpu"
    threads: int = 1
    rpc: bool = False
    allowed: tuple[Path, ...] = ()

    @property
    def programs(self) -> Mapping[str, Mapping[str, str]]:
        """The programs that may be started, each with its options and the values that these may have."""
        worker = {
            "--threads": str(self.threads),
            "--device": re.escape(self.device),
            "--allocator": "tuned|default",
            "--congestion": "cubic|bbr|reno",
        }
        return {_WORKER: worker, _MONITOR: {}, _LEASE: {}}

    def argv(self, module: str, arguments: Sequence[str]) -> list[str]:
        """What starts a program. Raises Refused for what is not among the programs, or their options."""
        known = self.programs.get(module)
        if known is None:
            raise Refused(f"{short(module)} is not among the programs that are served")
        if len(arguments) % 2:
            raise Refused(f"{module} {short(arguments[-1])}: not served")
        for option, value in zip(arguments[::2], arguments[1::2], strict=True):
            if option not in known or not re.fullmatch(known[option], value):
                raise Refused(f"{module} {short(option)} {short(value)}: not served")
        confined = ["--confined", str(self.folder), "--address", self.address]
        if module != _WORKER:
            confined = []
        elif not self.rpc:
            confined.append("--without-rpc")
        return [sys.executable, "-m", module, *arguments, *confined]


class Program:
    """One that runs for a driver. Its stderr is kept in a log."""

    def __init__(self, argv: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._child = ChildProcess(
                argv,
                cwd=shipping.REPOSITORY,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._ending = threading.Lock()

    def relay(self, to: Channel) -> str:
        """Pass input and output on until either ends, and the program with it; returns how that ended."""

        def give() -> None:
            with contextlib.suppress(OSError):
                while data := to.receive():
                    while data and (count := self._child.write(data)):
                        data = data[count:]
            with contextlib.suppress(OSError):
                self._child.end_input()

        giving = threading.Thread(target=give, name="input", daemon=True)
        giving.start()
        try:
            with contextlib.suppress(OSError):
                while data := self._child.read():
                    to.send(data)
        finally:
            self.end()
            to.close()
            giving.join()
        return ending(self._child.process.returncode)

    def end(self) -> None:
        """End its input, and with time the program."""
        with self._ending, contextlib.suppress(OSError):
            self._child.close()

    @property
    def last_words(self) -> str:
        """Why it ended: the signal that killed it, or the end of its log."""
        if (status := self._child.wait(ENDING_S) or 0) < 0:
            return ending(status)
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            return log.read().decode(errors="replace")
