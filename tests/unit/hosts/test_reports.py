"""What a host may report of a trial, and what is refused: a real report with one figure changed."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.reports import Reports
from tests.unit.reported import TRIAL

WORKER = Reports("pareto.worker")

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
}


def test_a_real_one_passes() -> None:
    WORKER.check("trial", copy.deepcopy(TRIAL))


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
        WORKER.check("trial", report)
    assert str(place[0]) in str(refused.value)
    assert str(refused.value) == snapshot


def test_an_output_of_another_shape_may_be_infinitely_wrong() -> None:
    WORKER.check("trial", {"max_abs_error": math.inf, "tolerance": 1e-4, "tcp": {}})


def test_a_host_may_say_anything_of_itself_that_is_finite() -> None:
    WORKER.check("facts", {"pid": 7, "more": {"than": [1.5, "we", None]}})
    with pytest.raises(ValueError, match="more"):
        WORKER.check("facts", {"pid": 7, "more": {"than": [math.inf]}})


def test_of_a_program_that_has_nothing_declared_anything_passes() -> None:
    Reports("pareto.link").check("state", {"at": math.nan})
