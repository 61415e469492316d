"""Requests that arrive by themselves: what a load and an objective may be, what a queue does to them on the simulated
testbed, where theory knows the answer, and what their figures are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareto.protocol.errors import UserError
from pareto.protocol.trial_messages import Arrivals, Offered, Served
from pareto.remote.worker.trial import _offered
from pareto.simulated.requests import RequestPath, Work
from pareto.simulated.world import Noise, World
from pareto.sweep import load
from pareto.trial.load_figures import arrived, completed_share, independent, load_columns, stability

STAGE_S = 0.02
QUIET = World(noise=Noise(request=0, trial=0, round=0))
LATE = load.slo("p95 < 100ms")


def offered(at_s: Sequence[float], queue: int = 10_000, depth: int = 1, world: World = QUIET) -> Offered:
    """A simulated phase of one stage that takes 20 ms, on a host alone."""
    path = RequestPath([], [Work(STAGE_S)], world, 0.0, np.random.default_rng(1))
    made = _offered(path.arriving(Arrivals([*at_s], queue), depth, 0.0))
    assert made is not None
    return made


def poisson(rate: float, number: int) -> list[float]:
    return load.Load("", rate, by_chance=True).arrivals(number, 0.0, "a seed")


def waits(phase: Offered) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds from when each served request should have arrived until it was begun."""
    return np.array(phase.requests.started_s) - np.array(phase.requests.scheduled_s)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("none", None), ("15/s", 15.0), ("0.5/s", 0.5), ("poisson:15/s", 15.0)],
)
def test_loads(text: str, rate: float | None) -> None:
    found = load.parse(text)
    assert (found and found.rate) == rate and (found is None or found.text == text)


@pytest.mark.parametrize("text", ["15", "15/m", "0/s", "fast", "poisson:", "-3/s", "1e9/s", "200000/s"])
def test_what_is_no_load(text: str) -> None:
    with pytest.raises(UserError, match="a load is a rate such as 15/s"):
        load.parse(text)


def test_a_load_by_its_period() -> None:
    assert load.every("66.7ms") == "14.9925/s" and load.every("20ms") == "50/s"
    with pytest.raises(UserError, match="--every 1us"):
        load.every("1us")


@pytest.mark.parametrize(
    ("content", "fault"),
    [("0\n0.5\n", ""), ("0.5\n0\n", "rise"), ("0\n", "2 to"), ("a\nb\n", "each line"), ("1\n1\n", "no rate")],
)
def test_a_trace_of_arrivals(tmp_path: Path, content: str, fault: str) -> None:
    (tmp_path / "camera.txt").write_text(content)
    named = f"trace:{tmp_path}/camera.txt"
    if fault:
        with pytest.raises(UserError, match=fault):
            load.parse(named)
    else:
        found = load.parse(named)
        assert found is not None and found.text == "trace:camera" and found.rate == 2
        assert found.arrivals(99, 99.0, 1) == [0.0, 0.5]


def test_arrivals_are_the_same_for_a_round_and_others_in_another() -> None:
    chance, period = load.parse("poisson:15/s"), load.parse("15/s")
    assert chance is not None and period is not None
    first = chance.arrivals(2, 10.0, 0, 1)
    assert first == chance.arrivals(2, 10.0, 0, 1) != chance.arrivals(2, 10.0, 0, 2)
    assert len(first) == 150 and first == sorted(first)
    assert period.arrivals(3, 0.1, 0, 1) == pytest.approx([0, 1 / 15, 2 / 15])


@pytest.mark.parametrize(
    ("text", "share", "limit_s", "requests"),
    [
        ("p50 < 20ms", 0.5, 0.02, 11),
        ("p95<100ms", 0.05, 0.1, 130),
        ("p99 < 1s", 0.01, 1.0, 662),
        ("p99.9 < 1s", 0.001, 1.0, 6636),
        ("max < 1s", 0.0, 1.0, 6636),
        ("missed < 1%", 0.01, None, 662),
    ],
)
def test_slos(text: str, share: float, limit_s: float | None, requests: int) -> None:
    found = load.slo(text)
    assert (found.share, found.limit_s, found.requests) == (share, limit_s, requests)
    period = load.parse("20/s")
    assert period is not None and found.of(period) == (limit_s or 0.05)


@pytest.mark.parametrize("text", ["p95", "p97 < 1s", "p95 > 1s", "p95 < 100", "missed < 3", "mean < 1s"])
def test_what_is_no_slo(text: str) -> None:
    with pytest.raises(UserError):
        load.slo(text)


@pytest.mark.parametrize("rate", [10, 30, 45, 49])
def test_at_a_constant_rate_below_capacity_nothing_waits(rate: int) -> None:
    phase = offered([place / rate for place in range(500)])
    assert waits(phase) == pytest.approx(0.0, abs=1e-9) and not phase.dropped_s


@pytest.mark.parametrize("rate", [10, 30, 45, 49])
def test_random_arrivals_wait_as_in_a_queue_of_one_server(rate: int) -> None:
    """Each as by Lindley's recursion; in the mean as by Pollaczek and Khinchine, where so many requests tell it."""
    at_s, waited_s = poisson(rate, 10_000), [0.0]
    for before, after in itertools.pairwise(at_s):
        waited_s.append(max(0.0, waited_s[-1] + STAGE_S - (after - before)))
    phase = offered(at_s)
    assert waits(phase) == pytest.approx(waited_s, abs=1e-6)
    if rate <= 30:
        busy = rate * STAGE_S
        assert np.mean(waits(phase)) == pytest.approx(busy * STAGE_S / 2 / (1 - busy), rel=0.05)


