"""What does not count: what a search struck off, and a figure of a trial that cannot be trusted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.advise import advise
from pareto.analysis.advice.answers import answers
from pareto.analysis.advice.observed import WORKLOAD
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.comparing.sentences import verdicts
from pareto.analysis.figures.drawing import conditions
from pareto.analysis.findings import Findings, find
from pareto.analysis.fronts.cells import with_struck
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs import reading, standing
from pareto.analysis.runs.load import Run, joined, load
from pareto.analysis.runs.points import CELL
from pareto.analysis.runs.standing import struck_off
from pareto.analysis.runs.treatments import pooled
from pareto.analysis.schema import LATENCY_ONLY, STRUCK, THROUGHPUT_ONLY, TRIALS
from pareto.protocol.errors import UserError
from tests.unit import simulated_network as world
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write

ROUNDS = 7


def is_lucky(row: dict[str, Any]) -> bool:
    """Whether a trial is of the cell that was struck off by its rounds."""
    return (row["point"], row["backend"]) == (0, "tcp")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which one cell was struck off after a lucky first round, and another has no trial at all."""
    rows = [row for row in trials(rounds=ROUNDS) if not is_lucky(row) or row["round"] == 1]
    luck = {"latency_s": 1e-6, "throughput_ips": 1e6}
    for row in filter(is_lucky, rows):
        row |= luck
    folder = write(tmp_path_factory.mktemp("struck") / "run", rows)
    (lucky,) = ({name: row[name] for name in CELL if name in row} for row in filter(is_lucky, rows))
    lucky |= {"run": rows[0]["run"], "point_name": "p", "round": 1, "payload_bytes": 5, **USUAL}
    lucky |= {"by_point": "1", "by_backend": "rpc", "how": "rounds", **luck, "probability": 0.01}
    physics = {"point": "99", "how": "physics", "latency_s": 2.0, "throughput_ips": 0.5, "probability": 1e-9}
    struck = pd.DataFrame([lucky, lucky | physics])
    struck.reindex(columns=STRUCK.columns).to_csv(folder / STRUCK.file, index=False)
    return folder


@pytest.fixture
def run(usual: Path, tmp_path: Path) -> Path:
    """The same in a folder that may be changed."""
    return shutil.copytree(usual, tmp_path / "run")


@pytest.fixture(scope="module")
def found(usual: Path) -> Findings:
    return find([usual])


def test_what_was_struck_off_is_on_no_front_however_good_its_few_trials_are(
    usual: Path, found: Findings
) -> None:
    alone, rows = front(load([usual])), found.front
    assert alone["rounds"].eq(ROUNDS).all()
    assert alone["latency_s"].min() > 1e-6
    struck = rows[rows["settled"] != "measured"].set_index("settled")
    assert sorted(struck.index) == ["physics", "rounds"]
    assert not struck[["on_front", "on_backend_front", "on_energy_front"]].any(axis=None)
    assert len(rows) == len(alone) + 2 == len(rows.drop_duplicates(CELL))
    assert struck.loc["rounds", ["rounds", "latency_s"]].tolist() == [1, 1e-6]
    bounds = ["rounds", "least_latency_s", "most_throughput_ips"]
    assert struck.loc["physics", bounds].tolist() == [0, 2.0, 0.5]


