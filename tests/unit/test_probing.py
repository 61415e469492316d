"""Questions to the probe about a real link, and what is made of its answers."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import EDGE, SERVER, Host
from pareto.hosts.session import Session
from pareto.hosts.shapers import LinkState, Shaper
from pareto.protocol.jsonlines import plain
from pareto.remote.link.probe import Question, Reading, Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep.profile_files import load
from pareto.trial import probes
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of

SHAPED = Profile("200ms-5mbit", Direction(0.2, 5e6), Direction(0.0, None))
NONE = load("none")
TRAIN = Trace("train", 20.0, (Step(0.0, 0.1, 10e6), Step(10.0, 0.1, 30e6)))
TOLERANCE = Tolerance()
FIRST, MOST = 1 << 18, 32 << 20


def reading(**fields: Any) -> Reading:
    return Reading(**{"rtt_s": 0.0003, "rate_bps": None, "rate_back_bps": None, **fields})


def prospects(profile: Profile, *reading: float | None) -> list[str]:
    return list(probes.prospects(profile, Reading(*reading), TOLERANCE))


def test_a_bare_links_second_question_takes_its_time() -> None:
    """The first finds out how much each way carries in half a second; the second asks for that."""
    first = reading(rate_bps=94e6, rate_back_bps=47e6)
    second = reading(rtt_s=0.0004, rate_bps=95e6, rate_back_bps=46e6)
    answers = iter((first, second))
    edge = FarEnd({"probe": lambda request: next(answers)})
    link = probes.bare(Session("pi", edge))
    longer = Question(int(0.5 * 94e6 / 8), int(0.5 * 47e6 / 8), pings=20)
    assert edge.of("probe") == [plain(Question(FIRST, FIRST)), plain(longer)]
    assert (link.rtt_s, link.rate_bps, link.rate_back_bps) == (0.0004, 95e6, 46e6)
    # Bulk has a least and a most.
    for rate_bps, back_bps, asked in (
        (100e3, 40e9, (FIRST, MOST)),
        (40e9, 100e3, (MOST, FIRST)),
        (None, None, (FIRST, FIRST)),
    ):
        told = reading(rate_bps=rate_bps, rate_back_bps=back_bps)
        edge = FarEnd({"probe": lambda request, told=told: told})  # type: ignore[misc]
        probes.bare(Session("pi", edge))
        last = edge.of("probe")[1]
        assert (last["bulk_out"], last["bulk_back"]) == asked


@pytest.mark.parametrize(("each_s", "times"), [(0.1, 8), (5.0, 3), (60.0, 2)])
def test_the_same_bytes_cross_the_idle_link_as_often_as_time_allows(each_s: float, times: int) -> None:
    """The first crossings open the congestion windows, and do not count."""
    took = iter([9 * each_s if times == 8 else each_s, *[each_s] * 7])
    edge = FarEnd({"probe": lambda request: reading(message_s=next(took))})
    assert probes.crossing_s(Session("pi", edge), 1_200_000, 2_800_000) == each_s
    asked = edge.of("probe")
    assert len(asked) == times
    assert {(each["message"], each["answer"]) for each in asked} == {(1_200_000, 2_800_000)}


BOTH_WAYS = Profile("both", Direction(0.1, 20e6), Direction(0.1, 8e6))
FAST = Profile("fast", Direction(0.001), Direction(0.001))
ON_TRAIN = Profile("train", Direction(trace=TRAIN))
PAYLOAD_BPS = 20e6 * 1448 / 1514


def test_a_link_that_can_carry_a_profile_needs_no_words() -> None:
    """Within the tolerance; and what was not measured, or not asked for, says nothing."""
    for profile, rtt_s, rate_bps, back_bps in (
        *((BOTH_WAYS, rtt_s, 94e6, 94e6) for rtt_s in (0.0003, 0.002)),
        (BOTH_WAYS, 0.0003, 0.985 * PAYLOAD_BPS, 94e6),
        (BOTH_WAYS, None, None, None),
        (FAST, 0.0003, None, None),
        (NONE, 3.0, 1e3, 1e3),
        (Profile("delayed", Direction(0.2)), 0.0003, 1e3, 1e3),
        (ON_TRAIN, 0.0003, 18.8e6, None),
    ):
        assert prospects(profile, rtt_s, rate_bps, back_bps) == []


def test_a_link_that_cannot_is_told_what_it_lacks_either_way(snapshot: SnapshotAssertion) -> None:
    """A round trip that eats the tolerance, a rate that is too slow, and a trace's mean."""
    (told,), (told_of_fast,) = prospects(BOTH_WAYS, 0.0021, 94e6, 94e6), prospects(FAST, 0.0004, None, None)
    (out,), (back,) = prospects(BOTH_WAYS, 0.0003, 17e6, 94e6), prospects(BOTH_WAYS, 0.0003, 94e6, 6.8e6)
    assert " out" in out
    assert " back" in back
    assert [told, told_of_fast, out, back, *prospects(ON_TRAIN, 0.0003, 17e6, None)] == snapshot
    assert len(prospects(BOTH_WAYS, 0.1, 17e6, 6.8e6)) == 3
    assert prospects(BOTH_WAYS, 0.0003, 0.975 * PAYLOAD_BPS, 94e6) != []


