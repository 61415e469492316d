"""A trial of which one figure can be trusted counts for that one, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.findings import find
from pareto.analysis.fronts.front import front as front_of
from pareto.analysis.runs import standing
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import pooled
from pareto.analysis.schema import LATENCY_ONLY, THROUGHPUT_ONLY, TRIALS
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write

LAST = len(PAYLOAD_KIB) - 1
LATENCY_ALONE = {"status": LATENCY_ONLY, "reason": "not a steady state", "throughput_ips": 1e9}
THROUGHPUT_ALONE = {"status": THROUGHPUT_ONLY, "reason": "something else ran there", "latency_s": 1e-9}


def told(
    folder: Path, changes: dict[str, Any], where: Callable[[dict[str, Any]], bool], **options: Any
) -> pd.DataFrame:
    """The trials of a run in which some are changed."""
    return load(write(folder, [row | changes if where(row) else row for row in trials(**options)]))


def front(trials: pd.DataFrame, objectives: Sequence[str] = ("latency", "throughput")) -> pd.DataFrame:
    return front_of(trials, objectives, resamples=50)


def of(frame: pd.DataFrame, point: int, backend: str = "tcp") -> pd.Series:
    return frame[(frame["point"] == str(point)) & frame["backend"].isin([backend, "none"])].iloc[0]


@pytest.mark.parametrize(
    ("alone", "kept", "lost"),
    [(LATENCY_ALONE, "latency_s", "throughput_ips"), (THROUGHPUT_ALONE, "throughput_ips", "latency_s")],
)
def test_one_figure_counts_and_the_other_is_never_averaged_in(
    tmp_path: Path, alone: dict[str, Any], kept: str, lost: str
) -> None:
    def which(row: dict[str, Any]) -> bool:
        return bool(row["backend"] == "tcp" and row["point"] == 3)

    def once(row: dict[str, Any]) -> bool:
        return which(row) and row["round"] == 0

    made = {"plain": {}, "some": alone, "less": {"status": "invalid"}}
    plain, some, less = (of(front(told(tmp_path / name, each, once)), 3) for name, each in made.items())
    assert (some["rounds"], some["excluded"], some["left_out"]) == (2, 1, 0)
    assert some[kept] == plain[kept], "of three rounds"
    assert some[lost] == less[lost], "of two rounds"
    row = of(front(told(tmp_path / "every", alone, which)), 3)
    assert row[kept] == plain[kept]
    assert np.isnan(row[lost])
    assert (row["rounds"], row["excluded"]) == (3, 0)
    assert not row["on_front"], "a front of both takes what has both"


def test_a_front_of_latency_alone_still_counts_it(tmp_path: Path) -> None:
    quick = {**LATENCY_ALONE, "latency_s": 0.001}
    run = told(tmp_path, quick, lambda row: row["point"] == 3 and row["backend"] == "tcp")
    alone = front(run, ["latency", "payload"])
    assert of(alone, 3)["on_front"]
    assert not of(front(run), 3)["on_front"]


def test_the_lowest_latency_is_the_answer_though_its_throughput_is_not_known(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    best = of(front(load(write(tmp_path / "plain", trials()))), LAST)

    def which(row: dict[str, Any]) -> bool:
        return bool(row["point"] == 8 and row["backend"] == "tcp")

    quick = {**LATENCY_ALONE, "latency_s": best["latency_s"] / 2, "network_s": 0.001}
    told(tmp_path / "run", quick, which)
    findings = find(tmp_path / "run")
    assert "cut at 8 " in findings.answers[0]
    assert findings.answers == snapshot(name="answers")
    assert [note for note in findings.notes if "latency" in note] == snapshot(name="notes")


BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "a throughput by 2 %": ({"throughput_ips": 102.0}, LATENCY_ONLY),
    "one that alone counted": ({"throughput_ips": 102.0, "status": THROUGHPUT_ONLY}, "invalid"),
    "a latency by 0.5 %": ({"latency_s": 0.0995}, "invalid"),
    "a latency of a link that was faster": ({"latency_s": 0.0995, "probed_latency_bound_s": 0.099}, "ok"),
    "a throughput of one": ({"throughput_ips": 102.0, "probed_throughput_bound_ips": 103.0}, "ok"),
    "both of one that was slower": (
        {"probed_latency_bound_s": 0.11, "probed_throughput_bound_ips": 95.0, "latency_s": 0.1, "throughput_ips": 100},
        "ok",
    ),
    "the last digit": ({"latency_s": 0.09999999, "throughput_ips": 100.000001}, "ok"),
    "no bound": ({"latency_bound_s": "", "throughput_bound_ips": "", "throughput_ips": 1e6}, "ok"),
    "no latency": ({"latency_s": "", "status": THROUGHPUT_ONLY}, THROUGHPUT_ONLY),
    "what is not trusted anyway": ({"latency_s": 1e-6, "status": "invalid"}, "invalid"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "status"), BEYOND.values(), ids=BEYOND)
def test_nothing_beyond_its_bound_counts(
    tmp_path: Path, changes: dict[str, Any], status: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Though a run of an older version wrote `ok`."""
    base = {"latency_s": 0.2, "latency_bound_s": 0.1, "throughput_ips": 90, "throughput_bound_ips": 100}
    run = load(write(tmp_path, [row | base | changes for row in trials(rounds=1)], beyond=True))
    assert set(run["status"]) == {status}
    assert ("have a figure beyond" in caplog.text) == (status != changes.get("status", "ok"))
    for figure, share in (
        ("latency", run["latency_bound_s"] / run["latency_s"]),
        ("throughput", run["throughput_ips"] / run["throughput_bound_ips"]),
    ):
        counted = share[standing.stands(run, figure)].dropna()
        assert (counted <= 1).all()


