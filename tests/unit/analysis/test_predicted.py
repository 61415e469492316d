"""The predicted front beside what simpler rules choose: rows, table, sentences, figure."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.where import Where
from pareto.analysis.prediction import predicted as predicted_module
from pareto.analysis.prediction.choose import pareto
from pareto.analysis.prediction.network import Network
from pareto.analysis.prediction.predicted import (
    COLUMNS,
    FRONT,
    RULES,
    Case,
    _all_splits,
    at,
    behind,
    predicted,
    splits_of,
)
from pareto.analysis.tables.predicted import advice, answers, predicted_table, sentences
from pareto.analysis.wording import EDGE, SERVER, order
from pareto.protocol.errors import UserError
from tests.unit.analysis.test_forecast import FAR, UNITS, profile

NEAR = Network(0.0005, 1e9, 0.0005, 1e9)


def case(*networks: Network) -> Case:
    return Case("a network", networks, networks)


def text(rows: pd.DataFrame, hosts: int = 2) -> str:
    console = Console(width=80, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(predicted_table(rows))
        for line in sentences(rows, splits_of(profile(hosts), hosts), hosts):
            console.print(line)
    return capture.get()


@pytest.mark.parametrize("networks", [(FAR,), (NEAR,), (NEAR, NEAR), (NEAR, FAR, NEAR)])
def test_the_front_is_that_of_every_split_and_backend(networks: tuple[Network, ...]) -> None:
    of, hosts = profile(len(networks) + 1), len(networks) + 1
    splits = np.array(list(combinations_with_replacement(range(UNITS + 1), hosts - 1)))
    assert len(splits) == splits_of(of, hosts)
    every = at(of, splits, ["tcp"], case(*networks))
    best = every.iloc[pareto(every["latency_s"].to_numpy(), every["throughput_ips"].to_numpy())]
    rows = predicted(of, ["tcp"], case(*networks))
    front = rows[rows["chosen_by"] == FRONT]
    assert front["latency_s"].tolist() == pytest.approx(best["latency_s"].tolist())
    assert front["throughput_ips"].tolist() == pytest.approx(best["throughput_ips"].tolist())
    assert tuple(rows.columns) == COLUMNS


@pytest.mark.parametrize("networks", [(FAR,), (NEAR, FAR)])
def test_a_constraint_leaves_the_best_of_what_satisfies_it(networks: tuple[Network, ...]) -> None:
    of = profile(len(networks) + 1)
    free = predicted(of, ["tcp"], case(*networks))
    best = free[free["chosen_by"] == FRONT].iloc[0]
    crossing = Where.parse(f"payload_bytes > 0 and backend == tcp and not point == {best['point']}")
    rows = predicted(of, ["tcp"], case(*networks), crossing)
    front = rows[rows["chosen_by"] == FRONT]
    assert front["feasible"].all()
    assert (front["payload_bytes"] > 0).all()
    assert set(front["backend"]) == {"tcp"}
    every = at(of, _all_splits(of, len(networks) + 1), ["tcp"], case(*networks))
    allowed = every[(every["payload_bytes"] > 0) & (every["point"] != best["point"])]
    assert front["latency_s"].min() == pytest.approx(allowed["latency_s"].min())
    assert front["throughput_ips"].max() == pytest.approx(allowed["throughput_ips"].max())
    assert not rows.loc[rows["chosen_by"] == EDGE, "feasible"].item()
    said = list(sentences(rows, splits_of(of, len(networks) + 1), len(networks) + 1))
    assert f"{EDGE}: does not satisfy the constraint." in said
    assert "of those that satisfy the constraint" in said[0]


def test_what_no_split_satisfies_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no split satisfies 'latency_s < 0'"):
        predicted(profile(), ["tcp"], case(FAR), Where.parse("latency_s < 0"))
    with pytest.raises(UserError, match="no column 'edge_rss_bytes'"):
        predicted(profile(), ["tcp"], case(FAR), Where.parse("edge_rss_bytes < 1"))
    monkeypatch.setattr(predicted_module, "MOST_SPLITS", 3)
    with pytest.raises(UserError, match="leave --where out"):
        predicted(profile(), ["tcp"], case(FAR), Where.parse("latency_s < 1"))


def test_each_rule_has_a_row_and_what_crosses_nothing_no_backend() -> None:
    rows = predicted(profile(), ["tcp"], case(FAR)).set_index("chosen_by")
    assert rows.index.tolist()[-len(RULES) :] == list(RULES)
    assert rows.at[SERVER, "point"] == "0"
    assert rows.at[EDGE, "point"] == str(UNITS)
    assert rows.at[EDGE, "backend"] == "none"
    assert rows.at[SERVER, "backend"] == "tcp"
    assert rows.at["even", "point_name"] == "unit3"


def test_a_split_is_behind_one_that_dominates_it() -> None:
    front = pd.DataFrame({"latency_s": [1.0, 2.0, 4.0], "throughput_ips": [1.0, 10.0, 20.0]})
    assert behind({"latency_s": 3.0, "throughput_ips": 8.0}, front) == pytest.approx((0.5, 0.2))
    assert behind({"latency_s": 2.0, "throughput_ips": 10.0}, front) == (0, 0)
    assert behind({"latency_s": 0.5, "throughput_ips": 0.1}, front) == (0, 0)


@pytest.mark.parametrize("hosts", [2, 3])
def test_the_table_and_its_sentences(hosts: int, snapshot: SnapshotAssertion) -> None:
    rows = predicted(profile(hosts), ["tcp"], case(*(NEAR, FAR)[: hosts - 1]))
    shown = text(rows, hosts)
    assert max(map(len, shown.splitlines())) <= 80
    assert shown == snapshot


def test_of_a_long_front_some_splits_are_shown() -> None:
    rows = predicted(profile(), ["tcp"], case(NEAR))
    first = rows[rows["chosen_by"] == FRONT].head(1)
    long = pd.concat([*[first] * 40, rows[rows["chosen_by"] != FRONT]], ignore_index=True)
    long.loc[:39, "point"] = [f"{number:04}" for number in range(40)]
    shown = text(long)
    assert "12 of the front's 40" in shown
    assert "0000" in shown
    assert "0039" in shown


def test_the_answers_are_two_where_two_splits_are_best_and_say_what_is_too_close_to_tell() -> None:
    near, far = (predicted(profile(), ["tcp"], case(network)) for network in (NEAR, FAR))
    (_,), (of_latency, of_throughput) = answers(far), answers(near)
    assert " ms " in of_latency and "images/s" in of_throughput
    assert "too close to all on the server to tell" in of_throughput
    assert "17 % more than all on the server" in answers(near.assign(throughput_error=0.01))[1]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("network", [FAR, NEAR])
def test_the_advice_is_the_best_of_the_front(
    network: Network, objective: str, snapshot: SnapshotAssertion
) -> None:
    rows = predicted(profile(), ["tcp"], case(network))
    front = rows[rows["chosen_by"] == FRONT]
    said = advice(rows, objective)
    best = front.sort_values("latency_s" if objective == "latency" else "throughput_ips")
    best = best.iloc[0 if objective == "latency" else -1]
    assert order(best.to_dict()) in said
    assert said == snapshot