def test_a_run_without_a_search_is_as_it_was(run: Path, usual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = joined([usual]).struck
    monkeypatch.setattr(reading, "LARGE", 0)
    pd.testing.assert_frame_equal(joined([usual]).struck, searched, obj="a large search")
    (run / STRUCK.file).unlink()
    known = joined([run])
    assert "settled" not in known.trials
    assert "settled" not in with_struck(front(known.trials), known.trials, known.struck)
    assert known.struck.empty


def test_page_and_captions_list_them_and_do_not_take_them_for_what_failed(
    found: Findings, tmp_path: Path
) -> None:
    from pareto.analysis.page.document import html

    page, rows = html(found), found.front
    caption, medians = conditions(rows), f"Medians over {ROUNDS} rounds"
    for words in ("What the search struck off", "1e-09", medians, "struck off 2 more"):
        assert words in page
    assert page.count("<td>rounds</td>") == page.count("<td>physics</td>") == 2, "how, and each point's row"
    assert medians in caption and f"2 of {len(rows)} points were struck off" in caption
    assert struck_off(rows).sum() == 2
    assert "struck off" not in conditions(rows.drop(columns="settled"))


@pytest.mark.parametrize(("is_first", "wrongly"), [(True, False), (False, True)])
def test_a_run_with_a_search_is_compared_where_both_measured(
    usual: Path, tmp_path: Path, is_first: bool, wrongly: bool
) -> None:
    rows = [row | {"run": "every"} for row in trials(rounds=ROUNDS, seed=2)]
    for row in filter(is_lucky, rows if wrongly else ()):
        row["latency_s"] = 1e-6
    every = write(tmp_path / "every", rows)
    made = compare(usual, every) if is_first else compare(every, usual)
    left = made.only_second if is_first else made.only_first
    assert [line for line in left if "struck off by the other run's search" in line]
    name, other = "AB" if is_first else "BA"
    (note,) = [note for note in made.notes if "struck off" in note]
    assert note.startswith(f"{name}: its search struck off 2 cells")
    for words in ("tcp 0 (", f"on the front of {other}") if wrongly else ("none of them on the front",):
        assert words in note
    assert wrongly or not made.differences["latency_significant"].any()


def test_backends_without_a_pair_are_no_fault_of_the_trials(
    found: Findings, snapshot: SnapshotAssertion
) -> None:
    none = found.paired.assign(pairs=0, throughput_pairs=0)
    assert list(verdicts(none, found.struck)) == snapshot
    assert list(verdicts(none)) != list(verdicts(none, found.struck))


@pytest.mark.parametrize("engines", [("eager",), ("eager", "onnx")], ids=["one engine", "two"])
def test_a_place_that_was_struck_off_was_compared_with(tmp_path: Path, engines: tuple[str, ...]) -> None:
    """The whole model on the server was not measured, and is not said to be missing."""
    rows = [
        {**row, "engine": name} for row in trials(rounds=ROUNDS) if row["point"] in (7, 8) for name in engines
    ]
    known = joined([write(tmp_path / "cuts", rows)])
    off = known.trials.head(1)[["netem", *WORKLOAD]].assign(
        point="0", backend="tcp", payload_bytes=150_000, how="rounds", engine=engines[-1]
    )
    for struck, missing in ((None, True), (off, False)):
        first = answers(known if struck is None else replace(known, struck=struck))[0]
        assert ("all on the server" in first.partition("not measured")[0]) == missing
        assert "all on the edge" in first


def test_advice_for_the_measured_network_counts_what_is_left(usual: Path) -> None:
    """The lucky cell is no answer where it was struck off."""
    known, network = joined([usual]), Network(0.2, 5e6)
    known = replace(known, runs=[Run(usual, world.manifest({"200ms-5mbit": network}))])
    ranked = advise(known, network).ranking
    assert ranked.profile == "200ms-5mbit"
    assert ranked.best["latency_s"] > 1e-5
    (answer,) = answers(known)
    assert ranked.best["order"] in answer


@pytest.mark.parametrize("fault", ["nonsense", "point,how\n\x00,\x00\n"])
def test_a_file_that_is_no_such_table_is_one_line(run: Path, fault: str) -> None:
    (run / STRUCK.file).write_text(fault + "\n")
    with pytest.raises(UserError):
        load([run])


def test_the_front_of_a_search_compares_two_cells_by_the_rounds_that_both_have(tmp_path: Path) -> None:
    """The machine becomes slower by half; two equal cells, of which one joined late and has those rounds alone."""
    mine = [row for row in trials(rounds=ROUNDS, noise=0) if row["point"] == 0]
    mine = [row for row in mine if row["round"] > 3 or row["backend"] == "rpc"]
    for row in mine:
        row["latency_s"], row["throughput_ips"] = 1 + 0.5 * (row["round"] > 3), 9 - row["round"]
    folder = write(tmp_path / "run", mine)
    every = front(load([folder]))
    pd.DataFrame(columns=STRUCK.columns).to_csv(folder / STRUCK.file, index=False)
    for rows, expected in ((every, 1), (front(load([folder])), 2)):
        assert rows["on_front"].sum() == expected
        assert sorted(rows["rounds"]) == [ROUNDS - 4, ROUNDS]
        assert rows["latency_s"].nunique() == 2, "each has the median of its own rounds"


LAST = len(PAYLOAD_KIB) - 1
LATENCY_ALONE = {"status": LATENCY_ONLY, "reason": "not a steady state", "throughput_ips": 1e9}
THROUGHPUT_ALONE = {"status": THROUGHPUT_ONLY, "reason": "something else ran there", "latency_s": 1e-9}


def changed(
    folder: Path, changes: dict[str, Any], where: Callable[[dict[str, Any]], bool], **options: Any
) -> pd.DataFrame:
    """The trials of a run in which some are changed."""
    return load(write(folder, [row | changes if where(row) else row for row in trials(**options)]))


def fronted(trials: pd.DataFrame, objectives: Sequence[str] = ("latency", "throughput")) -> pd.DataFrame:
    return front(trials, objectives)


def row_of(frame: pd.DataFrame, point: int, backend: str = "tcp") -> pd.Series:
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
    plain, some, less = (
        row_of(fronted(changed(tmp_path / name, each, once)), 3) for name, each in made.items()
    )
    assert (some["rounds"], some["excluded"], some["left_out"]) == (2, 1, 0)
    assert some[kept] == plain[kept], "of three rounds"
    assert some[lost] == less[lost], "of two rounds"
    row = row_of(fronted(changed(tmp_path / "every", alone, which)), 3)
    assert row[kept] == plain[kept]
    assert np.isnan(row[lost])
    assert (row["rounds"], row["excluded"]) == (3, 0)
    assert not row["on_front"], "a front of both takes what has both"


def test_a_front_of_latency_alone_still_counts_it(tmp_path: Path) -> None:
    quick = {**LATENCY_ALONE, "latency_s": 0.001}
    run = changed(tmp_path, quick, lambda row: row["point"] == 3 and row["backend"] == "tcp")
    alone = fronted(run, ["latency", "payload"])
    assert row_of(alone, 3)["on_front"]
    assert not row_of(fronted(run), 3)["on_front"]


def test_the_lowest_latency_is_the_answer_though_its_throughput_is_not_known(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    best = row_of(fronted(load(write(tmp_path / "plain", trials()))), LAST)

    def which(row: dict[str, Any]) -> bool:
        return bool(row["point"] == 8 and row["backend"] == "tcp")

    quick = {**LATENCY_ALONE, "latency_s": best["latency_s"] / 2, "network_s": 0.001}
    changed(tmp_path / "run", quick, which)
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
    run = changed(
        tmp_path, LATENCY_ALONE, lambda row: row["point"] == LAST and row["backend"] == "tcp", rounds=1
    )
    one = row_of(pooled(run), LAST)
    assert one["latency_s"] == pytest.approx((first["latency_s"] + second["latency_s"]) / 2)
    assert one["throughput_ips"] == second["throughput_ips"]
    assert (one["status"], one["controls"], one["controls_valid"]) == ("ok", 2, 2)


def test_energy_is_of_what_has_both(tmp_path: Path) -> None:
    """A cell without one of them has no say in whose energy counts."""
    rows = with_energy(trials())
    for row in rows:
        row |= {"status": LATENCY_ONLY} if row["point"] == 3 else {}
    made = fronted(load(write(tmp_path, rows)))
    assert row_of(made, 4)["energy_of"] == "edge + server"
    assert np.isnan(row_of(made, 3)["energy_j"])


def test_every_figure_of_a_trial_is_of_one_phase_or_both() -> None:
    """A new column must be looked at: which phase is it of?"""
    known = {name for columns in standing.UNTRUSTED.values() for name in columns}
    columns = [*TRIALS.columns]
    known.update(
        columns[columns.index("offered_ips") : columns.index("independent_requests")]
    )  # empty if it is not ok
    figures = {name for name in TRIALS.columns if name.endswith(("_s", "_ips", "_j")) and "bound" not in name}
    assert figures - known == {"rtt_s", "trace_from_s", "trace_to_s", "wall_s", "tcp_rtt_s", "tcp_min_rtt_s"}


def test_trials_that_were_measured_again_are_listed_with_what_had_spoilt_them(tmp_path: Path) -> None:
    again = [{"trial": f"m-k{number:02}", "reason": "others", "status": "invalid"} for number in range(22)]
    write(tmp_path, trials(rounds=1)[:2], sessions=[{"again": again[:20]}, {"again": again[20:]}])
    (line,) = (note for note in find([tmp_path]).notes if "measured again" in note)
    assert line.count("others") == 20 and "m-k00: others; " in line
    assert line.endswith("and 2 more, in manifest.json")
