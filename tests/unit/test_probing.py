"""Questions to the probe about a real link, and what is made of its answers."""

from __future__ import annotations

from collections.abc import Iterator
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


def prospects(*of: Any) -> list[str]:
    return list(probes.prospects(*of))


def test_a_bare_links_second_question_takes_its_time() -> None:
    """The first finds out how much each way carries in half a second; the second asks for that."""
    first = reading(rate_bps=94e6, rate_back_bps=47e6)
    second = reading(rtt_s=0.0004, rate_bps=95e6, rate_back_bps=46e6)
    answers = iter((first, second))
    edge = FarEnd({"probe": lambda request: next(answers)})
    link = probes.bare(Session("pi", edge))
    assert edge.of("probe") == [
        plain(Question(FIRST, FIRST)),
        plain(Question(int(0.5 * 94e6 / 8), int(0.5 * 47e6 / 8), pings=20)),
    ]
    assert (link.rtt_s, link.rate_bps, link.rate_back_bps) == (0.0004, 95e6, 46e6)


@pytest.mark.parametrize(("each_s", "times"), [(0.1, 8), (5.0, 3), (60.0, 2)])
def test_the_same_bytes_cross_the_idle_link_as_often_as_time_allows(each_s: float, times: int) -> None:
    """The first crossings open the congestion windows, and do not count."""
    took = iter([9 * each_s if times == 8 else each_s, *[each_s] * 7])
    edge = FarEnd({"probe": lambda request: reading(message_s=next(took))})
    assert probes.crossing_s(Session("pi", edge), 1_200_000, 2_800_000) == each_s
    asked = edge.of("probe")
    assert len(asked) == times
    assert {(each["message"], each["answer"]) for each in asked} == {(1_200_000, 2_800_000)}


@pytest.mark.parametrize(
    ("rates", "asked"),
    [((100e3, 40e9), (FIRST, MOST)), ((40e9, 100e3), (MOST, FIRST)), ((None, None), (FIRST, FIRST))],
)
def test_bulk_has_a_least_and_a_most(
    rates: tuple[float | None, float | None], asked: tuple[int, int]
) -> None:
    told = reading(rate_bps=rates[0], rate_back_bps=rates[1])
    edge = FarEnd({"probe": lambda request: told})
    probes.bare(Session("pi", edge))
    last = edge.of("probe")[1]
    assert (last["bulk_out"], last["bulk_back"]) == asked


FAST = Reading(0.0003, 94e6, 94e6)
BOTH_WAYS = Profile("both", Direction(0.1, 20e6), Direction(0.1, 8e6))


def test_a_link_that_can_carry_a_profile_needs_no_words() -> None:
    assert prospects(BOTH_WAYS, FAST, TOLERANCE) == []


def test_a_round_trip_that_eats_the_tolerance(snapshot: SnapshotAssertion) -> None:
    assert prospects(BOTH_WAYS, Reading(0.002, 94e6, 94e6), TOLERANCE) == []  # just so
    (told,) = prospects(BOTH_WAYS, Reading(0.0021, 94e6, 94e6), TOLERANCE)
    fast = Profile("fast", Direction(0.001), Direction(0.001))
    assert prospects(fast, Reading(0.0003, None, None), TOLERANCE) == []
    (told_of_fast,) = prospects(fast, Reading(0.0004, None, None), TOLERANCE)
    assert [told, told_of_fast] == snapshot


def test_a_link_too_slow_for_what_is_asked_either_way(snapshot: SnapshotAssertion) -> None:
    out = prospects(BOTH_WAYS, Reading(0.0003, 17e6, 94e6), TOLERANCE)
    back = prospects(BOTH_WAYS, Reading(0.0003, 94e6, 6.8e6), TOLERANCE)
    assert len(out) == len(back) == 1
    assert " out" in out[0]
    assert " back" in back[0]
    assert [*out, *back] == snapshot
    assert len(prospects(BOTH_WAYS, Reading(0.1, 17e6, 6.8e6), TOLERANCE)) == 3


