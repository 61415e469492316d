"""What a link is to do, and values that none has; what a probe is asked, and the verdict on its reading."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import validation
from pareto.protocol.errors import UserError
from pareto.remote.link import probe, units
from pareto.remote.link.probe import GOODPUT, Reading, Sample, Tolerance, bulk_bytes, judge, question
from pareto.remote.link.profile import Bucket, Direction, Gilbert, Profile, describe
from pareto.remote.link.trace import Step, Trace
from pareto.sweep import profile_files
from pareto.sweep.profile_files import load
from tests.unit.refusals import refusal

SLOW = load("200ms-5mbit")
CLEAN = load("none")
LOSSY = Profile("lossy", Direction(0.05, 10e6, loss=0.1), Direction(0.05))
SHAKY = Profile("shaky", Direction(0.05, jitter_s=0.02), Direction(0.05, jitter_s=0.01))
STAIRS = Trace("stairs", 20.0, (Step(0, 0.01, 2e6), Step(10, 0.05, 8e6)))
GIGABIT = Profile("gigabit", Direction(1e-4, 1e9), Direction(1e-4, 1e9))
CHANGING = Profile("stairs", Direction(trace=STAIRS))


def test_what_is_said_of_a_reading_that_is_off(snapshot: SnapshotAssertion) -> None:
    """A clean link may take the floor; jitter widens what a round trip may be; each way is judged where it is put."""
    said = []
    for asked, *reading in (
        *((SLOW, rtt_s, 4.78e6, None) for rtt_s in (0.231, 0.0002, None)),
        *((SLOW, 0.2, out_bps, None) for out_bps in (900e6, 4.0e6, None)),
        (Profile("home", Direction(0.001, 15e6), Direction(0.001, 30e6)), 0.002, 15e6 * GOODPUT, 100e6),
        (CLEAN, 0.003, None, None),
        (SHAKY, 0.145, None, None),
    ):
        said.append(judge(asked, Reading(*reading)))
        assert said[-1]
    assert "server to edge" in said[6]
    assert "70 ms to 130 ms" in said[8]
    assert said == snapshot
    for asked, *reading in (
        (SLOW, 0.2003, 4.78e6, 9e8),
        (CLEAN, 0.00029, 1e9, 1e9),
        (SHAKY, 0.072, None, None),
        (SHAKY, 0.128, None, None),
    ):
        assert judge(asked, Reading(*reading)) == ""
    assert judge(CLEAN, Reading(0.003, None, None), Tolerance(rtt_floor_s=0.01)) == ""
    # Not a number is a fault.
    assert judge(SLOW, Reading(math.nan, 4.78e6, None))
    assert judge(SLOW, Reading(0.2, math.nan, None))
    # A ping takes its time on the line. 83 bytes at 384 kbit/s and back at 1.5 Mbit/s: 2.2 ms that are the
    # rate's and not the delay's.
    dsl, rates = load("dsl"), (384e3 * GOODPUT, 1.5e6 * GOODPUT)
    needed_s = 0.050 + 83 * 8 / 384e3 + 83 * 8 / 1.5e6
    assert judge(dsl, Reading(needed_s, *rates, ping_bytes=83)) == ""
    assert judge(dsl, Reading(needed_s, *rates, ping_bytes=0)) != ""
    cells = Direction(0.025, 384e3, overhead_bytes=20, atm=True)
    assert probe.on_line_s(Profile("dsl", cells.with_line(384e3)), 83) == pytest.approx(3 * 53 * 8 / 384e3)
    assert probe.on_line_s(Profile("tbf", Direction(0.05, 384e3), bucket=Bucket()), 83) == 0.0


def test_a_rate_3_percent_off_is_a_fault() -> None:
    """Datagrams have their own share of the wire; what overtakes takes no time, what is damaged does not count."""
    rates = {0.97: False, 0.985: True, 1.015: True, 1.03: False}
    assert {rate: not judge(SLOW, Reading(0.2, 5e6 * rate * GOODPUT, None)) for rate in rates} == rates
    # Readings of relays that were not what they said, on a machine that was also kept busy.
    for asked, rtt_s, out_bps, off in (
        (load("10ms-20mbit"), 0.010331739, 19125760.67, []),
        (load("10ms-20mbit"), 0.010280763, 18554075.22, ["rate"]),
        (GIGABIT, 0.001100611, 928266306.91, ["RTT", "rate"]),
        *((TWENTY, rtt_s, None, ["RTT"]) for rtt_s in (0.019281237, 0.021299317)),
    ):
        said = judge(asked, Reading(rtt_s, out_bps, 956221634.18, ping_bytes=83))
        assert [fault.split()[0] for fault in said.split("; ") if fault] == off
    share = 1472 / 1514
    for asked, out_bps, fine in (
        (LOSSY, 10e6, True),
        (SLOW, 5e6 * 1.019, True),
        (SLOW, 5e6 * 1.021, False),
        *(
            (Profile("odd", Direction(0.05, 10e6, reorder=0.1)), rate, rate > 10e6)
            for rate in (10e6 / 0.9, 10e6)
        ),
        *((Profile("odd", Direction(0.05, 10e6, corrupt=0.1)), rate, rate < 10e6) for rate in (9e6, 10e6)),
    ):
        reading = Reading(asked.rtt_s, out_bps * share, None, payload_share=share)
        assert (judge(asked, reading) == "") is fine, (asked, out_bps)


TWENTY = Profile("20ms", Direction(0.01), Direction(0.01))


def test_lost_datagrams_must_fit_what_was_asked(snapshot: SnapshotAssertion) -> None:
    """A damaged one does not arrive either."""
    samples = {
        got: judge(LOSSY, Reading(0.1, 9.56e6, None, Sample(200, got, 0, 0))) for got in (180, 168, 200, 140)
    }
    assert samples[180] == samples[168] == ""
    assert " 0 of 200 " in samples[200] and " 60 of 200 " in samples[140]
    assert samples == snapshot
    assert probe.missing_share(Direction(loss=0.1, corrupt=0.1)) == pytest.approx(0.19)


def test_the_interval_covers_the_truth_as_often_as_it_says_and_bursts_widen_it() -> None:
    chance = random.Random(7)  # noqa: S311
    missed = 0
    for _ in range(2000):
        lost = sum(chance.random() < 0.05 for _ in range(200))
        least, most = probe.interval(lost, 200)
        missed += not least <= 0.05 <= most
    assert missed <= 12  # 2 foreseen at 99.9 %
    assert probe.interval(0, 200)[0] == pytest.approx(0.0, abs=1e-12)
    assert probe.interval(200, 200)[1] == pytest.approx(1.0)
    bursty = Direction(loss=Gilbert(0.01, 0.09))
    assert bursty.mean_loss == pytest.approx(0.1)
    assert probe.burstiness(bursty) == pytest.approx(1.9 / 0.1)
    plain, wide = probe.interval(20, 200), probe.interval(20, 200, probe.burstiness(bursty))
    assert wide[0] < plain[0] < plain[1] < wide[1]


ASKED = {
    # A sample and pings by datagrams where the link does not hold TCP up; more pings where more are lost: 50 % each
    # way, of 21 echoes none comes in 0.2 % of probes.
    "plain": SLOW,
    "lossy": LOSSY,
    "a short queue": Profile("short", Direction(0.01, 1e7, limit_bytes=20_000)),
    "dead": Profile("dead", Direction(0.05, loss=1.0)),
    "half is lost each way": Profile("h", Direction(0.05, loss=0.5), Direction(0.05, loss=0.5)),
    # A bucket's credit is not counted, nor what jitter delays: the bulk counts once the line always has work, and
    # pings keep clear of each other.
    "a bucket": Profile("b", Direction(0.2, 5e6), bucket=Bucket(32_768)),
    "jitter": Profile("j", Direction(0.05, 20e6, jitter_s=0.02), Direction(0.05, jitter_s=0.01)),
}


def test_bulk_is_a_tenth_of_a_second_and_a_probes_duration_is_foreseen(snapshot: SnapshotAssertion) -> None:
    sizes = {1e6: 48_000, 5e6: 62_500, 50e6: 625_000, 1e9: 12_500_000, 1e10: 12_500_000}
    assert {rate_bps: bulk_bytes(rate_bps) for rate_bps in sizes} == sizes
    told, usual = {}, {"answer": 1, "constant": True}
    for name, link in ASKED.items():
        asked = {
            field: value for field, value in vars(question(link)).items() if value != usual.get(field, 0)
        }
        told[name] = {**asked, "duration_s": round(probe.duration_s(link), 6)}
    assert told == snapshot
    # A sample fits the link and the time given.
    slow = question(Profile("s", Direction(0.05, 1e5, loss=0.1)), sample_s=4.0)
    assert slow.sample_gap_s == pytest.approx(2 * 142 * 8 / 1e5)
    assert slow.sample_out == pytest.approx(4.0 / slow.sample_gap_s, abs=1)


def test_a_changing_link_is_judged_by_what_it_was_meanwhile() -> None:
    """An outage holds an echo back."""
    gap = Trace("gap", 10.0, (Step(0, 0.05, 10e6), Step(4, 0.05, 0), Step(4.5, 0.05, 10e6)))
    link = Profile("gap", Direction(trace=gap))
    for asked, span, rtt_s, out_bps, fine in (
        (CHANGING, (1.0, 2.0), 0.010, 2e6, True),
        (CHANGING, (1.0, 2.0), 0.050, 8e6, False),
        (CHANGING, (11.0, 12.0), 0.050, 8e6, True),
        (CHANGING, (31.0, 32.0), 0.050, 8e6, True),  # the second lap
        (CHANGING, (9.0, 11.0), 0.030, 5e6, True),
        (CHANGING, (9.0, 11.0), 0.080, 5e6, False),
        (link, (3.9, 5.0), 0.5, 10e6, True),
        (link, (6.0, 7.0), 0.5, 10e6, False),
    ):
        reading = Reading(rtt_s, out_bps * GOODPUT, None)
        assert (judge(asked, reading, span=span) == "") is fine, (span, reading)


TRACE = Trace("up.csv", 4.0, (Step(0.0, 0.01, 5e6), Step(1.0, 0.03, 1e6)))
DELAYS = Trace("delays.csv", 4.0, (Step(0.0, 0.01, None),))
FAULTS: dict[Callable[..., Any], tuple[tuple[dict[str, Any], str], ...]] = {
    Direction: (
        ({"delay_s": 61.0}, "delay 61 s"),
        ({"delay_s": float("nan")}, "delay nan s"),
        ({"rate_bps": 0}, "rate 0 bit/s"),
        ({"rate_bps": 35e9}, "rate 3.5e+10 bit/s"),
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
            ({"name": "mine", **ways, "bucket": Bucket()}, "netem+tbf")
            for way in (Direction(trace=TRACE), Direction(rate_bps=1e6, limit_bytes=20_000))
            for ways in ({"edge_to_server": way}, {"server_to_edge": way})
        ),
        ({"name": "mine", "offset_s": -1.0}, "offset -1 s"),
    ),
}


@pytest.mark.parametrize("make", FAULTS)
def test_what_no_link_has(make: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    messages = [refusal(UserError, make, **fields) for fields, _ in FAULTS[make]]
    for message, (_, named) in zip(messages, FAULTS[make], strict=True):
        assert named in message
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
        ("lan-1gbit", 1_476_592, 1_476_592),  # 12 ms
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
    back = Direction(0.03, 8e6, loss=Gilbert(0.01, 0.19), overhead_bytes=10, atm=True).with_line(8e6)
    words = describe(Profile("x", out, back))
    figures = "200 ms, 10 ms, 2.5 Mbit/s, 1.5%, 0.1%, 2%, 0.01%, 65536, 30 ms, 5%, 8 Mbit/s, 10 bytes"
    assert all(figure in words for figure in figures.split(", "))
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
    wrong = [(units.delay_s, "200"), (units.delay_s, "5mbit", "delay"), (units.delay_s, "fast", "delay")]
    wrong += [
        (units.delay_s, "5", "jitter"),
        (units.share, "0.01", "reorder"),
        (units.size_bytes, "100p", "limit"),
    ]
    messages = [refusal(ValueError, *each) for each in wrong]
    for message, (_, text, *name) in zip(messages, wrong, strict=True):
        assert message.startswith(f"{(name or ['delay'])[0]} '{text}' ")
    assert messages == snapshot
