"""A trial as one message: a member of a fleet sends it, and the driver checks it before it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from analysis.escaping import short
from analysis.schema import CELL, DEVICES, LINKS, REQUESTS, STAGES, TRIALS
from pareto.cell import Cell
from pareto.plan import Trial
from pareto.runner import trial_id
from pareto.store import Row, checked, parquet_of, trial_of

Send = Callable[[dict[str, Any]], None]
"""Takes what the driver is to hear at once: a trial, the session's `record`, a line to `say`, why it is `out`."""


class Sink:
    """What a trial has, kept until its row comes, and sent as one: as a `Store`, for a `Runner`.

    place: of the trial in its task. opened: when its testbed was.
    """

    def __init__(self, run: str, opened: str, send: Send) -> None:
        self.run, self.place, self._opened, self._send = run, 0, opened, send
        self._clear()

    def _clear(self) -> None:
        self._parts: dict[str, Any] = {"links": [], "stages": [], "requests": b"", "devices": b""}

    def append_link(self, row: Row) -> None:
        self._parts["links"].append(plain(row))

    def append_stages(self, rows: Iterable[Row]) -> None:
        self._parts["stages"] = [plain(row) for row in rows]

    def write_requests(self, cell: Cell, number: int, phases: Mapping[str, Mapping[str, list[Any]]]) -> None:
        self._parts["requests"] = parquet_of(REQUESTS, phases)

    def write_devices(self, cell: Cell, number: int, series: Mapping[str, Mapping[str, list[Any]]]) -> None:
        self._parts["devices"] = parquet_of(DEVICES, series) if series else b""

    def take_back(self, cell: Cell, number: int) -> bool:
        """False: a trial that is sent stands."""
        return False

    def append_trial(self, row: Row) -> None:
        """Send the trial with all that it has."""
        self._send({"place": self.place, "opened": self._opened, "row": plain(row), **self._parts})
        self._clear()


def plain(row: Row) -> Row:
    """The row with Python's own numbers: dask's messages have no others."""
    return {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}


class Unfit(Exception):
    """The fault of a message that is of no trial which its member was given, or has no row."""


def fitting(message: Mapping[str, Any], trials: Sequence[Trial], testbed: str) -> Trial:
    """The trial of a member's task that a message is of, all of whose rows can be written. Raises Unfit."""
    try:
        trial: Trial = trials[message["place"]]
        row = message["row"]
        stages, links = message["stages"], message["links"]
        for table, rows in ((TRIALS, [row]), (STAGES, stages), (LINKS, links)):
            for each in rows:
                checked(each, table)
        named = {name: row[name] for name in (*CELL, "round", "testbed")}
        of_link = {"model": trial.cell.model, "testbed": testbed, "trial": trial_id(trial)}
        if (trial_of(row), row["testbed"]) != ((trial.cell, trial.round), testbed) or not all(
            wanted.items() <= each.items()
            for wanted, rows in ((named, stages), (of_link, links))
            for each in rows
        ):
            raise ValueError("it is of another trial")
        content = (message["requests"], message["devices"])
        if not all(isinstance(each, bytes) for each in content) or not isinstance(message["opened"], str):
            raise ValueError("it has other parts")
        _ = row["wall_s"] + 0.0, int(row["restart"]), row["reason"]  # which are counted with, or shown
        return trial
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unfit(f"it sent what is no row of its trial: {short(str(error), 200)}") from None
