"""The links of a run between its workers: measured with nothing on them, warmed by bulk, and probed."""

from __future__ import annotations

from contextlib import closing
from unittest.mock import ANY, Mock

import pytest

from pareto.hosts.host import EDGE, TcpSettings
from pareto.hosts.testbed import Testbed
from pareto.remote.link.probe import Tolerance
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.bounds import Crossing
from pareto.trial.workers import Workers
from tests.unit.workers.ends import (
    CELL,
    LINK,
    NONE,
    Ends,
    shaper_of,
    workers_of,
)


def test_the_link_beneath_is_measured_with_nothing_on_it(bed: Testbed, workers: Workers, ends: Ends) -> None:
    (link,) = workers.bare_links().values()
    assert workers.bare_links() == {"edge-server": link}, "once"
    assert (link.rtt_s, link.rate_bps) == (0.05, 8e6)
    assert [profile.shaped for profile in shaper_of(bed).applied] == [False] * 2
    (connected,) = ends.worker(EDGE).of("connect")
    assert (connected["address"], connected["ports"]) == ("192.168.7.1", {"tcp": 5001, "probe": 5002})


GOODPUT = 1448 / 1514
WARM_UPS = {
    # 262144 bytes at 8 Mbit/s and a round trip of 50 ms take 312 ms: not warm before it takes little more.
    "as the link beneath": (True, NONE, [0.9, 0.5, 0.34, 0.1], [1 << 18] * 3),
    "slower than that": (True, Profile("a", Direction(0.95, 4e6)), [9.0] * 5, [int(GOODPUT * 1e6)] * 5),
    # The first is as quick as the link allows, and says nothing of the next, until it gets no quicker.
    "a long link": (
        False,
        Profile("long", Direction(0.2, 5e6)),
        [1.3, 1.9, 1.4, 1.3, 0.1],
        [int(6 * 5e6 * GOODPUT / 8 * 0.2)] * 3,
    ),
    "one where packets are lost": (False, Profile("b", Direction(0.95, 4e6, loss=0.01)), [9.0], [ANY]),
}


@pytest.mark.parametrize(("bare", "profile", "takes_s", "nbytes"), WARM_UPS.values(), ids=WARM_UPS)
def test_bulk_warms_a_connection_as_its_link_needs_it(
    workers: Workers, ends: Ends, bare: bool, profile: Profile, takes_s: list[float], nbytes: list[int]
) -> None:
    ends.answers["warm"] = Mock(side_effect=takes_s)
    if bare:
        workers.bare_links()
    workers.ready(CELL, [profile])
    assert ends.asked(EDGE, "warm", "nbytes") == nbytes


def test_a_real_link_without_emulation_is_held_to_itself_before_the_run(
    bed: Testbed, workers: Workers, ends: Ends
) -> None:
    (link,) = workers.links

    def fault(profile: Profile = NONE, tolerance: Tolerance = Tolerance(), **reading: float) -> str:  # noqa: B008
        ends.link = {**LINK, **reading}
        return workers.probed(link, profile, tolerance)[0].fault

    assert fault() == "", "it was promised nothing"
    bed.is_local = True
    assert "50 ms" in fault()
    bed.is_local = False
    assert [crossing.least_s for crossing in workers.crossings(CELL, [NONE])] == [0.0]
    workers.bare_links()
    (crossing,) = workers.crossings(CELL, [NONE])
    assert crossing.own, "its rate and delay bound what crosses it"
    assert crossing.occupied_s[0] == pytest.approx(8 * crossing.payload_bytes / (8e6 / GOODPUT))
    assert crossing.least_s == pytest.approx(0.05 + sum(crossing.occupied_s))
    workers.ready(CELL, [NONE])
    asked_before = len(ends.worker(EDGE).of("probe"))
    assert fault() == ""
    assert ends.worker(EDGE).of("probe")[asked_before]["bulk_out"] > 0  # its rate is probed, too
    assert fault(rtt_s=0.055, rate_bps=7e6) == ""  # within a quarter
    for changed in ({"rtt_s": 0.09}, {"rate_bps": 3e6}, {"rate_back_bps": 90e6}):
        assert "measured before the run" in fault(**changed)
        assert fault(tolerance=Tolerance(10, 10, 20), **changed) == ""
    assert "asked" in fault(Profile("slow", Direction(0.95, 4e6)))


@pytest.mark.parametrize(("share", "at_the_latest_s"), [(None, 0.1), (1.0, 0.1), (0.25, 0.112)])
def test_a_host_with_a_share_of_a_core_may_wait_for_it_before_it_sends(
    bed: Testbed, workers: Workers, ends: Ends, share: float | None, at_the_latest_s: float
) -> None:
    ends.link = {**LINK, "message_s": 0.1}
    if share is not None:
        bed.facts["hosts"] = {EDGE: {"cpu_share": share}}
    (link,) = workers.links
    crossing = Crossing(link.name, NONE, 1000, 4000)
    assert workers.idle_crossing_s(link, crossing) == pytest.approx(at_the_latest_s)
    asked = ends.worker(EDGE).of("probe")[-1]
    assert (asked["message"], asked["answer"]) == (1000, 4000)


@pytest.mark.parametrize("slow", [False, True])
def test_where_tcp_is_to_be_slow_datagrams_tell_of_the_link(bed: Testbed, ends: Ends, slow: bool) -> None:
    profile = Profile("slow", Direction(0.1, 4e6))
    with closing(workers_of(bed, None, tcp=TcpSettings(slow_start_after_idle=slow))) as workers:
        workers.ready(CELL, [profile])
        workers.probed(workers.links[0], profile, Tolerance())
    asked = ends.worker(EDGE).of("probe")
    assert len(asked) > 1
    assert {probe["datagrams"] for probe in asked} == {slow}