@pytest.mark.parametrize(
    ("profile", "is_local", "off"),
    [(NONE, False, False), (NONE, True, True), (SHAPED, False, True), (SHAPED, True, True)],
    ids=["real", "local", "real, shaped", "local, shaped"],
)
def test_a_real_link_that_was_promised_nothing_cannot_be_off(
    profile: Profile, is_local: bool, off: bool, snapshot: SnapshotAssertion
) -> None:
    edge = FarEnd({"probe": lambda request: reading(rtt_s=0.03, rate_bps=4.78e6)})
    found, span = probes.probed(Shaper(), Session("pi", edge), profile, TOLERANCE, is_local=is_local)
    assert bool(found.fault) == off
    assert found.fault == snapshot
    assert found.reading.rtt_s == 0.03
    assert span == (0.0, 0.0)


def test_the_part_of_a_trace_that_passed_meanwhile() -> None:
    edge = Session("pi", FarEnd({"probe": lambda request: reading()}))
    playing = Shaper()
    positions_s = itertools.count(5.0)  # further along each time that it is looked at
    playing.state = lambda: LinkState(0, next(positions_s))  # type: ignore[method-assign]
    assert probes.probed(playing, edge, ON_TRAIN, TOLERANCE, is_local=True)[1] == (5.0, 6.0)
    assert probes.probed(playing, edge, SHAPED, TOLERANCE, is_local=True)[1] == (0.0, 0.0), "it has none"


MIDDLE = Host("mid", "192.168.7.3", "eth0", "/home/mid/.pareto", "python3")


def test_each_link_is_probed_from_its_near_host() -> None:
    """Three hosts that answer as probes: a round trip of as many seconds as the host's port has thousands."""

    def prober(port: int) -> FarEnd:
        answer = reading(rtt_s=port / 1000, rate_bps=1e9, rate_back_bps=1e9)
        answers = {"listen": port, "connect": None, "reach": 0.07, "probe": answer}
        return FarEnd({op: lambda request, told=told: told for op, told in answers.items()})  # type: ignore[misc]

    hosts = {EDGE: HOSTS[EDGE], "middle1": MIDDLE, SERVER: HOSTS[SERVER]}
    ends = {role: prober(1000 * number) for number, role in enumerate(hosts)}
    stand_ins = {role: StandIn(host, lambda _, role=role: ends[role]) for role, host in hosts.items()}
    with closing(bed_of(stand_ins)) as bed, closing(probes.Probers(bed)) as probers:
        first, second = bed.links
        for link in (first, second):
            assert probers.shape(link, NONE) == {}
        assert [probers.bare(link).rtt_s for link in (first, second)] == [0.0, 1.0]
        found, _ = probers.probed(second, NONE, TOLERANCE, Question(1, 1))
        assert found.reading.rtt_s == 1.0
        assert probers.reach_s(EDGE, SERVER) == 0.07
    assert ends[EDGE].of("reach") == [{"address": "192.168.7.1", "port": 2000}]
    listens, connects = ([end.of(op) for end in ends.values()] for op in ("listen", "connect"))
    near, far = ({"address": f"192.168.7.{it}", "token": probers._token} for it in (3, 1))
    assert listens == [[], [near], [far]]
    assert connects == [[{**near, "port": 1000}], [{**far, "port": 2000}], []]
    assert all(end.closed for end in ends.values())
