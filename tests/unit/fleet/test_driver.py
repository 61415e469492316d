"""Which task a testbed gets next; and what a member sends: it is of the trial that it was given, or not written."""

from __future__ import annotations

from typing import Any, cast

import pytest

pytest.importorskip("distributed")

from pareto.analysis.schema import CELL as CELL_COLUMNS
from pareto.run.fleet import driver
from pareto.run.fleet.driver import Task, Unfit, fitting, taken
from pareto.run.runner import trial_id
from pareto.sweep.cell import Cell
from pareto.sweep.plan import QUICK, Trial

CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", "none", 1)
OTHER = Cell("mobilenet_v2", (8,), "features.7", "tcp", "none", 1)


def planned(cell: Cell, number: int) -> Trial:
    return Trial(cell, number, 1.0, 1.0, cast(Any, None))


TRIALS = (planned(CELL, 1), planned(OTHER, 1))


def message(cell: Cell = CELL, number: int = 1, place: Any = 0, **changes: Any) -> dict[str, Any]:
    columns = {name: cell.columns[name] for name in CELL_COLUMNS}
    named = {**columns, "prefetch_asked": str(cell.prefetch), "round": number, "testbed": "lab"}
    row = {**named, "point_name": cell.point_name, "status": "ok", "reason": "", "restart": 1, "wall_s": 1.0}
    link = {"model": cell.model, "netem": "none", "testbed": "lab", "trial": trial_id(planned(cell, number))}
    stages = [{**named, "position": 0, "host": "edge"}]
    parts = {"place": place, "opened": "today", "row": row, "stages": stages, "links": [link]}
    return {**parts, "requests": b"", "devices": b"", **changes}


def with_row(**changes: Any) -> dict[str, Any]:
    sent = message()
    sent["row"] |= changes
    return sent


def without(name: str, part: str = "") -> dict[str, Any]:
    sent = message()
    del (sent[part] if part else sent)[name]
    return sent


def test_a_testbed_gets_what_it_has_had_least_and_of_that_the_first() -> None:
    cells = {netem: Cell("m", (1,), "mid", "tcp", netem, 1) for netem in ("wifi", "lte")}
    waiting: list[Task] = [
        (Trial(cell, number, 0.1, 2.0, QUICK),) for number in (1, 2) for cell in cells.values()
    ]
    one, other = driver.FleetTestbed("lab1"), driver.FleetTestbed("lab2")
    tasks = [taken(waiting, each)[0] for each in (one, other, one, other)]
    assert [(trial.cell.netem, trial.round) for trial in tasks] == [
        *(("wifi", 1), ("lte", 1)),
        *(("lte", 2), ("wifi", 2)),
    ]
    assert not waiting


def test_what_a_testbed_does_is_said() -> None:
    testbed, said = driver.FleetTestbed("lab1"), []
    for name, value in (("losses", 0), ("address", "tls://a"), ("task", TRIALS), ("out", "slow")):
        setattr(testbed, name, value)
        said.append(testbed.in_words().removeprefix("lab1: "))
    assert said == ["not there", "idle", "mobilenet_v2 none, round 1", "taken out: slow"]


def test_a_row_of_a_trial_that_was_given_is_taken() -> None:
    assert fitting(message(), TRIALS, "lab") is TRIALS[0]
    assert fitting(message(OTHER, place=1), TRIALS, "lab") is TRIALS[1]


@pytest.mark.parametrize(
    "sent",
    [
        message(OTHER),
        message(number=2),
        message(place=7),
        message(place="0"),
        *(without(name) for name in message()),
        *(without(name, "row") for name in ("status", "model", "round", "testbed")),
        with_row(status="fine"),
        with_row(testbed="other"),
        with_row(restart="first"),
        with_row(wall_s="1.0"),
        with_row(wall_s=None),
        with_row(no_such_column=1),
        message(row=None),
        message(stages=[{**message(OTHER)["stages"][0]}]),
        message(stages=[{}]),
        message(links=[{**message(OTHER)["links"][0]}]),
        message(links=["link"]),
        message(requests="text"),
        message(opened=[]),
    ],
)
def test_what_is_not_is_refused_in_one_line(sent: dict[str, Any]) -> None:
    with pytest.raises(Unfit, match=r"^it sent what is no row of its trial: [^\n]*$"):
        fitting(sent, TRIALS, "lab")