def test_what_finds_the_queue_full_is_dropped_and_the_rest_is_served_in_order() -> None:
    """One is taken at once, two wait, the fourth to sixth are too many; the next one finds the queue empty again."""
    phase = offered([0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.5], queue=2)
    assert phase.requests.scheduled_s == [0.0, 0.001, 0.002, 0.5]
    assert phase.dropped_s == [0.003, 0.004, 0.005]
    assert phase.requests.started_s == pytest.approx([0.0, 0.02, 0.04, 0.5])


@pytest.mark.parametrize(
    ("at_s", "queue", "told"),
    [
        (poisson(30, 1000), 8, "stable"),
        (poisson(45, 1000), 8, "stable"),
        (poisson(55, 1000), 8, "unstable"),
        (poisson(100, 1000), 8, "unstable"),
        (poisson(55, 1000), 10_000, "unstable"),
        ([place / 49 for place in range(200)], 8, "stable"),
        ([place / 55 for place in range(200)], 10_000, "unstable"),
        (poisson(100, 19), 8, ""),
    ],
)
def test_whether_completions_keep_up(at_s: list[float], queue: int, told: str) -> None:
    assert stability(*arrived(offered(at_s, queue))) == told


def test_few_queues_that_keep_up_are_said_not_to_and_most_that_do_not_are() -> None:
    """At 90 % of capacity a backlog comes and goes; at 120 % it grows."""

    def unstable(rate: float) -> int:
        chance = load.Load("", rate, by_chance=True)
        phases = (offered(chance.arrivals(450, 0.0, seed)) for seed in range(100))
        return sum(stability(*arrived(phase)) == "unstable" for phase in phases)

    assert unstable(45) <= 2 and unstable(60) >= 90


def test_completions_are_counted_in_the_last_half() -> None:
    full = offered([place / 10 for place in range(100)])
    half = offered([place / 100 for place in range(1000)], 8)
    assert [completed_share(*arrived(each)) for each in (full, half)] == pytest.approx([1.0, 0.5], abs=0.03)


def test_requests_that_are_alike_are_worth_fewer() -> None:
    draws = np.random.default_rng(0)
    apart = draws.standard_normal(4000)
    alike = np.zeros(4000)
    for place, noise in enumerate(apart[1:], 1):
        alike[place] = 0.8 * alike[place - 1] + noise
    assert independent(apart) == pytest.approx(4000, rel=0.15)
    assert independent(alike) == pytest.approx(4000 * 0.2 / 1.8, rel=0.3)  # (1 - r) / (1 + r)
    assert independent(np.ones(50)) == 50


def columns(
    phase: Offered, status: str = "ok", slo: load.Slo | None = LATE, *, confined: bool = False
) -> dict[str, Any]:
    return load_columns(phase, 2, slo, status, confined=confined)


def test_figures_count_from_when_a_request_should_have_arrived() -> None:
    figures = columns(offered([place / 10 for place in range(200)]))
    assert (figures["offered_ips"], figures["load_requests"]) == (pytest.approx(20), 200)
    for quantile in ("load_latency_s", "load_latency_p95_s"):
        assert figures[quantile] == pytest.approx(STAGE_S)
    assert (figures["missed_requests"], figures["dropped_requests"]) == (0, 0)
    assert figures["goodput_ips"] == pytest.approx(20) and figures["stability"] == "stable"
    assert figures["load_latency_p99_s"] is None, "200 requests do not tell it"
    busy = offered(poisson(45, 2001))
    assert np.median(waits(busy)) > STAGE_S / 2
    assert columns(busy)["load_latency_s"] == pytest.approx(np.median(waits(busy)) + STAGE_S)


def test_what_was_dropped_is_beyond_every_limit() -> None:
    figures = columns(offered([place / 100 for place in range(1000)], 2))
    assert figures["dropped_requests"] == pytest.approx(500, abs=5) == figures["missed_requests"]
    assert figures["load_latency_p95_s"] is None and figures["goodput_ips"] == pytest.approx(100, rel=0.02)


def test_without_an_slo_nothing_is_missed_and_without_a_limit_the_next_request_is_it() -> None:
    phase = offered([place / 40 for place in range(200)])
    assert "missed_requests" not in columns(phase, slo=None)
    assert columns(phase, slo=load.slo("missed < 1%"))["missed_requests"] == 0
    faster = offered([place / 51 for place in range(200)])  # the next comes after 19.6 ms, before an answer
    assert columns(faster, slo=load.slo("missed < 1%"))["missed_requests"] == 200


@pytest.mark.parametrize(
    ("late_s", "status", "slo", "confined", "fault"),
    [
        (0.0009, "ok", None, False, ""),
        (0.0011, "ok", None, False, "over 1.1 ms after their time, allowed 1"),
        (0.0011, "ok", None, True, ""),
        (0.0011, "ok", load.slo("p95 < 200ms"), False, ""),
        (0.0, "invalid", None, False, "the trial is invalid"),
    ],
)
def test_a_load_that_was_not_offered_in_time_has_no_figures(
    late_s: float, status: str, slo: load.Slo | None, confined: bool, fault: str
) -> None:
    """A quota that holds the edge back makes it late, too: that is no fault of the phase."""
    phase = offered([place / 10 for place in range(50)])
    figures = columns(replace(phase, late_s=[late_s] * 50), status, slo, confined=confined)
    assert fault in figures.get("load_fault", "") and ("load_latency_s" in figures) == (not fault)


def test_requests_of_a_phase_have_all_columns_of_one_length() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        Served([0.0], [0.1], [0.1], [0.0], [()], [0.0, 1.0])
