"""Forecasts from a model profile, against the same added up host by host and link by link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile, UnitTimes
from pareto.analysis.prediction import forecast
from pareto.analysis.prediction.forecast import Case, Forecasts
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import EAGER
from pareto.analysis.statistics.samples import Floats
from pareto.hosts.host import chain
from pareto.protocol.constants import BURST, GOODPUT, MOST_IN_FLIGHT
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Tolerance

UNITS = 6
FAR = Network(0.05, 5e6, 0.05, 5e6)
NEAR = Network(0.001, 1e9, 0.001, 1e9)
BARE = Network(0.0, np.inf)
SIZES = np.array([1e3, 1e5, 1e6])
LINK_S = 0.01 + 8e-8 * SIZES


def unit_times(role: str, seconds: Floats, **changed: object) -> UnitTimes:
    total = float(seconds.sum())
    times = UnitTimes(
        role, "a device", 1, 1, 1.0, seconds, 0.98 * seconds, 1.02 * seconds, 0.95 * seconds,
        (total, 0.98 * total, 1.02 * total, 0.95 * total),
    )  # fmt: skip
    return replace(times, **changed)


def profile(hosts: int = 2, **of_edge: object) -> ModelProfile:
    units_s = 0.001 * np.arange(1, UNITS + 1)
    names = chain(hosts)
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
            BackendCost(f"{near}-{far}", "tcp", SIZES, 0.001 + 1e-9 * SIZES, np.zeros(3))
            for near, far in pairwise(names)
        ),
        {}, "2026-01-01T00:00:00Z",
    )  # fmt: skip


def with_costs(of: ModelProfile, **costs: Floats) -> ModelProfile:
    return replace(of, backends=tuple(replace(cost, **costs) for cost in of.backends))


CODED_S = np.append(np.full(UNITS, 1e-3), np.nan)


def coded(of: ModelProfile, **changed: Floats) -> ModelProfile:
    """The same profile with a codec that sends a half, encodes in 1 ms and decodes in 2 ms, or in 0.8 of that."""
    whole = np.append(of.payload_bytes[:-1], np.nan)
    times = {
        "payload_bytes": whole, "wire_bytes": whole / 2, "wire_least_bytes": whole / 2.5,
        "encode_s": CODED_S, "encode_least_s": 0.8 * CODED_S,
        "decode_s": 2 * CODED_S, "decode_least_s": 1.6 * CODED_S, **changed,
    }  # fmt: skip
    return replace(of, codecs=tuple(CodecTimes(times_of.role, 1, "half", **times) for times_of in of.times))


def foreseen(
    of: ModelProfile,
    splits: Sequence[Sequence[int]] | Floats,
    *links: Network,
    engine: str = EAGER,
    at_best: Sequence[Network] = (),
    **asked: object,
) -> SimpleNamespace:
    """The forecast of splits over these links; over one that is far, where none is named."""
    usual = links or (FAR,)
    case = Case("", usual, at_best or usual, **asked)
    return SimpleNamespace(**Forecasts(of, case, "tcp").of(np.array(splits), engine))


def test_a_split_takes_its_stages_the_link_and_the_backends_cost() -> None:
    said = foreseen(profile(), [[2], [UNITS]])
    edge_s, server_s = 0.003, 0.018 / 4
    carried_s = 0.1 + 8 / GOODPUT * (160_000 + 4000) / 5e6
    assert said.latency_s == pytest.approx(
        [edge_s + server_s + carried_s + 0.001 + 160_000e-9, 0.021], rel=1e-6
    )
    assert said.throughput_ips == pytest.approx([1 / (8 / GOODPUT * 160_000 / 5e6), 1 / 0.021])


def drawn(seed: int) -> tuple[ModelProfile, Case, str]:
    """A profile that has something of all that a profile may have; in a case; with an engine."""
    draws = np.random.default_rng(seed)
    of = profile(2 + seed % 3, cpu=float(draws.choice([1.0, 0.25])))
    times = []
    for each in of.times:
        scale = draws.choice([0.1, 1.0, 20.0])
        known = {name: scale * getattr(each, name) for name in ("median_s", "least_s")}
        known |= {"outside_s": draws.choice([0, 0.002]), "after_pause_s": draws.choice([-0.003, 0, 0.0005])}
        known["whole_s"] = (float(draws.uniform(0.9, 1.1) * known["median_s"].sum()),) * 4
        times.append(replace(each, **known))
    taken = draws.uniform(0, 0.004, (3, 3)) if draws.random() < 0.7 else np.full((3, 3), np.nan)
    costs = [
        replace(cost, near_s=taken[0], far_s=taken[1], shaper_s=taken[2]).and_of(
            BackendCost(cost.link, "tcp", SIZES, (LINK_S + 0.005) * [1, 1, draws.choice([1, 2])], LINK_S)
        )
        for cost in of.backends
    ]
    cores = {each.role: {"core": number % 2} for number, each in enumerate(of.times)}
    points = (("input", 400_000), *of.points[1:])
    of = replace(
        of, times=tuple(times), backends=tuple(costs), points=points, hosts=cores if seed % 2 else {}
    )
    unknown = {} if seed % 4 else {"wire_least_bytes": np.full(UNITS + 1, np.nan)}
    usual = [[FAR, NEAR, BARE, Network(0.01, 3e7)][kind] for kind in draws.integers(0, 4, len(of.times) - 1)]
    best = [replace(each, delay_s=each.delay_s * 0.7) for each in usual] if seed % 3 else usual
    slack = [Tolerance(), Tolerance(0.05, 0.001, 0.2)][draws.integers(2)]
    asked = {"in_flight": str(draws.choice(["auto", "1", "3"])), "codec": str(draws.choice(["none", "half"]))}
    engine = str(draws.choice([EAGER, EAGER, "onnx", "edge=onnx"]))
    return coded(of, **unknown), Case("", usual, best, slack=slack, **asked), engine


def added_up(
    of: ModelProfile, cuts: Sequence[int], case: Case, engine: str, off: float | None = None
) -> tuple[float, float]:
    """The latency and the throughput of one split; off: their bounds, where rates are off by that share."""
    is_bound, codec = off is not None, of.codecs if case.codec != "none" else ()
    which = "_least" if is_bound else ""
    stages_s, beside_s, links_s, latency_s, crosses = [], [0.0] * case.hosts, [0.0], 0.0, False
    for times, first, end in zip(of.times, [0, *cuts], [*cuts, UNITS], strict=True):
        scale = 1.0 if times.cpu < 1 else times.whole_s[0] / times.median_s.sum()
        stage_s = scale * times.median_s[first:end].sum() + times.outside_s * (end > first)
        if is_bound:
            stage_s = 0.9 * min(1.0, scale) * times.least_s[first:end].sum() * (engine == EAGER)
            if times.cpu < 1:
                pause_s = (1 - times.cpu) * (0.005 + 0.004 / times.cpu)
                stage_s = max(times.cpu * stage_s, stage_s - pause_s)
        stages_s.append(stage_s)
    for link, (cut, cost) in enumerate(zip(cuts, of.backends, strict=True)):
        network, nbytes = (case.at_best if is_bound else case.usual)[link], of.payload_bytes[cut]
        near, far = of.times[link], of.times[link + 1]
        if not nbytes:
            continue
        crosses, known_s = True, engine == EAGER or not is_bound
        if codec:
            nbytes = max(1.0, np.nan_to_num(getattr(codec[0], f"wire{which}_bytes")[cut]))
            coding_s = [
                getattr(codec[link], f"encode{which}_s")[cut],
                getattr(codec[link + 1], f"decode{which}_s")[cut],
            ]
            for place, (seconds, times) in enumerate(zip(coding_s, (near, far), strict=True)):
                spent_s = seconds * (0.7 * times.cpu if is_bound else 1.0) * known_s
                beside_s[link + place] += spent_s
                latency_s += spent_s
        if not known_s and cut:
            nbytes = min(nbytes, 1.0 if codec else np.inf)
        rtt_s = network.delay_s + network.delay_back_s
        latency_s += rtt_s
        ways_s = [8 / GOODPUT * nbytes / network.rate_bps, 8 / GOODPUT * 4000 / network.rate_back_bps]
        if is_bound:
            latency_s -= min(rtt_s, max(case.slack.rtt_fraction * rtt_s, case.slack.rtt_floor_s))
            ways_s = [way_s / (1 + off) for way_s in ways_s]
        latency_s += sum(ways_s)
        links_s.append(max(ways_s))
        if is_bound:
            continue
        cost = cost.where(waiting=rtt_s > 0 or np.isfinite(network.rate_bps))
        latency_s += cost.fixed_s + cost.per_byte_s * nbytes + max(0.0, far.after_pause_s)
        if link == 0 and cut:
            own_s = near.after_pause_s / (1 if near.cpu == 1 else 2)
            latency_s += max(own_s, -(1 - near.cpu) * near.median_s[:cut].sum())
        held_bytes = max(max(2 * rtt_s, 0.012) * network.rate_bps / 8, 256 * 1024)
        if cost.resends and nbytes / GOODPUT > held_bytes:
            latency_s += 0.1 + 4 * rtt_s
        near_s, far_s, shaper_s = (
            cost.processor_s(end, np.array(nbytes)) for end in ("near_s", "far_s", "shaper_s")
        )
        beside_s[link] += near_s / near.cpu + (shaper_s / 2 if near.cpu == 1 else 0.0)
        beside_s[link + 1] += far_s + shaper_s / 2
    latency_s += sum(stages_s)
    busy_s = np.add(stages_s, beside_s)
    if of.hosts and case.hosts > 2 and not is_bound:
        busy_s = np.array([busy_s[0::2].sum(), busy_s[1::2].sum()])
    depth = MOST_IN_FLIGHT if case.in_flight == "auto" else int(case.in_flight)
    period_s = max(*busy_s, *links_s, latency_s / depth if crosses else 0.0)
    return latency_s, 1 / period_s if period_s else np.inf


@pytest.mark.parametrize("seed", range(24))
def test_every_split_is_the_sum_of_its_parts_and_so_is_its_bound(seed: int) -> None:
    of, case, engine = drawn(seed)
    splits = np.array(list(combinations_with_replacement(range(UNITS + 1), case.hosts - 1)))
    said = SimpleNamespace(**Forecasts(of, case, "tcp").of(splits, engine))
    room = max(case.slack.rate_fraction, BURST)
    usual = np.array([added_up(of, cuts, case, engine) for cuts in splits.tolist()]).T
    least_s = [added_up(of, cuts, case, engine, case.slack.rate_fraction)[0] for cuts in splits.tolist()]
    most_ips = [added_up(of, cuts, case, engine, room)[1] for cuts in splits.tolist()]
    assert [said.latency_s, said.throughput_ips] == [pytest.approx(each) for each in usual]
    assert said.least_latency_s == pytest.approx(least_s)
    assert said.most_throughput_ips == pytest.approx(most_ips)
    if engine == EAGER:
        assert (said.least_latency_s < said.latency_s).all()
        assert (said.most_throughput_ips > said.throughput_ips).all()
    assert (said.latency_error > 0).all()
    assert (said.throughput_error > 0).all()


OF_DEVICE = np.hypot(0.02 / 1.96, forecast.BETWEEN_RUNS)
SPENT = {"near_s": np.full(3, 0.002), "far_s": np.full(3, 0.001), "shaper_s": np.full(3, 0.006)}
ADDING = with_costs(profile(), trip_s=np.full(3, 0.1))
SLOW_CODEC = coded(profile(), encode_s=1000 * CODED_S)
RESENDING = replace(
    with_costs(profile(), trip_s=(LINK_S + 0.001) * [1, 1, 2], link_s=LINK_S),
    points=(("input", 400_000), *profile().points[1:]),
)


@pytest.mark.parametrize(
    ("said", "latency_s", "throughput"),
    [
        (foreseen(profile(), [[UNITS]]), OF_DEVICE * 0.021, OF_DEVICE),
        (foreseen(profile(cpu=0.25), [[UNITS]]), np.hypot(0.02 / 1.96, forecast.UNDER_QUOTA) * 0.021, None),
        # The link is the slowest step; its queue holds two of the smaller payloads.
        (foreseen(profile(), [[2]]), None, forecast.DROPPING),
        (foreseen(profile(), [[4]]), None, np.hypot(0.01, forecast.FILLING)),
        (foreseen(ADDING, [[0]], Network(1e-6, 1e12)), forecast.ADDED * 0.1, None),
        (
            foreseen(with_costs(profile(), **SPENT), [[3]], NEAR),
            None,
            np.hypot(forecast.SENDING * 0.005, OF_DEVICE * 0.006) / 0.011,
        ),
        (
            foreseen(RESENDING, [[0]]),
            forecast.RESENDING * (forecast.RESENDING_S + forecast.RESENDING_RTTS * 0.1),
            None,
        ),
        (foreseen(SLOW_CODEC, [[2]], BARE, codec="half"), forecast.CODING, forecast.CODING),
    ],
    ids=["device", "quota", "dropping", "filling", "added", "sending", "resending", "coding"],
)
def test_errors_are_those_of_devices_links_backend_and_codec(
    said: SimpleNamespace, latency_s: float | None, throughput: float | None
) -> None:
    """Standard deviations in seconds of latency, and as a share of throughput."""
    if latency_s is not None:
        assert said.latency_error * said.latency_s == pytest.approx([latency_s], rel=0.02)
    if throughput is not None:
        assert said.throughput_error == pytest.approx([throughput], rel=0.02)


def test_a_vague_link_and_another_engine_make_a_forecast_less_sure() -> None:
    splits = [[2], [UNITS]]
    eager, edge, both = (foreseen(profile(), splits, engine=each) for each in (EAGER, "edge=onnx", "onnx"))
    assert eager.latency_error[0] < 0.02
    assert foreseen(profile(), splits, slack=Tolerance(rate_fraction=0.5)).latency_error[0] > 0.1
    assert both.latency_s.tolist() == eager.latency_s.tolist()
    of_stages_s = forecast.BY_ENGINE * np.hypot(0.003, 0.018 / 4)
    assert both.latency_error[0] * both.latency_s[0] > of_stages_s
    assert (eager.latency_error < edge.latency_error).all()
    assert edge.latency_error[0] < both.latency_error[0], "the server's stage is the profile's"
    assert edge.latency_error[1] == both.latency_error[1], "the server has none"


def test_where_a_codec_is_not_used_there_is_no_forecast() -> None:
    at_input = np.where(np.arange(UNITS + 1) == 0, CODED_S, np.nan)
    names = ("encode_s", "encode_least_s", "decode_s", "decode_least_s")
    said = foreseen(coded(profile(), **dict.fromkeys(names, at_input)), [[0], [2], [UNITS]], codec="half")
    for figures in vars(said).values():
        assert np.isfinite(figures).tolist() == [True, False, True]


NOTHING = replace(profile(), times=tuple(unit_times(role, np.zeros(UNITS)) for role in ("edge", "server")))


@pytest.mark.parametrize(
    ("of", "links", "asked", "split", "named"),
    [
        (profile(), 2, {}, [0, 1], "no times of middle1"),
        (profile(), 1, {"batch_size": 8}, [0], "no times of edge at batch size 8"),
        (profile(), 1, {}, [0, 1], "1 links are cut at 1 points, not 2"),
        (profile(), 1, {}, [UNITS + 1], "0 to 6"),
        (coded(profile()), 1, {"codec": "third"}, [0], "no times of the codec third on edge at batch size 1"),
        (replace(profile(), backends=()), 1, {}, [0], "no cost of tcp on edge-server"),
        (NOTHING, 1, {}, [UNITS], "times of nothing"),
    ],
)
def test_what_the_profile_does_not_know_is_named(
    of: ModelProfile, links: int, asked: dict[str, object], split: list[int], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        foreseen(of, [split], *[FAR] * links, **asked)
