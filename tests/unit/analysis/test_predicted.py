"""The predicted front of all splits, and forecasts beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction import compared as beside
from pareto.analysis.prediction import predicted as predicted_module
from pareto.analysis.prediction.forecast import Case, Forecasts
from pareto.analysis.prediction.formula import Chain
from pareto.analysis.prediction.network import Network
from pareto.analysis.prediction.predicted import (
    COLUMNS,
    FRONT,
    RULES,
    behind,
    even,
    front,
    greedy,
    pareto,
    predicted,
    splits_of,
)
from pareto.analysis.statistics.samples import Ints
from pareto.analysis.statistics.significance import MEASURES
from pareto.analysis.tables.advice import answers, predicted_advice, predicted_table, sentences
from pareto.analysis.wording import EDGE, SERVER, forms
from pareto.protocol.errors import UserError
from tests.unit.analysis.test_forecast import FAR, NEAR, NOTHING, UNITS, coded, foreseen, profile

CLOSE = Network(0.0005, 1e9, 0.0005, 1e9)


def every(points: int, hosts: int) -> Ints:
    return np.array(list(combinations_with_replacement(range(points), hosts - 1)))


def chain(hosts: int, units: int, seed: int = 0, **changed: Any) -> Chain:
    """A chain of hosts and a model of so many units, drawn at random."""
    draws, links = np.random.default_rng(seed), hosts - 1
    units_s = draws.lognormal(-6, 1, units) * draws.lognormal(0, 1, hosts)[:, None]
    until_s = np.pad(units_s.cumsum(axis=1), ((0, 0), (1, 0)))
    later = np.tri(units + 1, k=-1, dtype=bool)
    once_s = 0.002 * draws.integers(0, 2, (hosts, 1, 1)) * later.T
    stages_s = np.where(later, np.inf, until_s[:, None, :] - until_s[:, :, None] + once_s)
    crosses = np.arange(units + 1) < units
    most_s = (0.06, 0.02, 0.02, 0.003, 0.003)
    tables = (np.where(crosses, draws.uniform(0, most, (links, units + 1)), 0.0) for most in most_s)
    return replace(Chain(stages_s, *tables, crosses, in_flight=64), **changed)


def figures(of: Chain, splits: Ints) -> set[tuple[float, float]]:
    each = zip(of.latency_s(splits), of.throughput_ips(splits), strict=True)
    return {(float(f"{latency_s:.9e}"), float(f"{ips:.9e}")) for latency_s, ips in each}


@pytest.mark.parametrize(
    ("hosts", "units", "asked"),
    [
        *((hosts, 12, {"in_flight": depth}) for hosts in (2, 3, 4) for depth in (1, 2, 64)),
        (4, 12, {"batch_size": 8}),
        (5, 37, {}),  # a hundred thousand splits
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_front_is_that_of_all_splits(hosts: int, units: int, seed: int, asked: dict[str, int]) -> None:
    of = chain(hosts, units, seed, **asked)
    splits = every(units + 1, hosts)
    best = splits[pareto(of.latency_s(splits), of.throughput_ips(splits))]
    found = front(of)
    assert figures(of, found) == figures(of, best)
    assert len(found) == 1 if asked == {"in_flight": 1} else len(found) > (units > 12)


def test_among_so_many_splits_that_nobody_can_try_each_none_of_those_tried_dominates_the_front() -> None:
    of = chain(8, units=175, seed=5)
    found = front(of)
    assert (np.diff(found, axis=1) >= 0).all()
    tried = np.sort(np.random.default_rng(1).integers(0, of.last + 1, (50_000, of.hosts - 1)), axis=1)
    latency_s, ips = of.latency_s(tried), of.throughput_ips(tried)
    for split_s, split_ips in zip(of.latency_s(found), of.throughput_ips(found), strict=True):
        assert not ((latency_s < split_s * (1 - 1e-9)) & (ips > split_ips * (1 + 1e-9))).any()


def test_a_host_that_never_ends_gets_nothing() -> None:
    of = chain(3, 10)
    of.segments_s[1][np.tri(11, k=-1, dtype=bool).T] = 1e6
    assert (of.stages_s(front(of))[:, 1] == 0).all()


SLOW_BUT_AT_9 = np.append(np.where(np.arange(20) == 9, 0.008, 8.0), 0.0)


@pytest.mark.parametrize(
    ("unit_s", "sent_s", "split"),
    [
        ((1.0, 0.7), np.zeros(21), 8),  # both take the same at 8.2 units
        ((1.0, 0.1), np.zeros(21), 2),  # at 2 they would: the rule comes there by steps of two
        ((0.001, 0.001), SLOW_BUT_AT_9, 9),
    ],
)
def test_the_greedy_rule_balances_stages_near_the_even_split_and_sends_less_over_a_slow_link(
    unit_s: tuple[float, float], sent_s: Any, split: int
) -> None:
    units = np.arange(21)[None, None] - np.arange(21)[None, :, None]
    assert greedy(chain(2, 20, segments_s=np.array(unit_s)[:, None, None] * units, sent_s=sent_s[None])) == [
        [split]
    ]


@pytest.mark.parametrize(("hosts", "units"), [(4, 3), (4, 4), (5, 6), (8, 40)])
def test_the_rules_give_each_host_a_unit_where_they_can_and_the_even_one_as_many(
    hosts: int, units: int
) -> None:
    """With more hosts than units some only forward."""
    for rule in (greedy, even):
        (split,) = rule(chain(hosts, units))
        assert len(split) == hosts - 1
        assert (np.diff([0, *split, units]) > -(units < hosts)).all()
    assert np.ptp(np.diff([0, *split, units])) <= 1


def case(*networks: Network, **asked: Any) -> Case:
    return Case("a network", networks, networks, **asked)


def text(rows: pd.DataFrame, hosts: int = 2) -> str:
    console = Console(width=80, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(predicted_table(rows))
        for line in sentences(rows, splits_of(profile(hosts), hosts), hosts):
            console.print(line)
    return capture.get()


@pytest.mark.parametrize("constraint", ["", "payload_bytes > 0 and backend == tcp and not point == {best}"])
@pytest.mark.parametrize("networks", [(FAR,), (CLOSE,), (CLOSE, CLOSE), (CLOSE, FAR, CLOSE)])
def test_the_front_is_that_of_every_split_that_satisfies_a_constraint(
    networks: tuple[Network, ...], constraint: str
) -> None:
    hosts = len(networks) + 1
    of, splits = profile(hosts), every(UNITS + 1, hosts)
    assert len(splits) == splits_of(of, hosts)
    free = predicted(of, ["tcp"], case(*networks))
    best = free["point"].iloc[0]
    said = Forecasts(of, case(*networks), "tcp").of(splits)
    points = np.array(["+".join(map(str, split)) for split in splits.tolist()])
    allowed = (points != best) & (splits[:, 0] < UNITS) if constraint else points != ""
    latency_s, ips = said["latency_s"][allowed], said["throughput_ips"][allowed]
    chosen = pareto(latency_s, ips)
    rows = predicted(of, ["tcp"], case(*networks), Where.parse(constraint.format(best=best)))
    ahead = rows[rows["chosen_by"] == FRONT]
    assert ahead["latency_s"].tolist() == pytest.approx(latency_s[chosen].tolist())
    assert ahead["throughput_ips"].tolist() == pytest.approx(ips[chosen].tolist())
    if constraint:
        assert ahead["feasible"].all()
        assert not rows.loc[rows["chosen_by"] == EDGE, "feasible"].item()
        first, *others = sentences(rows, len(splits), hosts)
        assert f"{EDGE}: does not satisfy the constraint." in others
        assert "of those that satisfy the constraint" in first
    else:
        assert tuple(rows.columns) == COLUMNS


@pytest.mark.parametrize(
    ("where", "most", "words"),
    [
        ("latency_s < 0", 100_000, "no split satisfies 'latency_s < 0'"),
        ("edge_rss_bytes < 1", 100_000, "no column 'edge_rss_bytes'"),
        ("latency_s < 1", 3, "leave --where out"),
    ],
)
def test_what_no_split_satisfies_is_one_line(
    monkeypatch: pytest.MonkeyPatch, where: str, most: int, words: str
) -> None:
    monkeypatch.setattr(predicted_module, "MOST_SPLITS", most)
    with pytest.raises(UserError, match=words):
        predicted(profile(), ["tcp"], case(FAR), Where.parse(where))


def test_each_rule_has_a_row_and_what_crosses_nothing_no_backend() -> None:
    rows = predicted(profile(), ["tcp"], case(FAR)).set_index("chosen_by")
    assert rows.index.tolist()[-len(RULES) :] == list(RULES)
    assert rows.loc[[SERVER, EDGE], ["point", "backend"]].to_numpy().tolist() == [
        ["0", "tcp"],
        [str(UNITS), "none"],
    ]
    assert rows.at["even", "point_name"] == "unit3"
    at_input = np.where(np.arange(UNITS + 1) == 0, 1e-3, np.nan)
    of = coded(
        profile(), **dict.fromkeys(("encode_s", "encode_least_s", "decode_s", "decode_least_s"), at_input)
    )
    rows = predicted(of, ["tcp"], case(FAR, codec="half"))
    assert set(rows["point"]) == {"0", str(UNITS)}, "the codec does not take what crosses elsewhere"
    assert not {"greedy", "even"} & set(rows["chosen_by"])


def test_what_dominates_and_how_far_a_split_is_behind() -> None:
    latency_s, ips = np.array([2.0, 1.0, 1.0, 3.0, 1.0]), np.array([5.0, 4.0, 5.0, 5.0, 5.0])
    assert pareto(latency_s, ips).tolist() == [2], "where one figure is the same the better other one is kept"
    assert pareto(np.empty(0), np.empty(0)).tolist() == []
    front = pd.DataFrame({"latency_s": [1.0, 2.0, 4.0], "throughput_ips": [1.0, 10.0, 20.0]})
    for split_s, split_ips, share in ((3.0, 8.0, (0.5, 0.2)), (2.0, 10.0, (0, 0)), (0.5, 0.1, (0, 0))):
        found = behind({"latency_s": split_s, "throughput_ips": split_ips}, front)
        assert found == pytest.approx(share)


@pytest.mark.parametrize("hosts", [2, 3])
def test_the_table_and_its_sentences(hosts: int, snapshot: SnapshotAssertion) -> None:
    rows = predicted(profile(hosts), ["tcp"], case(*(CLOSE, FAR)[: hosts - 1]))
    shown = text(rows, hosts)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown == snapshot


def test_of_a_long_front_some_splits_are_shown() -> None:
    rows = predicted(profile(), ["tcp"], case(CLOSE))
    first, others = rows[rows["chosen_by"] == FRONT].head(1), rows[rows["chosen_by"] != FRONT]
    shown = text(pd.concat([*(first.assign(point=f"{number:04}") for number in range(40)), others]))
    assert all(words in shown for words in ("12 of the front's 40", "0000", "0039"))


def test_the_answers_are_the_best_of_the_front_and_say_what_is_too_close_to_tell(
    snapshot: SnapshotAssertion,
) -> None:
    """Two where two splits are best, in latency and in throughput."""
    near, far = (predicted(profile(), ["tcp"], case(network)) for network in (CLOSE, FAR))
    for rows in (near, far):
        front = rows[rows["chosen_by"] == FRONT]
        for said, objective in zip(answers(rows), MEASURES, strict=False):
            ordered = front.sort_values(MEASURES[objective], ascending=objective == "latency")
            assert forms(ordered.iloc[0].to_dict())["order"] in said == predicted_advice(rows, objective)
    assert len(answers(far)) == 1 and len(answers(near)) == 2
    assert "too close to all on the server to tell" in answers(near)[1]
    assert "17 % more than all on the server" in answers(near.assign(throughput_error=0.01))[1]
    assert [predicted_advice(rows, objective) for rows in (near, far) for objective in MEASURES] == snapshot


WAY = {"delay_s": 0.05, "rate_bps": 5e6}
FAST = {"delay_s": 0.001, "rate_bps": 1e9}


def manifest(**sweep: Any) -> dict[str, Any]:
    both = {"far": WAY, "fast": FAST, "lossy": WAY | {"loss": 0.1}, "jittery": WAY | {"jitter_s": 0.04}}
    return {
        "sweep": {"edge_cpu": 1.0, **sweep},
        "models": {"net": {"graph_digest": "digest"}},
        "profiles": {name: {"edge_to_server": way, "server_to_edge": way} for name, way in both.items()},
        "networks": {"fast+far": ["fast", "far"], "far": ["far"]},
    }


def measured(points: list[str], netem: str = "far", *, off: float = 1.0, **changed: Any) -> pd.DataFrame:
    """Rows of a front, whose figures are the forecasts' times `off`."""
    splits = [[int(cut) for cut in point.split("+")] for point in points]
    links = [NEAR if name == "fast" else FAR for name in netem.split("+")]
    links = links * len(splits[0]) if len(links) == 1 else links
    said = foreseen(profile(1 + len(links)), splits, *links)
    unknown = ("latency_low_s", "latency_high_s", "throughput_low_ips", "throughput_high_ips")
    rows = pd.DataFrame(
        {
            "model": "net", "netem": netem, "batch_size": 1, **USUAL, "setup": "",
            "backend": ["none" if split[0] == UNITS else "tcp" for split in splits], "point": points,
            "point_name": "", "latency_s": said.latency_s * off, "throughput_ips": said.throughput_ips / off,
            **dict.fromkeys(unknown, np.nan),
        }
    )  # fmt: skip
    return rows.assign(**changed)


