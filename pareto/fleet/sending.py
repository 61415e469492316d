"""What a member sends to its driver while it measures: each trial as one message, and lines for the user."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from analysis.schema import DEVICES, REQUESTS
from pareto.cell import Cell
from pareto.runner import Watcher
from pareto.store import Row, parquet_of

Send = Callable[[dict[str, Any]], None]
"""Takes what the driver is to hear at once: what a trial has, the session's `record`, or a line to `say`."""


class Sink:
    """What a trial has, kept until its row comes, and sent as one: as a `Store`, for a `Runner`.

    place: of the trial in its task.
    """

    def __init__(self, run: str, opened: str, send: Send) -> None:
        self.run = run
        self.place = 0
        self._opened = opened
        self._send = send
        self._clear()

    def _clear(self) -> None:
        self._links: list[Row] = []
        self._stages: list[Row] = []
        self._requests = self._devices = b""

    def append_link(self, row: Row) -> None:
        self._links.append(plain(row))

    def append_stages(self, rows: Iterable[Row]) -> None:
        self._stages = [plain(row) for row in rows]

    def write_requests(self, cell: Cell, number: int, phases: Mapping[str, Mapping[str, list[Any]]]) -> None:
        self._requests = parquet_of(REQUESTS, phases)

    def write_devices(self, cell: Cell, number: int, series: Mapping[str, Mapping[str, list[Any]]]) -> None:
        self._devices = parquet_of(DEVICES, series) if series else b""

    def take_back(self, cell: Cell, number: int) -> bool:
        """False: a trial that is sent stands."""
        return False

    def append_trial(self, row: Row) -> None:
        """Send the trial with all that it has."""
        self._send(
            {
                "place": self.place,
                "opened": self._opened,
                "row": plain(row),
                "stages": self._stages,
                "links": self._links,
                "requests": self._requests,
                "devices": self._devices,
            }
        )
        self._clear()


def plain(row: Row) -> Row:
    """The row with Python's own numbers: dask's messages have no others."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}


class Said(Watcher):
    def __init__(self, send: Send) -> None:
        self._send = send

    def rebuilds(self, reason: str, times: int) -> None:
        self._send({"say": f"{reason}: it is built again, and the trial done again"})


class Lines(io.TextIOBase):
    """A file that sends each line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(None, map(str.strip, lines)):
            self._send({"say": line})
        return len(text)