def test_where_nothing_crosses_each_figure_is_the_mean_of_what_stands(tmp_path: Path) -> None:
    rows = trials(rounds=1)
    first, second = (row for row in rows if not row["payload_bytes"])
    run = told(
        tmp_path, LATENCY_ALONE, lambda row: row["point"] == LAST and row["backend"] == "tcp", rounds=1
    )
    one = of(pooled(run), LAST)
    assert one["latency_s"] == pytest.approx((first["latency_s"] + second["latency_s"]) / 2)
    assert one["throughput_ips"] == second["throughput_ips"]
    assert (one["status"], one["controls"], one["controls_valid"]) == ("ok", 2, 2)


def test_energy_is_of_what_has_both(tmp_path: Path) -> None:
    """A cell without one of them has no say in whose energy counts."""
    rows = with_energy(trials())
    for row in rows:
        row |= {"status": LATENCY_ONLY} if row["point"] == 3 else {}
    made = front(load(write(tmp_path, rows)))
    assert of(made, 4)["energy_of"] == "edge + server"
    assert np.isnan(of(made, 3)["energy_j"])


def test_every_figure_of_a_trial_is_of_one_phase_or_both() -> None:
    """A new column must be looked at: which phase is it of?"""
    known = {name for columns in standing.UNTRUSTED.values() for name in columns}
    figures = {name for name in TRIALS.columns if name.endswith(("_s", "_ips", "_j")) and "bound" not in name}
    assert figures - known == {"rtt_s", "trace_from_s", "trace_to_s", "wall_s", "tcp_rtt_s", "tcp_min_rtt_s"}


def test_trials_that_were_measured_again_are_listed_with_what_had_spoilt_them(tmp_path: Path) -> None:
    again = [{"trial": f"m-k{number:02}", "reason": "others", "status": "invalid"} for number in range(22)]
    write(tmp_path, trials(rounds=1)[:2], sessions=[{"again": again[:20]}, {"again": again[20:]}])
    (line,) = (note for note in find([tmp_path]).notes if "measured again" in note)
    assert line.count("others") == 20 and "m-k00: others; " in line
    assert line.endswith("and 2 more, in manifest.json")