@pytest.mark.parametrize(
    ("points", "netem"), [(["0", "2", "6"], "far"), (["1+2", "0+6", "6+6"], "far"), (["1+3"], "fast+far")]
)
def test_what_was_measured_as_predicted_is_not_off(points: list[str], netem: str) -> None:
    frame = beside.compared(measured(points, netem), [profile(2 + points[0].count("+"))], [manifest()])
    assert tuple(frame.columns) == beside.COLUMNS
    assert frame["point"].tolist() == points
    assert frame[["latency_off", "throughput_off"]].to_numpy() == pytest.approx(0, abs=1e-12)
    assert set(frame["expected"]) == {"latency,throughput"}
    assert set(frame["beyond_bound"]) == {""}


BOTH = "latency,throughput"
SLOW = measured(["6"], off=1.5)
QUICK = measured(["0"]).transform(
    {"latency_s": lambda each: each - 0.07, "throughput_ips": lambda each: each * 1.1}
)


@pytest.mark.parametrize(
    ("rows", "sweep", "expected", "beyond"),
    [
        (SLOW, {}, [""], [""]),
        (
            SLOW.assign(latency_low_s=0.8 * SLOW["latency_s"], latency_high_s=1.2 * SLOW["latency_s"]),
            {},
            ["latency"],
            [""],
        ),
        (measured(["0", "2"], throughput_ips=[np.nan, 1.0]), {}, ["latency"] * 2, [""] * 2),
        # Jitter lets a request be quicker, and a wider tolerance is counted with.
        (measured(["0"]).assign(**QUICK), {}, ["throughput"], [BOTH]),
        (measured(["0"]).assign(netem="jittery", **QUICK), {}, ["throughput"], ["throughput"]),
        (measured(["0"]).assign(**QUICK), {"tolerance": 0.2}, ["throughput"], ["latency"]),
        # Points of engines are not compared with a profile in eager.
        (pd.concat([measured(["6"]), measured(["6"], engine="onnx", off=0.1)]), {}, [BOTH], [""]),
    ],
)
def test_what_is_expected_and_what_no_bound_allows(
    rows: pd.DataFrame, sweep: dict[str, Any], expected: list[str], beyond: list[str]
) -> None:
    frame = beside.compared(rows, [profile()], [manifest(**sweep)])
    assert frame["expected"].tolist() == expected
    assert frame["beyond_bound"].tolist() == beyond
    known = frame[["latency_s", "throughput_ips"]].notna().sum().sum()
    assert f" of {known} figures" in " ".join(beside.sentences(frame))


