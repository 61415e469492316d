"""Profile types: values that no link has, and their way to a host and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import validation
from pareto.protocol.errors import UserError
from pareto.remote.link.profile import Bucket, Direction, Gilbert, Profile, describe
from pareto.remote.link.trace import Step, Trace
from pareto.sweep import profile_files

TRACE = Trace("up.csv", 4.0, (Step(0.0, 0.01, 5e6), Step(1.0, 0.03, 1e6)))
DELAYS = Trace("delays.csv", 4.0, (Step(0.0, 0.01, None),))


def refusals(make: Callable[..., Any], *cases: tuple[dict[str, Any], str]) -> list[str]:
    """What is said of these fields, each message naming what is with them."""
    messages = []
    for fields, named in cases:
        with pytest.raises(UserError, match=named) as refused:
            make(**fields)
        messages.append(str(refused.value))
    return messages


def test_a_direction_that_no_link_has(snapshot: SnapshotAssertion) -> None:
    assert snapshot == refusals(
        Direction,
        ({"delay_s": 61.0}, "delay 61 s"),
        ({"delay_s": float("nan")}, "delay nan s"),
        ({"rate_bps": 0}, "rate 0 bit/s"),
        ({"rate_bps": 35e9}, "rate 3.5e.10 bit/s"),
        ({"loss": 1.1}, "loss 1.1"),
        ({"duplicate": -0.1}, "duplicate -0.1"),
        ({"corrupt": 2}, "corrupt 2"),
        ({"delay_s": 0.1, "reorder": 2}, "reorder 2"),
        ({"delay_s": 0.1, "jitter_s": 0.2}, "jitter 0.2 s"),
        ({"delay_s": 0.1, "jitter_s": -0.1}, "jitter -0.1 s"),
        ({"trace": TRACE, "jitter_s": -0.1}, "jitter -0.1 s"),
        ({"delay_s": 0.1, "jitter_correlation": 0.2}, "jitter_correlation"),
        ({"reorder": 0.1}, "reorder"),
        ({"limit_bytes": 20_000}, "limit"),
        ({"limit_bytes": 20_000, "trace": DELAYS}, "limit"),
        ({"rate_bps": 1e6, "limit_bytes": 1513}, "limit 1513 bytes"),
        ({"rate_bps": 1e6, "limit_bytes": 1 << 31}, "limit 2147483648 bytes"),
        ({"rate_bps": 1e6, "trace": TRACE}, "trace"),
        ({"delay_s": 0.1, "trace": TRACE}, "trace"),
    )


def test_losses_in_bursts_have_a_mean() -> None:
    """In the bad state for 1 / (1 + 4) of the time."""
    direction = Direction(loss=Gilbert(0.01, 0.04, 0.5, 0.1))
    assert direction.mean_loss == pytest.approx(0.2 * 0.5 + 0.8 * 0.1)
    assert Direction(loss=0.25).mean_loss == 0.25
    for fields in ((0.0, 0.5), (0.5, 0.0), (0.5, 1.5), (0.5, 0.5, -1.0), (0.5, 0.5, 1.0, 2.0)):
        with pytest.raises(UserError, match=r"^loss "):
            Gilbert(*fields)


def test_a_bucket_that_holds_nothing(snapshot: SnapshotAssertion) -> None:
    assert snapshot == refusals(
        Bucket,
        ({"burst_bytes": 1513}, "burst 1513 bytes"),
        ({"latency_s": 0.0}, "latency 0 s"),
        ({"latency_s": 61.0}, "latency 61 s"),
    )


def test_what_a_profile_cannot_combine(snapshot: SnapshotAssertion) -> None:
    for way in (Direction(trace=TRACE), Direction(rate_bps=1e6, limit_bytes=20_000)):
        for ways in ((way, Direction()), (Direction(), way)):
            with pytest.raises(UserError, match=r"netem\+tbf") as refused:
                Profile("mine", *ways, bucket=Bucket())
            assert str(refused.value) == snapshot(name="bucket")
    with pytest.raises(UserError, match="offset -1 s") as refused:
        Profile("mine", offset_s=-1.0)
    assert str(refused.value) == snapshot(name="offset")


def test_a_trace_stands_for_its_means_where_one_figure_is_asked() -> None:
    profile = Profile("mine", Direction(trace=TRACE, loss=0.1), Direction(0.005))
    assert profile.period_s == 4.0
    assert profile.rtt_s == pytest.approx(0.025 + 0.005)
    out = profile.typical.edge_to_server
    assert (out.trace, out.loss, out.rate_bps) == (None, 0.1, pytest.approx(2e6))
    assert profile.typical.period_s is None


@pytest.mark.parametrize(
    "profile",
    [
        Profile("none"),
        Profile("slow", Direction(0.2, 5e6), Direction(0.1), Bucket(4096, 0.1)),
        Profile("all", Direction(0.02, 5e6, 0.005, 0.25, Gilbert(0.01, 0.2), 0.01, 0.02, 0.001, 65536)),
        Profile("trace", Direction(trace=TRACE), Direction(trace=DELAYS, loss=0.5), offset_s=1.5),
    ],
)
def test_dictionaries_round_trip_through_json(profile: Profile) -> None:
    assert validation.read(Profile, json.loads(json.dumps(profile.to_dict()))) == profile


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"speed": 1}, "speed is 1"),
        ({"delay_s": [1]}, "delay_s is a list: it should be a number"),
        ({"delay_s": True}, "delay_s is True: it should be a number"),
        ({"delay_s": "1"}, "delay_s is '1': it should be a number"),
        ({"rate_bps": 1e6, "limit_bytes": 2000.5}, "limit_bytes is 2000.5: it should be a whole number"),
        ({"queue_bytes": -1}, "queue_bytes is -1: it should be from 1514"),
        ({"loss": [0.1]}, "loss is a list: it should be a number"),
        (
            {"trace": {"name": "x", "period_s": 1e-9, "steps": [{"at_s": 0, "delay_s": 0, "rate_bps": 1e6}]}},
            "short",
        ),
        ({"trace": {"name": "\x1b[2J", "period_s": 1.0, "steps": []}}, "name"),
        ({"trace": {"name": "x", "period_s": 1.0, "steps": [1]}}, "steps.0 is 1: it should be an object"),
        ({"loss": {"good_to_bad": 0.5}}, "bad_to_good"),
        ({"trace": {"name": "x", "period_s": 1.0}}, "steps"),
        ({"trace": {"name": "x", "period_s": 1.0, "steps": []}}, "trace"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"rate_bps": 0}, "rate_bps is 0"),
        ("50ms", "'50ms'"),
    ],
)
def test_a_wrong_request_is_refused(fields: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        validation.read(Profile, {"edge_to_server": fields})


@pytest.mark.parametrize(
    ("name", "out", "back"),
    [
        ("200ms-5mbit", 262_144, None),  # 2 BDP are 250 kB, and home uplinks have as much
        ("satellite", 1_625_000, 8_125_000),  # 2 BDP
        ("10ms-100mbit", 262_144, None),
        ("lan-1gbit", 1_500_000, 1_500_000),  # 12 ms
        ("200ms-5mbit-tbf", None, None),  # the bucket's latency says it
        ("none", None, None),
    ],
)
def test_a_line_without_a_limit_gets_the_usual_queue(name: str, out: int | None, back: int | None) -> None:
    given = profile_files.load(name)
    put = given.with_queues()
    assert [way.waiting_bytes for way in put.directions] == [out, back]
    assert put.tcp_fills == given.tcp_fills
    assert put.record() == given.record()
    assert validation.read(Profile, put.to_dict()) == put


def test_a_limit_of_its_own_stays() -> None:
    short = Profile("short", Direction(0.2, 5e6, limit_bytes=20_000)).with_queues()
    assert short.edge_to_server.waiting_bytes == 20_000
    assert short.edge_to_server.queue_bytes is None


def test_a_changing_line_has_a_queue_for_its_means() -> None:
    trace = Trace("t", 20.0, (Step(0, 0.1, 10e6), Step(10, 0.1, 30e6)))
    assert Profile("t", Direction(trace=trace)).with_queues().edge_to_server.waiting_bytes == 500_000


def test_everything_that_is_asked_is_said(snapshot: SnapshotAssertion) -> None:
    out = Direction(
        0.2, 2.5e6, 0.01, loss=0.015, duplicate=0.001, reorder=0.02, corrupt=0.0001, limit_bytes=65536
    )
    back = Direction(0.03, loss=Gilbert(0.01, 0.19))
    words = describe(Profile("x", out, back))
    for figure in ("200 ms", "10 ms", "2.5 Mbit/s", "1.5%", "0.1%", "2%", "0.01%", "65536", "30 ms", "5%"):
        assert figure in words
    assert words == snapshot
