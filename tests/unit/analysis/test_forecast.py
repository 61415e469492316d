"""Forecasts from a model profile, against a simulated testbed whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile, UnitTimes
from pareto.analysis.prediction import choose, forecast
from pareto.analysis.prediction.forecast import (
    ADDED,
    BETWEEN_RUNS,
    CODEC_MARGIN,
    CODING,
    DROPPING,
    FILLING,
    MARGIN,
    RESENDING,
    RESENDING_RTTS,
    RESENDING_S,
    SENDING,
    UNDER_QUOTA,
    Slack,
    roles,
)
from pareto.analysis.prediction.network import Network
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.constants import BURST, GOODPUT
from pareto.protocol.errors import UserError

UNITS = 6
FAR = Network(0.05, 5e6, 0.05, 5e6)


def unit_times(role: str, seconds: Floats, **changed: object) -> UnitTimes:
    total = float(seconds.sum())
    times = UnitTimes(
        role, "a device", 1, 1, 1.0, seconds, 0.98 * seconds, 1.02 * seconds, 0.95 * seconds,
        (total, 0.98 * total, 1.02 * total, 0.95 * total),
    )  # fmt: skip
    return replace(times, **changed)


def profile(hosts: int = 2, **of_edge: object) -> ModelProfile:
    units_s = 0.001 * np.arange(1, UNITS + 1)
    names = roles(hosts)
    nbytes = np.array([1e3, 1e5, 1e6])
    return ModelProfile(
        "net", "digest", "block", "uint8",
        (("input", 150_000), *((f"unit{unit}", 40_000 * (UNITS - unit)) for unit in range(1, UNITS + 1))),
        4000,
        *(np.zeros(UNITS),) * 4,
        tuple(
            unit_times(role, units_s / (1 + 3 * number), **(of_edge if role == "edge" else {}))
            for number, role in enumerate(names)
        ),
        tuple(
            BackendCost(f"{near}-{far}", "tcp", nbytes, 0.001 + 1e-9 * nbytes, np.zeros(3))
            for near, far in pairwise(names)
        ),
        {}, "2026-01-01T00:00:00Z",
    )  # fmt: skip


def foreseen(
    of: ModelProfile, splits: list[list[int]], *links: Network, **asked: object
) -> forecast.Forecast:
    """The forecast of splits over these links; over one that is far, where none is named."""
    return forecast.of(of, np.array(splits), links or [FAR], "tcp", **asked)


def test_a_split_takes_its_stages_the_link_and_the_backends_cost() -> None:
    said = foreseen(profile(), [[2], [UNITS]])
    edge_s, server_s = 0.003, 0.018 / 4
    carried_s = 0.1 + 8 / GOODPUT * (160_000 + 4000) / 5e6
    assert said.latency_s == pytest.approx(
        [edge_s + server_s + carried_s + 0.001 + 160_000e-9, 0.021], rel=1e-6
    )
    assert said.throughput_ips == pytest.approx([1 / (8 / GOODPUT * 160_000 / 5e6), 1 / 0.021])


def test_few_requests_in_flight_wait() -> None:
    one = foreseen(profile(), [[2]], in_flight="1")
    assert one.throughput_ips == pytest.approx(1 / one.latency_s)


def test_every_split_of_a_chain_has_a_forecast_and_a_bound_below_it() -> None:
    splits = np.array(list(combinations_with_replacement(range(UNITS + 1), 3)))
    near = Network(0.001, 1e8)
    said = foreseen(profile(4), splits, near, FAR, near)
    assert (said.least_latency_s < said.latency_s).all()
    assert (said.most_throughput_ips > said.throughput_ips).all()
    assert (said.latency_error > 0).all()
    assert (said.throughput_error > 0).all()


def test_units_timed_with_marks_are_scaled_to_the_stage_run_whole() -> None:
    seconds = np.full(UNITS, 0.001)
    marked = unit_times("edge", seconds, whole_s=(0.005, 0.005, 0.005, 0.005))
    of = profile()
    of = replace(of, times=(marked, *of.times[1:]))
    assert foreseen(of, [[UNITS]]).latency_s == pytest.approx(0.005)
    quota = replace(of, times=(replace(marked, cpu=0.25), *of.times[1:]))
    assert foreseen(quota, [[UNITS]]).latency_s == pytest.approx(0.006), (
        "under a quota the whole's clock is another one"
    )


def test_copies_to_a_device_are_added_once_and_only_where_it_has_units() -> None:
    plain, copying = (foreseen(each, [[0], [3]]) for each in (profile(), profile(outside_s=0.01)))
    assert copying.latency_s - plain.latency_s == pytest.approx([0, 0.01], abs=1e-12)


def test_the_bound_is_the_stages_at_their_least_and_the_link_at_its_best() -> None:
    slack = Slack(rate=0.02, rtt=0.01, rtt_floor_s=0.0003)
    said = foreseen(profile(), [[2], [UNITS]], slack=slack)
    stages_s = 0.95 * (1 - MARGIN) * (0.003 + 0.018 / 4)
    carried_s = 0.1 * 0.99 + 8 / GOODPUT * (160_000 + 4000) / (5e6 * 1.02)
    assert said.least_latency_s == pytest.approx([stages_s + carried_s, 0.95 * (1 - MARGIN) * 0.021])
    assert said.most_throughput_ips == pytest.approx(
        [1 / (8 / GOODPUT * 160_000 / (5e6 * (1 + BURST))), 1 / (0.95 * (1 - MARGIN) * 0.021)]
    )
    varying = foreseen(profile(), [[2]], at_best=[Network(0.0, np.inf)], slack=slack)
    assert varying.least_latency_s == pytest.approx([stages_s])
    assert varying.latency_s == said.latency_s[:1]


def test_a_quota_lets_a_stage_end_before_it_waits() -> None:
    whole, shared = (foreseen(profile(cpu=cpu), [[0], [1], [UNITS]]).least_latency_s for cpu in (1.0, 0.25))
    # Its first unit's 0.25 ms of processor time are less than a turn.
    assert whole - shared == pytest.approx(
        [
            0,
            0.75 * 0.95 * (1 - MARGIN) * 0.001,
            min(0.75 * (0.005 + 0.004 / 0.25), 0.75 * 0.95 * (1 - MARGIN) * 0.021),
        ]
    )


def test_errors_are_those_of_devices_link_and_backend() -> None:
    alone = foreseen(profile(), [[UNITS]])
    of_device = np.hypot(0.02 / 1.96, BETWEEN_RUNS)
    assert alone.latency_error == pytest.approx([of_device])
    assert alone.throughput_error == pytest.approx([of_device])
    crossing = foreseen(profile(), [[2], [4]])
    filled = np.hypot(0.01, FILLING)
    assert crossing.throughput_error == pytest.approx([DROPPING, filled]), (
        "the link is the slowest step; its queue holds two of the smaller payloads"
    )
    assert (crossing.latency_error < 0.02).all()
    vague = foreseen(profile(), [[2]], slack=Slack(rate=0.5))
    assert vague.latency_error[0] > 0.1


NEAR = Network(0.001, 1e9, 0.001, 1e9)
SIZES = np.array([1e3, 1e5, 1e6])


def with_costs(of: ModelProfile, **costs: object) -> ModelProfile:
    return replace(of, backends=tuple(replace(cost, **costs) for cost in of.backends))  # type: ignore[arg-type]


def test_hosts_send_beside_their_stages_and_the_relay_runs_on_either() -> None:
    splits = [[3], [UNITS]]
    plain = foreseen(profile(), splits, NEAR)
    assert plain.throughput_ips == pytest.approx([1 / 0.006, 1 / 0.021])
    taken = {"near_s": np.full(3, 0.002), "far_s": np.full(3, 0.001), "shaper_s": np.full(3, 0.006)}
    said = foreseen(with_costs(profile(), **taken), splits, NEAR)
    assert said.throughput_ips == pytest.approx([1 / (0.006 + 0.002 + 0.003), 1 / 0.021])
    assert said.latency_s.tolist() == plain.latency_s.tolist(), "its round trips have it"
    assert said.most_throughput_ips.tolist() == plain.most_throughput_ips.tolist(), "a bound has none of it"
    busy_s = np.hypot(SENDING * 0.005, np.hypot(0.006 * 0.02 / 1.96, BETWEEN_RUNS * 0.006))
    assert said.throughput_error[0] == pytest.approx(busy_s / 0.011)
    shared = foreseen(with_costs(profile(cpu=0.5), **taken), splits, NEAR)
    assert shared.throughput_ips[0] == pytest.approx(1 / (0.006 + 0.002 / 0.5)), (
        "a share leaves the relay room"
    )


def test_hosts_on_one_core_wait_for_each_other() -> None:
    splits = [[2, 4]]
    cores = {role: {"core": number % 2} for number, role in enumerate(roles(3))}
    alone, shared = (
        foreseen(of, splits, NEAR, NEAR) for of in (profile(3), replace(profile(3), hosts=cores))
    )
    edge_s, middle_s, server_s = 0.003, 0.007 / 4, 0.011 / 7
    assert alone.throughput_ips == pytest.approx([1 / max(edge_s, middle_s, server_s)])
    assert shared.throughput_ips == pytest.approx([1 / (edge_s + server_s)])
    assert shared.latency_s.tolist() == alone.latency_s.tolist()


def test_stages_take_longer_after_a_wait_for_the_network() -> None:
    splits = [[0], [2], [UNITS]]
    of = profile(after_pause_s=0.0005)
    of = replace(of, times=(of.times[0], replace(of.times[1], after_pause_s=0.0002)))
    more_s = foreseen(of, splits).latency_s - foreseen(profile(), splits).latency_s
    assert more_s == pytest.approx([0.0002, 0.0007, 0], abs=1e-12), (
        "without units, or alone, a host wakes none"
    )


def test_a_quota_that_came_anew_while_the_edge_waited_makes_it_no_quicker_than_its_processor() -> None:
    splits = [[0], [1], [5], [UNITS]]
    without, with_pause = (
        foreseen(profile(cpu=0.25, after_pause_s=pause_s), splits) for pause_s in (0.0, -0.003)
    )
    saved_s = without.latency_s - with_pause.latency_s
    assert saved_s == pytest.approx([0, 0.75 * 0.001, 0.003 / 2, 0], abs=1e-12)
    assert without.latency_error[-1] == pytest.approx(np.hypot(0.02 / 1.96, UNDER_QUOTA))


def test_a_link_that_slows_nothing_has_the_cost_of_such_a_link() -> None:
    link_s = 0.01 + 8e-8 * SIZES
    slowed = BackendCost("edge-server", "tcp", SIZES, link_s + 0.005, link_s)
    of = profile()
    both = replace(of, backends=(of.backends[0].and_of(slowed),))
    bare = Network(0.0, np.inf)
    split = np.array([[2]])
    assert foreseen(both, split, bare).latency_s == pytest.approx(foreseen(of, split, bare).latency_s)
    more_s = foreseen(both, split).latency_s - foreseen(of, split).latency_s
    assert more_s == pytest.approx([0.005 - 0.001 - 160_000e-9])


def test_what_a_queue_drops_is_sent_again_by_a_backend_that_sends_more_than_it_holds() -> None:
    sizes = np.array([1e3, 1e5, 1e6])
    link_s = 0.01 + 8e-8 * sizes
    calm = with_costs(profile(), payload_bytes=sizes, trip_s=link_s + 0.001, link_s=link_s)
    resending = with_costs(calm, trip_s=(link_s + 0.001) * [1, 1, 2])
    of = [replace(each, points=(("input", 400_000), *each.points[1:])) for each in (calm, resending)]
    plain, again = (foreseen(each, [[0], [2]]) for each in of)
    resent_s = RESENDING_S + RESENDING_RTTS * 0.1
    assert again.latency_s - plain.latency_s == pytest.approx([resent_s, 0], abs=1e-6), (
        "the queue holds 256 KiB"
    )
    assert again.latency_error[0] * again.latency_s[0] == pytest.approx(RESENDING * resent_s, rel=0.02)
    assert again.least_latency_s.tolist() == plain.least_latency_s.tolist()


def test_what_a_backend_adds_is_not_known_better_than_its_probes_or_a_share_of_it() -> None:
    close = Network(1e-6, 1e12)
    said = foreseen(with_costs(profile(), trip_s=np.full(3, 0.1)), [[0]], close)
    assert said.latency_error[0] * said.latency_s[0] == pytest.approx(ADDED * 0.1, rel=0.01)


def test_times_of_nothing_are_refused() -> None:
    of = profile()
    nothing = replace(of, times=tuple(unit_times(role, np.zeros(UNITS)) for role in ("edge", "server")))
    with pytest.raises(UserError, match="nothing"):
        foreseen(nothing, [[UNITS]])


@pytest.mark.parametrize(
    ("hosts", "backend", "splits", "named"),
    [
        (3, "tcp", [[0, 1]], "middle1"),
        (2, "rpc", [[0]], "rpc"),
        (2, "tcp", [[0, 1]], "1 links"),
        (2, "tcp", [[UNITS + 1]], "0 to 6"),
    ],
)
def test_what_the_profile_does_not_know_is_named(
    hosts: int, backend: str, splits: list[list[int]], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        forecast.of(profile(), np.array(splits), [FAR] * (hosts - 1), backend)


POINTS = np.arange(UNITS + 1)
CODED_S = np.append(np.full(UNITS, 1e-3), np.nan)


def coded(codec: str = "half", hosts: int = 2, **changed: Floats) -> ModelProfile:
    """The same profile with a codec that sends a half, encodes in 1 ms and decodes in 2 ms, or in 0.8 of that."""
    of = profile(hosts)
    whole = np.append(of.payload_bytes[:-1], np.nan)
    times = {
        "payload_bytes": whole, "wire_bytes": whole / 2, "wire_least_bytes": whole / 2.5,
        "encode_s": CODED_S, "encode_least_s": 0.8 * CODED_S,
        "decode_s": 2 * CODED_S, "decode_least_s": 1.6 * CODED_S, **changed,
    }  # fmt: skip
    return replace(of, codecs=tuple(CodecTimes(role, 1, codec, **times) for role in roles(hosts)))


def test_a_codec_takes_time_on_both_hosts_of_a_link_and_sends_less() -> None:
    splits = [[2], [UNITS]]
    plain, said = (foreseen(coded(), splits, codec=codec) for codec in ("none", "half"))
    less = 80_000
    gained_s = 8 / GOODPUT * less / 5e6 + 1e-9 * less
    assert plain.latency_s - said.latency_s == pytest.approx([gained_s - 0.003, 0])
    assert said.throughput_ips == pytest.approx([2 * plain.throughput_ips[0], plain.throughput_ips[1]])
    quick = foreseen(coded(), splits, Network(0.0, np.inf), codec="half")
    assert quick.throughput_ips[0] == pytest.approx(1 / (0.018 / 4 + 0.002)), "a host decodes, then computes"


def test_hosts_between_decode_and_encode() -> None:
    splits = [[2, 4], [2, UNITS]]
    near = Network(0.0, np.inf)
    plain, said = (foreseen(coded(hosts=3), splits, near, near, codec=codec) for codec in ("none", "half"))
    byte_s = 1e-9
    sent = (80_000 + 40_000, 80_000)
    assert said.latency_s - plain.latency_s == pytest.approx(
        [0.006 - byte_s * sent[0], 0.003 - byte_s * sent[1]]
    )


def test_the_bound_with_a_codec_is_its_least_times_and_bytes() -> None:
    said = foreseen(coded(), [[2]], codec="half")
    stages_s = 0.95 * (1 - MARGIN) * (0.003 + 0.018 / 4)
    codec_s = (1 - CODEC_MARGIN) * 0.8 * 0.003
    carried_s = 0.1 * 0.99 + 8 / GOODPUT * (64_000 + 4000) / (5e6 * 1.02)
    assert said.least_latency_s == pytest.approx([stages_s + codec_s + carried_s])
    assert said.most_throughput_ips == pytest.approx([1 / (8 / GOODPUT * 64_000 / (5e6 * (1 + BURST)))])
    unknown = coded(wire_least_bytes=np.full(UNITS + 1, np.nan))
    without = foreseen(unknown, [[2]], codec="half")
    assert without.least_latency_s[0] == pytest.approx(
        said.least_latency_s[0] - 8 / GOODPUT * 64_000 / (5e6 * 1.02), abs=1e-5
    )
    assert without.latency_s == said.latency_s


def test_a_codec_under_a_quota_takes_at_least_its_processor_time() -> None:
    of = coded()
    quota = replace(of, times=(replace(of.times[0], cpu=0.25), of.times[1]))
    plain, said = (foreseen(quota, [[0]], codec=codec) for codec in ("none", "half"))
    sent_s = 8 / GOODPUT * (150_000 - 60_000) / (5e6 * 1.02)
    codec_s = (1 - CODEC_MARGIN) * (0.25 * 0.8e-3 + 1.6e-3)
    assert plain.least_latency_s - said.least_latency_s == pytest.approx([sent_s - codec_s])


def test_how_long_a_codec_takes_is_uncertain() -> None:
    splits, near = np.array([[2]]), Network(0.0, np.inf)
    sure, slow = (
        foreseen(coded(encode_s=times * CODED_S), splits, near, codec="half") for times in (0.0, 1000.0)
    )
    assert slow.latency_error == pytest.approx([CODING], rel=0.02)
    assert slow.throughput_error == pytest.approx([CODING], rel=0.02)
    assert sure.latency_error[0] < 0.2


def test_where_a_codec_is_not_used_there_is_no_forecast() -> None:
    only_input = {
        name: np.where(POINTS == 0, CODED_S, np.nan) for name in ("encode_s", "encode_least_s", "decode_s")
    }
    of = coded(**only_input, decode_least_s=only_input["decode_s"])
    said = foreseen(of, [[0], [2], [UNITS]], codec="half")
    for figures in vars(said).values():
        assert np.isfinite(figures).tolist() == [True, False, True]
    front = choose.front(forecast.chain(of, [FAR], "tcp", codec="half"))
    assert set(front[:, 0]) <= {0, UNITS}
    with pytest.raises(UserError, match="no times of the codec third on edge at batch size 1: it has half"):
        foreseen(of, [[0]], codec="third")


def test_by_another_engine_a_stage_is_unsure_and_the_bound_is_the_links() -> None:
    """Its profile times units in eager."""
    splits = [[2], [UNITS]]
    eager, edge, both = (
        foreseen(profile(), splits, engine=engine) for engine in ("eager", "edge=onnx", "onnx")
    )
    assert both.latency_s == pytest.approx(eager.latency_s)
    stages_s = np.array([0.003, 0.018 / 4])
    assert both.latency_error[0] > forecast.BY_ENGINE * np.hypot(*stages_s) / both.latency_s[0]
    assert (eager.latency_error < edge.latency_error).all()
    assert edge.latency_error[0] < both.latency_error[0], "the server's stage is the profile's"
    assert edge.latency_error[1] == both.latency_error[1], "the server has none"
    carried_s = 0.1 * 0.99 + 8 / GOODPUT * (160_000 + 4000) / (5e6 * 1.02)
    for said in (edge, both):
        assert said.least_latency_s == pytest.approx([carried_s, 0])
        assert said.most_throughput_ips[0] == pytest.approx(1 / (8 / GOODPUT * 160_000 / (5e6 * (1 + BURST))))
        assert np.isposinf(said.most_throughput_ips[1])


def test_what_a_codec_makes_of_another_engines_results_is_not_known() -> None:
    """But of the input, which no engine makes; and what coding takes is no bound on a machine that is faster."""
    splits = [[0], [2]]
    said = foreseen(coded(), splits, codec="half", engine="onnx")
    input_bytes = coded().codecs[0].wire_least_bytes[0]
    back_s = 0.1 * 0.99 + 8 / GOODPUT * 4000 / (5e6 * 1.02)
    assert said.least_latency_s == pytest.approx(
        [back_s + 8 / GOODPUT * input_bytes / (5e6 * 1.02), back_s], abs=1e-5
    )
