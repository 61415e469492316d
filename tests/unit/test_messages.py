"""What a host may report of a trial, and what is refused: a real report with one figure changed."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.host_messages import CollectSamples
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import GetFacts
from pareto.protocol.profile_messages import TimeCodecs, TimeUnits
from pareto.protocol.trial_messages import GetUsage, RunTrial, WrongOutput
from pareto.protocol.validation import read
from tests.unit.reported import CODEC_RUNS, SERIES, TRIAL, UNIT_RUNS, USAGE, facts

WRONG: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "NaN": (("latency_s",), math.nan),
    "infinite": (("edge_s",), math.inf),
    "negative": (("serialize_s",), -1e-3),
    "zero where it is divided by": (("sequential_ips",), 0.0),
    "absurd": (("work_s",), 1e9),
    "a text": (("throughput_ips",), "9"),
    "true": (("in_flight",), True),
    "a number beyond all counters": (("sent_bytes",), 1 << 70),
    "a window that ends before it begins": (("throughput_window",), [2.0, 1.0]),
    "a window of one end": (("trial_window",), [2.0]),
    "NaN in a request": (("requests", "latency", "edge_s", 1), math.nan),
    "a request too many in one column": (("requests", "throughput", "edge_s"), [0.1]),
    "no request": (("requests", "latency"), {name: [] for name in TRIAL["requests"]["latency"]}),
    "more stages in a request": (("requests", "latency", "stages_s", 0), [0.1, 0.2]),
    "a column that nobody knows": (("requests", "latency", "other_s"), []),
    "no phases": (("requests",), None),
    "a figure that nobody knows": (("bonus",), 1),
    "nothing at a place": (("max_abs_error",), None),
    "an error that is no number": (("max_abs_error",), math.nan),
    "decoded ahead, in no time": (("prefetch",), 2),
}


def test_a_real_one_passes() -> None:
    report = read(RunTrial.report, copy.deepcopy(TRIAL))
    assert (report.latency_s, report.stages_s) == (TRIAL["latency_s"], (0.002292,))
    assert report.requests.throughput.stages_s[1] == (0.00235,)
    assert json.loads(json.dumps(report, default=plain)) == TRIAL


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_figure_is_refused_and_named(wrong: str, snapshot: SnapshotAssertion) -> None:
    place, value = WRONG[wrong]
    report = copy.deepcopy(TRIAL)
    *outer, last = place
    part: Any = report
    for step in outer:
        part = part[step]
    part[last] = value
    with pytest.raises(ValueError) as refused:
        read(RunTrial.report, report)
    assert str(place[0]) in str(refused.value)
    assert str(refused.value) == snapshot


def test_an_output_of_another_shape_may_be_infinitely_wrong() -> None:
    wrong = {"max_abs_error": math.inf, "tolerance": 1e-4}
    assert read(RunTrial.report, wrong) == WrongOutput(math.inf, 1e-4)


def test_a_whole_number_is_a_number_too() -> None:
    assert read(RunTrial.report, {**TRIAL, "work_s": 1}).work_s == 1.0


WRONG_OF_OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a window that ends before it begins": (GetUsage, {**USAGE, "throughput_window": [2.0, 2.0]}),
    "NaN in a column": (CollectSamples, {**SERIES, "busy_s": [math.nan] * 12}),
    "a column too short": (CollectSamples, {**SERIES, "busy_s": [0.0]}),
    "a column too many": (CollectSamples, {**SERIES, "more": [0.0] * 12}),
    "other units in a run": (TimeUnits, {**UNIT_RUNS, "units_s": [*UNIT_RUNS["units_s"][1:], [0.1]]}),
    "other units in memory": (TimeUnits, {**UNIT_RUNS, "peak_bytes": [1]}),
    "too few runs": (TimeUnits, {**UNIT_RUNS, "units_s": [[0.1, 0.2]] * 5}),
    "a run without units": (TimeUnits, {**UNIT_RUNS, "units_s": [[]] * 6}),
    "other codecs in a column": (TimeCodecs, {**CODEC_RUNS, "wire_bytes": [[25] * 4]}),
    "a codec without a run": (TimeCodecs, {**CODEC_RUNS, "encode_s": [[], [0.1]]}),
    "a process that cannot be": (GetFacts, {**vars(facts(7)), "pid": 0}),
}


@pytest.mark.parametrize("wrong", WRONG_OF_OTHERS)
def test_what_cannot_be_is_refused_in_other_reports(wrong: str, snapshot: SnapshotAssertion) -> None:
    kind, report = WRONG_OF_OTHERS[wrong]
    with pytest.raises(ValueError) as refused:
        read(kind.report, report)
    assert str(refused.value) == snapshot
