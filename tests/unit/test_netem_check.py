"""Asked against measured, from a series of probes."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.commands.link_check import Judgement, Observed, judge
from pareto.remote.link.probe import GOODPUT, Probed, Reading, Sample, Tolerance
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace

SLOW = Profile("slow", Direction(0.2, 5e6))
AIM = Tolerance(0.01, 0.0005, 0.02)


def series(*readings: Reading, fault: str = "") -> list[Observed]:
    return [Observed(float(i), (i, i + 1.0), Probed(r, fault)) for i, r in enumerate(readings)]


def reading(rtt_s: float = 0.2004, rate_bps: float = 4.77e6, **more: object) -> Reading:
    return Reading(rtt_s, rate_bps, None, rtts_s=(rtt_s - 0.0001, rtt_s, rtt_s + 0.0001), **more)  # type: ignore[arg-type]


def by_name(judgements: list[Judgement]) -> dict[str, Judgement]:
    return {one.quantity: one for one in judgements}


def test_a_good_link_agrees_in_everything() -> None:
    found = by_name(judge(SLOW, series(*[reading(message_s=0.2507)] * 5), AIM))
    assert set(found) == {"RTT", "rate out", "30 kB, answered"}
    assert not any(one.fault for one in found.values())
    assert found["RTT"].asked == 0.2
    assert found["RTT"].measured == pytest.approx(0.2004)
    assert found["RTT"].spread == pytest.approx((0.2003, 0.2005))
    assert found["rate out"].asked == pytest.approx(5e6 * GOODPUT)
    assert found["rate out"].off == pytest.approx(-0.0025, abs=1e-3)


def test_a_small_message_must_feel_the_rate() -> None:
    """30 kB in 21 segments at 5 Mbit/s take 50.2 ms after the delay; through a bucket's credit, nothing."""
    found = by_name(judge(SLOW, series(*[reading(message_s=0.2002)] * 5), AIM))
    message = found["30 kB, answered"]
    assert message.asked == pytest.approx(0.2 + 8 * (30_000 + 21 * 66) / 5e6)
    assert message.fault
    bucket = Profile("tbf", Direction(0.2, 5e6), bucket=Bucket())
    assert by_name(judge(bucket, series(reading(message_s=0.2002)), AIM))["30 kB, answered"].fault == ""


def test_what_is_off_says_so(snapshot: SnapshotAssertion) -> None:
    found = by_name(judge(SLOW, series(*[reading(0.21, 5.5e6)] * 3), AIM))
    assert list(found) == ["RTT", "rate out"]
    assert "210 ms" in found["RTT"].fault
    assert "5.5 Mbit/s" in found["rate out"].fault
    assert [one.fault for one in found.values()] == snapshot


def test_one_odd_reading_is_not_a_verdict() -> None:
    odd = [reading()] * 4 + [reading(0.9, 1e6)]
    assert not any(one.fault for one in judge(SLOW, series(*odd), AIM))


def test_nothing_came_back(snapshot: SnapshotAssertion) -> None:
    (rtt, rate) = judge(SLOW, series(Reading(None, None, None)), AIM)
    assert rtt.measured is rate.measured is rtt.off is None
    assert rtt.fault
    assert rate.fault
    assert [rtt.fault, rate.fault] == snapshot


def test_samples_are_added_up_and_judged_by_their_interval(snapshot: SnapshotAssertion) -> None:
    lossy = Profile("lossy", Direction(0.2, 5e6, loss=0.1, duplicate=0.01, reorder=0.05))
    samples = [Sample(1000, 905, 9, 40), Sample(200, 178, 3, 12)]
    found = by_name(judge(lossy, series(*[reading(sample=s) for s in samples]), AIM))
    lost = found["lost out"]
    assert (lost.asked, lost.measured) == pytest.approx((0.1, (95 + 22) / 1200))
    assert lost.fault == ""
    assert found["repeated out"].fault == ""
    assert found["reordered out"].fault == ""
    none = [reading(sample=Sample(1000, 1000, 0, 0))]
    fault = by_name(judge(lossy, series(*none), AIM))["lost out"].fault
    assert "0 of 1000" in fault
    assert fault == snapshot


def test_jitter_shows_as_the_spread_of_round_trips() -> None:
    shaky = Profile("shaky", Direction(0.05, jitter_s=0.03), Direction(0.05, jitter_s=0.04))
    found = by_name(judge(shaky, series(Reading(0.1, None, None, rtts_s=(0.08, 0.1, 0.12))), AIM))
    spread = found["RTT, std. dev."]
    assert spread.asked == pytest.approx(0.05 / 3**0.5)
    assert spread.measured == pytest.approx(0.02)


def test_a_changing_link_is_off_when_many_readings_are(snapshot: SnapshotAssertion) -> None:
    changing = Profile("t", Direction(trace=Trace("t", 10.0, (Step(0, 0.2, 5e6),))))
    good = series(*[reading()] * 9)
    few, many = good + series(reading(), fault="RTT 1 ms"), good + series(*[reading()] * 3, fault="RTT 1 ms")
    assert by_name(judge(changing, few, AIM))["RTT"].fault == ""
    fault = by_name(judge(changing, many, AIM))["RTT"].fault
    assert "3 of 12" in fault
    assert fault == snapshot
