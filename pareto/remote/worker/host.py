"""The operating system's reports on this host and this process, without privileges."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

TRAFFIC = ("sent_bytes", "received_bytes", "retransmits")


@dataclass(frozen=True)
class Counters:
    """Readings that a trial takes the difference of. Bytes of the data interface, headers included."""

    interface: str
    clock_s: float
    cpu_s: float
    sent_bytes: int
    received_bytes: int
    retransmits: int

    def traffic_since(self, before: Counters) -> dict[str, Any]:
        return {name: getattr(self, name) - getattr(before, name) for name in TRAFFIC}


def counters(interface: str) -> Counters:
    times = os.times()
    received, sent = interface_bytes(interface)
    # TCP segments sent again by this host since boot: covers both backends' connections.
    lines = [x.split() for x in Path("/proc/self/net/snmp").read_text().splitlines() if x.startswith("Tcp:")]
    retransmits = int(dict(zip(*lines, strict=True))["RetransSegs"])
    return Counters(interface, time.perf_counter(), times.user + times.system, sent, received, retransmits)


def resident_bytes(pid: int | None = None) -> int:
    """The bytes that a process, or this one, has in memory."""
    return int(psutil.Process(pid).memory_info().rss)


class PeakMemory:
    """The most memory that this process had resident at once since `begin`."""

    _begun = False

    def begin(self) -> None:
        """Have the kernel count from what is resident now; see proc(5) on clear_refs."""
        self._begun = False
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
            self._begun = True

    def nbytes(self) -> int | None:
        """The peak in bytes; None where the kernel's figure still counts from the process' start."""
        status = Path("/proc/self/status").read_text() if self._begun else ""
        match = re.search(r"^VmHWM:\s*(\d+)", status, re.MULTILINE)
        return int(match[1]) * 1024 if match else None


def interface_bytes(interface: str) -> tuple[int, int]:
    """The bytes that an interface received and sent. Raises OSError if it is not there."""
    counted = psutil.net_io_counters(pernic=True, nowrap=False).get(interface)
    if counted is None:
        raise OSError(f"no interface {interface}")
    return counted.bytes_recv, counted.bytes_sent