def test_better_than_the_bound_is_a_fault(snapshot: SnapshotAssertion) -> None:
    frame = beside.compared(measured(["0", "2", "4", "5", "6"], off=0.7), [profile()], [manifest()])
    assert set(frame["beyond_bound"]) == {BOTH}
    assert list(beside.faults(frame)) == snapshot
    assert not list(beside.faults(beside.compared(measured(["2"]), [profile()], [manifest()])))


@pytest.mark.parametrize(
    ("changed", "netem"),
    [
        ({}, "lossy"),
        ({"backend": "rpc"}, "far"),
        ({"batch_size": 8}, "far"),
        ({"codec": "int8"}, "far"),
        ({"latency_s": np.nan, "throughput_ips": np.nan}, "far"),
    ],
)
def test_what_no_forecast_is_for_has_no_row(changed: dict[str, Any], netem: str) -> None:
    rows = measured(["2"]).assign(netem=netem, **changed)
    assert beside.compared(rows, [profile()], [manifest()]).empty
    assert not list(beside.sentences(beside.compared(rows, [profile()], [manifest()])))


def test_a_profile_whose_units_take_no_time_is_compared_with_nothing() -> None:
    frame = beside.compared(measured(["0", "2", "6"]), [NOTHING], [manifest()])
    assert "6" not in set(frame["point"])
    assert all(line for line in beside.sentences(frame))
    assert np.isnan(beside.Errors.of(np.array([np.nan]))).all()


