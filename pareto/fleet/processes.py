"""The processes of a driver's own members, one for each testbed that `--testbed` names. They end with the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pareto
from analysis.escaping import short
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.local import cpu
from pareto.sweep import Sweep

END_S = 60.0
"""A member that ends puts its testbed back first."""


class Processes:
    """A member for each testbed; a context manager, which ends them."""

    def __init__(self, sweep: Sweep, scheduler: str, pems: Mapping[str, str]) -> None:
        self.names = list(sweep.testbeds)
        self._testbeds = sweep.testbeds
        self._cores = shares(sweep)
        self._scheduler = scheduler
        self._pems = dict(pems)
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._stopped: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Processes:
        for name in self.names:
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.stop(name)
        deadline = time.monotonic() + END_S
        for process in self._stopped:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str) -> None:
        """Start the member of a testbed."""
        root = str(Path(pareto.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
        errors = tempfile.TemporaryFile()  # noqa: SIM115  (its last line says why it ended)
        process = subprocess.Popen(  # noqa: S603  (this program)
            [sys.executable, f"{root}/pareto/launcher.py", "pareto.fleet.member", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # a Ctrl-C is the driver's, who ends its members in order
        )
        self._running[name] = process, errors
        start: dict[str, Any] = {
            "scheduler": self._scheduler,
            "pems": self._pems,
            "testbed": self._testbeds[name],
            "name": name,
            "cores": self._cores.get(name, []),
            "command": sys.argv[1:],
        }
        assert process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(start).encode() + b"\n")
            process.stdin.flush()

    def stop(self, name: str) -> None:
        """Have the member of a testbed put it back and end; it is not waited for."""
        if name in self._running:
            process, errors = self._running.pop(name)
            errors.close()
            assert process.stdin is not None  # noqa: S101
            with suppress(BrokenPipeError):
                process.stdin.close()
            self._stopped.append(process)

    def renew(self) -> Iterator[tuple[str, str]]:
        """The names of those that have ended by themselves, and the last line that each said."""
        for name, (process, errors) in list(self._running.items()):
            if process.poll() is not None:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip()
                self.stop(name)
                yield name, short(said.rpartition("\n")[2])


def shares(sweep: Sweep, sysfs: Path = Path("/sys")) -> dict[str, list[int]]:
    """By name, the processors that each local testbed of a fleet may use: apart, where there are enough for all.

    Where there are not, they share all of them, and each is told by the lease on a core that another has it.
    """
    local = [name for name, testbed in sweep.testbeds.items() if testbed == THIS_MACHINE]
    available = os.sched_getaffinity(0)
    cores = sorted({tuple(sorted(cpu.siblings(number, sysfs) & available)) for number in available})
    each = len(cores) // len(local) if local else 0
    hosts = 1 if sweep.alone else sweep.hosts or 2
    if len(local) < 2 or each < hosts:
        return {}
    parts = [cores[place * each : (place + 1) * each] for place in range(len(local))]
    return {
        name: [thread for core in part for thread in core] for name, part in zip(local, parts, strict=True)
    }
