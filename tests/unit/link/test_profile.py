"""Profile types: values that no link has, and their way to a host and back; quantities as people write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import validation
from pareto.protocol.errors import UserError
from pareto.remote.link import units
from pareto.remote.link.profile import Bucket, Direction, Gilbert, Profile, describe
from pareto.remote.link.trace import Step, Trace
from pareto.sweep import profile_files

TRACE = Trace("up.csv", 4.0, (Step(0.0, 0.01, 5e6), Step(1.0, 0.03, 1e6)))
DELAYS = Trace("delays.csv", 4.0, (Step(0.0, 0.01, None),))
FAULTS: dict[Callable[..., Any], tuple[tuple[dict[str, Any], str], ...]] = {
    Direction: (
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
    ),
    Bucket: (
        ({"burst_bytes": 1513}, "burst 1513 bytes"),
        ({"latency_s": 0.0}, "latency 0 s"),
        ({"latency_s": 61.0}, "latency 61 s"),
    ),
    Profile: (
        *(
            ({"name": "mine", **ways, "bucket": Bucket()}, r"netem\+tbf")
            for way in (Direction(trace=TRACE), Direction(rate_bps=1e6, limit_bytes=20_000))
            for ways in ({"edge_to_server": way}, {"server_to_edge": way})
        ),
        ({"name": "mine", "offset_s": -1.0}, "offset -1 s"),
    ),
}


@pytest.mark.parametrize("make", FAULTS)
def test_what_no_link_has(make: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    messages = []
    for fields, named in FAULTS[make]:
        with pytest.raises(UserError, match=named) as refused:
            make(**fields)
        messages.append(str(refused.value))
    assert messages == snapshot


def test_losses_in_bursts_have_a_mean() -> None:
    """In the bad state for 1 / (1 + 4) of the time."""
    direction = Direction(loss=Gilbert(0.01, 0.04, 0.5, 0.1))
    assert direction.mean_loss == pytest.approx(0.2 * 0.5 + 0.8 * 0.1)
    assert Direction(loss=0.25).mean_loss == 0.25
    for fields in ((0.0, 0.5), (0.5, 0.0), (0.5, 1.5), (0.5, 0.5, -1.0), (0.5, 0.5, 1.0, 2.0)):
        with pytest.raises(UserError, match=r"^loss "):
            Gilbert(*fields)
    # A trace stands for its means where one figure is asked.
    profile = Profile("mine", Direction(trace=TRACE, loss=0.1), Direction(0.005))
    assert (profile.period_s, profile.typical.period_s) == (4.0, None)
    assert profile.rtt_s == pytest.approx(0.025 + 0.005)
    out = profile.typical.edge_to_server
    assert (out.trace, out.loss, out.rate_bps) == (None, 0.1, pytest.approx(2e6))
    # Dictionaries make the round trip through JSON.
    everything = Direction(0.02, 5e6, 0.005, 0.25, Gilbert(0.01, 0.2), 0.01, 0.02, 0.001, 65536)
    changing = Profile("trace", Direction(trace=TRACE), Direction(trace=DELAYS, loss=0.5), offset_s=1.5)
    slow = Profile("slow", Direction(0.2, 5e6), Direction(0.1), Bucket(4096, 0.1))
    for profile in (Profile("none"), slow, Profile("all", everything), changing):
        assert validation.read(Profile, json.loads(json.dumps(profile.to_dict()))) == profile


SHORT = {"name": "x", "period_s": 1e-9, "steps": [{"at_s": 0, "delay_s": 0, "rate_bps": 1e6}]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"speed": 1}, "speed is 1"),
        ({"delay_s": [1]}, "delay_s is a list: it should be a number"),
        ({"rate_bps": 1e6, "limit_bytes": 2000.5}, "limit_bytes is 2000.5: it should be a whole number"),
        ({"queue_bytes": -1}, "queue_bytes is -1: it should be from 1514"),
        ({"trace": SHORT}, "short"),
        ({"trace": {"name": "\x1b[2J", "period_s": 1.0, "steps": []}}, "name"),
        ({"trace": {"name": "x", "period_s": 1.0, "steps": [1]}}, "steps.0 is 1: it should be an object"),
        ({"delay_s": float("nan")}, "delay_s is nan"),
        ({"rate_bps": 0}, "rate_bps is 0"),
        ("50ms", "'50ms'"),
    ],
)
def test_a_wrong_request_is_refused(fields: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        validation.read(Profile, {"edge_to_server": fields})


def test_a_line_without_a_limit_gets_the_usual_queue() -> None:
    for name, out, back in (
        ("200ms-5mbit", 262_144, None),  # 2 BDP are 250 kB, and home uplinks have as much
        ("satellite", 1_625_000, 8_125_000),  # 2 BDP
        ("10ms-100mbit", 262_144, None),
        ("lan-1gbit", 1_500_000, 1_500_000),  # 12 ms
        ("200ms-5mbit-tbf", None, None),  # the bucket's latency says it
        ("none", None, None),
    ):
        given = profile_files.load(name)
        put = given.with_queues()
        assert [way.waiting_bytes for way in put.directions] == [out, back]
        assert (put.tcp_fills, put.record()) == (given.tcp_fills, given.record())
        assert validation.read(Profile, put.to_dict()) == put
    # A limit of its own stays and a changing line has a queue for its means.
    short = Profile("short", Direction(0.2, 5e6, limit_bytes=20_000)).with_queues().edge_to_server
    assert (short.waiting_bytes, short.queue_bytes) == (20_000, None)
    trace = Trace("t", 20.0, (Step(0, 0.1, 10e6), Step(10, 0.1, 30e6)))
    assert Profile("t", Direction(trace=trace)).with_queues().edge_to_server.waiting_bytes == 500_000


def test_everything_that_is_asked_is_said(snapshot: SnapshotAssertion) -> None:
    shares = {"loss": 0.015, "duplicate": 0.001, "reorder": 0.02, "corrupt": 0.0001}
    out = Direction(0.2, 2.5e6, 0.01, **shares, limit_bytes=65536)  # type: ignore[arg-type]
    words = describe(Profile("x", out, Direction(0.03, loss=Gilbert(0.01, 0.19))))
    for figure in ("200 ms", "10 ms", "2.5 Mbit/s", "1.5%", "0.1%", "2%", "0.01%", "65536", "30 ms", "5%"):
        assert figure in words
    assert words == snapshot


READ: dict[Callable[[str], float], dict[str, float]] = {
    units.delay_s: {"200ms": 0.2, "1.5ms": 0.0015, "100us": 1e-4, "2s": 2.0, "80 MS": 0.08},
    units.rate_bps: {"5mbit": 5e6, "2.5mbit": 2.5e6, "768kbit": 768e3, "1gbit": 1e9, ".5Mbit": 5e5},
    units.share: {"1%": 0.01, "0.1%": 0.001, "100 %": 1.0, "0%": 0.0},
    units.size_bytes: {
        **{"1514b": 1514, "64kib": 65536, "64KB": 64000, "1.5kib": 1536},
        **{"2mb": 2_000_000, "1mib": 1 << 20, "1gb": 1_000_000_000, "1gib": 1 << 30},
    },
}


def test_what_people_write_and_read(snapshot: SnapshotAssertion) -> None:
    assert {read: {text: read(text) for text in texts} for read, texts in READ.items()} == READ
    assert units.size_bytes("9" * 400 + "b") > 1 << 60, "out of any range, and for the profile to refuse"
    seconds = (0.2, 0.231, 0.00012, 0.000025, 2.0)
    assert [*map(units.duration, seconds)] == ["200 ms", "231 ms", "0.12 ms", "25 µs", "2 s"]
    rates = [units.rate(bits, 3) for bits in (4.79e6, 1e9, 250e3)]
    assert rates == ["4.79 Mbit/s", "1 Gbit/s", "250 kbit/s"]
    # A fault has its name.
    messages = []
    for read, text, *name in (
        (units.delay_s, "200"),
        (units.delay_s, "5mbit", "delay"),
        (units.delay_s, "fast", "delay"),
        (units.delay_s, "5", "jitter"),
        (units.share, "0.01", "reorder"),
        (units.size_bytes, "100p", "limit"),
    ):
        with pytest.raises(ValueError, match=f"^{(name or ['delay'])[0]} '{text}' ") as refused:
            read(text, *name)
        messages.append(str(refused.value))
    assert messages == snapshot