@pytest.mark.parametrize(
    "other",
    [{"models": {}}, {"models": {"net": {"graph_digest": "x"}}}, {"simulated": True}, {"sweep": {"edge_cpu": 0.25}}],
)  # fmt: skip
def test_a_profile_of_something_else_is_left_out_and_that_is_said(
    other: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    assert beside.unfit(profile(), [manifest()]) == ""
    another = manifest() | other
    assert beside.compared(measured(["2"]), [profile()], [another]).empty
    assert list(beside.unused([profile()], [another])) == snapshot
    engines = [manifest(engines=["eager", *others]) for others in ([], ["onnx", "compile"])]
    none, (line,) = (list(beside.unused([profile()], [each])) for each in engines)
    assert not none and "onnx, compile are not compared" in line


def test_errors_are_said_for_each_condition(snapshot: SnapshotAssertion) -> None:
    rows = pd.concat([measured(["0", "2", "6"]), measured(["2", "6"], "fast", off=1.5)])
    assert list(beside.sentences(beside.compared(rows, [profile()], [manifest()]))) == snapshot


def test_profiles_in_a_runs_folder_are_found_and_links_are_not_followed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert list(beside.in_run(run)) == []
    (run / "profiles" / "one").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (run / "profiles" / "two").symlink_to(tmp_path / "elsewhere")
    assert list(beside.in_run(run)) == [run / "profiles" / "one"]