def test_a_link_a_little_slower_than_asked_is_within_tolerance() -> None:
    payload = 20e6 * 1448 / 1514
    assert prospects(BOTH_WAYS, Reading(0.0003, 0.985 * payload, 94e6), TOLERANCE) == []
    assert prospects(BOTH_WAYS, Reading(0.0003, 0.975 * payload, 94e6), TOLERANCE) != []


def test_what_was_not_measured_or_not_asked_says_nothing() -> None:
    assert prospects(BOTH_WAYS, Reading(None, None, None), TOLERANCE) == []
    assert prospects(NONE, Reading(3.0, 1e3, 1e3), TOLERANCE) == []
    delayed = Profile("delayed", Direction(0.2))
    assert prospects(delayed, Reading(0.0003, 1e3, 1e3), TOLERANCE) == []


def test_a_trace_is_held_to_its_means(snapshot: SnapshotAssertion) -> None:
    train = Profile("train", Direction(trace=TRAIN))
    slow = prospects(train, Reading(0.0003, 17e6, None), TOLERANCE)
    assert slow == snapshot
    assert prospects(train, Reading(0.0003, 18.8e6, None), TOLERANCE) == []


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


class Playing(Shaper):
    """A link that is further along its trace each time that it is looked at."""

    def __init__(self) -> None:
        self.position_s = 4.0

    def state(self) -> LinkState:
        self.position_s += 1.0
        return LinkState(0, self.position_s)


def test_the_part_of_a_trace_that_passed_meanwhile() -> None:
    edge = Session("pi", FarEnd({"probe": lambda request: reading()}))
    changing = Profile("train", Direction(trace=TRAIN))
    assert probes.probed(Playing(), edge, changing, TOLERANCE, is_local=True)[1] == (5.0, 6.0)
    assert probes.probed(Playing(), edge, SHAPED, TOLERANCE, is_local=True)[1] == (
        0.0,
        0.0,
    )  # has none to be in


MIDDLE = Host("mid", "192.168.7.3", "eth0", "/home/mid/.pareto", "python3")


class Chain:
    """Three hosts that answer as probes: a round trip of as many seconds as the host's port has thousands."""

    def __init__(self) -> None:
        hosts = {EDGE: HOSTS[EDGE], "middle1": MIDDLE, SERVER: HOSTS[SERVER]}
        self.ends = {role: self._prober(1000 * number) for number, role in enumerate(hosts)}
        stand_ins = {
            role: StandIn(host, lambda module, role=role: self.ends[role]) for role, host in hosts.items()
        }
        self.bed = bed_of(stand_ins)

    def _prober(self, port: int) -> FarEnd:
        return FarEnd(
            {
                "listen": lambda request: port,
                "connect": lambda request: None,
                "reach": lambda request: 0.07,
                "probe": lambda request: reading(rtt_s=port / 1000, rate_bps=1e9, rate_back_bps=1e9),
            }
        )


@pytest.fixture
def chain() -> Iterator[Chain]:
    chain = Chain()
    yield chain
    chain.bed.close()


def test_each_link_is_probed_from_its_near_host(chain: Chain) -> None:
    with closing(probes.Probers(chain.bed)) as probers:
        first, second = chain.bed.links
        for link in (first, second):
            assert probers.shape(link, NONE) == {}
        assert [probers.bare(link).rtt_s for link in (first, second)] == [0.0, 1.0]
        found, _ = probers.probed(second, NONE, TOLERANCE, Question(1, 1))
        assert found.reading.rtt_s == 1.0
        assert probers.reach_s(EDGE, SERVER) == 0.07
    assert chain.ends[EDGE].of("reach") == [{"address": "192.168.7.1", "port": 2000}]
    assert [end.of("listen") for end in chain.ends.values()] == [
        [],
        [{"address": "192.168.7.3", "token": probers._token}],
        [{"address": "192.168.7.1", "token": probers._token}],
    ]
    assert [end.of("connect") for end in chain.ends.values()] == [
        [{"address": "192.168.7.3", "port": 1000, "token": probers._token}],
        [{"address": "192.168.7.1", "port": 2000, "token": probers._token}],
        [],
    ]
    assert all(end.closed for end in chain.ends.values())
