"""A worker, a monitor and a probe that report nonsense by the thousand: a fault with a name, or a row that can be kept.

Seeded: a case that fails is named by its number. `--cases N` tries more.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pareto.analysis.schema import DEVICES, REQUESTS
from pareto.basics.escaping import terminal
from pareto.driver.progress import _sensed
from pareto.hosts.session import Session, SessionError, SessionLost
from pareto.protocol.host_messages import CollectSamples, GetLatestSample, MeasureIdle, SensorSample
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import GetFacts, LoadStage, Request, Split, WarmUp
from pareto.protocol.trial_messages import GetUsage, RunTrial, TrialReport, Usage
from pareto.protocol.validation import read
from pareto.remote.link.probe import OWN, Probed, Question, Reading, Tolerance, judge
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.trial import devices, probes
from pareto.trial.result import HostReport, TrialResult
from pareto.trial.rows import link_row, stage_rows, trial_row
from pareto.trial.store import Store
from tests.unit.fuzzing import changed, edited, places
from tests.unit.reported import READING, SERIES, TRIAL, TRIAL_REQUEST, USAGE, facts

SEED = 15
PROFILE = Profile("10ms-100mbit", Direction(0.005, 1e8), Direction(0.005, 1e8))
CELL = Cell("squeezenet1_1", (5,), "features.5", "tcp", PROFILE.name, 1)
CROSSING = Crossing("edge-server", PROFILE, 50_176, 4000)
GOOD = Reading(0.0101, 0.96e8, 0.96e8)
PROBES = {"edge-server": (Probed(GOOD, ""), Probed(GOOD, ""))}

SPLIT = Split((5,), 1, "tcp")


def sends(data: bytes, chance: random.Random) -> Any:
    """A `session.Command` on which these bytes come, in pieces."""
    left = io.BytesIO(data)
    return Mock(
        read=lambda timeout_s: left.read(chance.choice((1, 100, 1 << 16, 1 << 20))),
        last_words=lambda: "\x1b[2Jit was killed\x07",
    )


def can_be_shown(text: str) -> bool:
    """In one line, with nothing in it that moves a terminal."""
    return "\n" not in text and terminal(text) == text


def into_rows(report: Any, usage: Usage | None = None, series: devices.Series = SERIES) -> None:
    """As `pareto.driver.runner` and `pareto.trial.store` do."""
    result = report
    samples = {"edge": series, "server": series}
    if isinstance(report, TrialReport):
        server = HostReport(usage or read(Usage, USAGE), 0.003, 1, 2.0)
        result = TrialResult(report, {"edge": HostReport(report, 0.0015, 1), "server": server})
        KEPT[0].write_parts(REQUESTS, CELL, 1, result.request_columns())
        keep(*stage_rows(CELL, [CROSSING], result, samples))
    row = trial_row(CELL, [CROSSING], result, PROBES, samples)
    assert row["status"] in ("ok", "invalid")
    assert can_be_shown(row["reason"])
    keep(row)


def into_reading(reading: Reading) -> None:
    keep({"judged": judge(PROFILE, reading, Tolerance())})
    own = probes.own_profile("own", reading)
    keep({"judged": judge(own, reading, OWN), "words": probes.in_words(reading)})
    list(probes.prospects(PROFILE, reading, Tolerance()))
    keep(link_row(PROFILE, reading, (0.0, 0.0)))


def into_columns(report: Any) -> None:
    series, usage = vars(report), read(Usage, USAGE)
    host = HostReport(usage, idle_power_w=2.0, meter=("a meter", 0.0))
    keep(devices.columns(series, host, 1), devices.energy_standing(series, host))
    into_rows(read(RunTrial.report, TRIAL), series=series)
    within = devices.within(series, usage.trial_window)
    KEPT[0].write_parts(DEVICES, CELL, 1, {"edge": within, "server": series})


KEPT: list[Store] = []
"""The run of this test."""


@pytest.fixture(autouse=True)
def run(tmp_path: Path) -> Iterator[None]:
    KEPT.append(Store.create(tmp_path, "run", {}))
    yield
    KEPT.pop()


def keep(*rows: dict[str, Any]) -> None:
    """As in a file: no NaN, nothing that cannot be encoded."""
    for row in rows:
        for name, value in row.items():
            assert not (isinstance(value, float) and math.isnan(value)), name
        csv.writer(io.TextIOWrapper(io.BytesIO(), "utf-8")).writerow(map(str, row.values()))


def shown(latest: SensorSample | None) -> None:
    assert can_be_shown(_sensed(plain(latest) if latest is not None else {}))


PROGRAMS: dict[str, tuple[Request[Any], Any, Callable[[Any], object]]] = {
    "trial": (TRIAL_REQUEST, TRIAL, into_rows),
    "usage": (GetUsage(), USAGE, lambda usage: into_rows(read(RunTrial.report, TRIAL), usage)),
    "stage": (
        LoadStage(SPLIT, 0, None),
        {"weights_bytes": 1, "run_s": 0.1},
        lambda it: keep(plain(it)),
    ),
    "facts": (GetFacts(), plain(facts(7)), lambda it: json.dumps(it, default=plain)),
    "warm": (WarmUp("tcp", 1), 0.5, lambda it: keep({"s": it})),
    "collect": (CollectSamples(), SERIES, into_columns),
    "latest": (GetLatestSample(), {name: of[1] for name, of in SERIES.items()}, shown),
    "idle": (MeasureIdle(0.0), 2.5, lambda it: keep({"w": it})),
    "probe": (Question(), READING, into_reading),
}


def line(result: Any, chance: random.Random) -> bytes:
    """A reply, and what may be wrong with it as a line."""
    number = chance.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, -1, None, "1", 1.0, True, [1]))
    ok = chance.choice((True, True, True, True, True, True, True, False, "yes", None))
    data = json.dumps({"id": number, "ok": ok, "result" if ok else "error": result}).encode() + b"\n"
    match chance.choice([""] * 8 + ["edited", "edited", "twice", "deep", "infinite"]):
        case "edited":
            return edited(data, chance, values=(b"\xff\x7f\xe2\x80\xae", b"\n"))
        case "twice":
            return data + data
        case "deep":
            return data.replace(b'"result": ', b'"result": ' + b"[" * chance.choice((10, 40, 5000)), 1)
        case "infinite":
            return data.replace(*((b".", b"9e999, .") if chance.random() < 0.5 else (b"0.", b"1e999")), 1)
    return data


def hostile(good: Any, cases: int, ask: Callable[[Session], Any], use: Callable[[Any], object]) -> None:
    """So many replies, each of them refused with words that can be shown, or used."""
    where, accepted = places(good), 0
    for case in range(cases // len(PROGRAMS)):
        chance = random.Random(f"{SEED} {case}")  # noqa: S311
        session = Session("pi", sends(line(changed(good, chance, where), chance), chance))
        try:
            result = ask(session)
        except (SessionError, SessionLost) as fault:
            assert can_be_shown(str(fault)), case
            assert len(str(fault)) < 1500, case
            continue
        accepted += 1
        try:
            use(result)
        except Exception as error:
            raise AssertionError(f"case {case}") from error
    assert accepted


@pytest.mark.parametrize("op", PROGRAMS)
def test_whatever_a_program_reports(op: str, cases: int) -> None:
    request, good, use = PROGRAMS[op]
    use(read(request.report, copy.deepcopy(good)))
    hostile(good, cases, lambda session: session.ask(request), use)
