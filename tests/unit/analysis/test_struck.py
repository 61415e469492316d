"""What a search struck off: it competes with nothing, and stands beside the front as what it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.advise import advise, answers
from pareto.analysis.advice.observed import WORKLOAD
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.comparing.sentences import verdicts
from pareto.analysis.figures.drawing import conditions
from pareto.analysis.findings import Findings, find, with_struck
from pareto.analysis.fronts.front import front
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import joined, load
from pareto.analysis.runs.points import CELL, struck_off
from pareto.analysis.schema import STRUCK
from pareto.protocol.errors import UserError
from tests.unit.example_run import trials, write
from tests.unit.gating import gating

ROUNDS = 7


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which one cell was struck off after a lucky first round, and another has no trial at all."""
    rows = trials(rounds=ROUNDS)
    first = next(row for row in rows if row["payload_bytes"] and row["backend"] == "tcp")
    lucky = {name: first[name] for name in CELL if name in first}
    is_lucky = [all(row[name] == value for name, value in lucky.items()) for row in rows]
    kept = [row for row, one in zip(rows, is_lucky, strict=True) if not one or row["round"] == 1]
    for row in kept:
        if all(row[name] == value for name, value in lucky.items()):
            row |= {"latency_s": 1e-6, "throughput_ips": 1e6}
    folder = write(tmp_path_factory.mktemp("struck") / "run", kept)
    usual = {
        **lucky,
        "run": first["run"],
        "point_name": "p",
        "round": 1,
        "payload_bytes": 5,
        **USUAL,
    }
    usual |= {"by_point": "1", "by_backend": "rpc"}
    by_rounds = {"how": "rounds", "latency_s": 1e-6, "throughput_ips": 1e6, "probability": 0.01}
    physics = {"point": "99", "how": "physics", "latency_s": 2.0, "throughput_ips": 0.5, "probability": 1e-9}
    struck = pd.DataFrame([usual | by_rounds, usual | physics])
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
    run: Path, found: Findings
) -> None:
    alone = front(load([run]))
    assert alone["rounds"].eq(ROUNDS).all()
    assert alone["latency_s"].min() > 1e-6
    rows = found.front
    struck = rows[rows["settled"] != "measured"]
    assert struck["settled"].value_counts().to_dict() == {"rounds": 1, "physics": 1}
    assert not struck[["on_front", "on_backend_front", "on_energy_front"]].any(axis=None)
    assert len(rows) == len(alone) + 2
    by_rounds, physics = (struck[struck["settled"] == how].iloc[0] for how in ("rounds", "physics"))
    assert (by_rounds["rounds"], by_rounds["latency_s"]) == (1, 1e-6)
    assert (physics["rounds"], physics["least_latency_s"], physics["most_throughput_ips"]) == (0, 2.0, 0.5)
    assert rows.drop_duplicates(CELL).shape == rows.shape


def test_a_run_without_a_search_is_as_it_was(run: Path) -> None:
    (run / STRUCK.file).unlink()
    known = joined([run])
    assert "settled" not in known.trials
    assert "settled" not in with_struck(front(known.trials, resamples=1), known.trials, known.struck)
    assert known.struck.empty


def test_the_page_lists_them(found: Findings) -> None:
    from pareto.analysis.page.document import html

    page = html(found)
    assert "What the search struck off" in page
    assert "1e-09" in page
    assert page.count("<td>rounds</td>") == page.count("<td>physics</td>") == 2, "how, and each point's row"
    assert f"Medians over {ROUNDS} rounds" in page, "what has fewer was struck off"
    assert "struck off 2 more" in page


def test_a_caption_does_not_take_what_was_struck_off_for_what_failed(found: Findings) -> None:
    rows = found.front
    text = conditions(rows)
    assert f"Medians over {ROUNDS} rounds" in text
    assert f"2 of {len(rows)} points were struck off" in text
    assert struck_off(rows).sum() == 2
    assert "struck off" not in conditions(rows.drop(columns="settled"))


@pytest.mark.parametrize("is_first", gating([True, False], True))
def test_a_run_with_a_search_is_compared_where_both_measured(
    run: Path, tmp_path: Path, is_first: bool
) -> None:
    every = write(tmp_path / "every", [row | {"run": "every"} for row in trials(rounds=ROUNDS, seed=2)])
    made = compare(run, every) if is_first else compare(every, run)
    left = made.only_second if is_first else made.only_first
    assert [line for line in left if "struck off by the other run's search" in line]
    name = "A" if is_first else "B"
    (note,) = [note for note in made.notes if "struck off" in note]
    assert note.startswith(f"{name}: its search struck off 2 cells")
    assert "none of them on the front" in note
    assert not made.differences["latency_significant"].any()


def test_a_cell_that_was_struck_off_wrongly_is_named(run: Path, tmp_path: Path) -> None:
    rows = [row | {"run": "every"} for row in trials(rounds=ROUNDS, seed=2)]
    lost = next(row for row in rows if row["payload_bytes"] and row["backend"] == "tcp")
    for row in rows:
        if (row["point"], row["backend"]) == (lost["point"], lost["backend"]):
            row["latency_s"] = 1e-6
    (note,) = [note for note in compare(run, write(tmp_path / "every", rows)).notes if "struck off" in note]
    assert f"tcp {lost['point']} (" in note
    assert "on the front of B" in note


def test_backends_without_a_pair_are_no_fault_of_the_trials(
    found: Findings, snapshot: SnapshotAssertion
) -> None:
    none = found.paired.assign(pairs=0, throughput_pairs=0)
    assert list(verdicts(none, found.struck)) == snapshot
    assert list(verdicts(none)) != list(verdicts(none, found.struck))


def test_a_place_that_was_struck_off_was_compared_with(run: Path) -> None:
    """The whole model on the server was not measured, and is not said to be missing."""
    rows = [row for row in trials(rounds=ROUNDS) if row["point"] in (7, 8)]
    folder = write(run.parent / "cuts", rows)
    known = joined([folder])
    (lacking,) = answers(known.trials, known.stages, [])
    assert "all on the server" in lacking.partition("not measured")[0]
    usual = pd.read_csv(run / STRUCK.file).head(1)
    off = usual.assign(point="0", backend="tcp", payload_bytes=150_000, setup="", **USUAL)
    off = off.assign(**{name: known.trials[name].iloc[0] for name in WORKLOAD})
    (settled,) = answers(known.trials, known.stages, [], struck_off=off)
    assert "all on the server" not in settled
    assert "all on the edge was not measured" in settled


def test_a_place_that_was_struck_off_of_one_engine_was_compared_with(run: Path) -> None:
    rows = [row for row in trials(rounds=ROUNDS) if row["point"] in (7, 8)]
    rows += [{**row, "engine": "onnx"} for row in rows]
    known = joined([write(run.parent / "cuts", rows)])
    usual = pd.read_csv(run / STRUCK.file).head(1)
    off = usual.assign(**{name: known.trials[name].iloc[0] for name in WORKLOAD})
    off = off.assign(point="0", backend="tcp", payload_bytes=150_000, engine="onnx")
    for struck, count in ((None, 1), (off, 0)):
        first, _ = answers(known.trials, known.stages, [], struck_off=struck)
        assert first.count("all on the server") == count


def test_advice_for_the_measured_network_counts_what_is_left(run: Path) -> None:
    """The lucky cell is no answer where it was struck off."""
    known = joined([run])
    profile = {"edge_to_server": {"delay_s": 0.2, "rate_bps": 5e6}, "server_to_edge": {"delay_s": 0.0}}
    manifests = [{"profiles": {"200ms-5mbit": profile}, "networks": {"200ms-5mbit": ["200ms-5mbit"]}}]
    advised = advise(known.trials, known.stages, manifests, Network(0.2, 5e6))
    assert advised.ranking.profile == "200ms-5mbit"
    assert advised.ranking.best.latency_s > 1e-5


@pytest.mark.parametrize("fault", ["nonsense", "point,how\n\x00,\x00\n"])
def test_a_file_that_is_no_such_table_is_one_line(run: Path, fault: str) -> None:
    (run / STRUCK.file).write_text(fault + "\n")
    with pytest.raises(UserError):
        load([run])


def test_the_front_of_a_search_compares_two_cells_by_the_rounds_that_both_have(tmp_path: Path) -> None:
    """The machine becomes slower by half; two equal cells, of which one joined late and has those rounds alone."""
    rows = trials(rounds=ROUNDS, noise=0)
    kept = {(row["point"], row["backend"]) for row in rows if row["payload_bytes"]}
    early, late = sorted(kept)[:2]
    mine = [row for row in rows if (row["point"], row["backend"]) in (early, late)]
    mine = [row for row in mine if row["round"] > 3 or (row["point"], row["backend"]) == early]
    for row in mine:
        row["latency_s"], row["throughput_ips"] = 1 + 0.5 * (row["round"] > 3), 9 - row["round"]
    folder = write(tmp_path / "run", mine)
    for searched, expected in ((False, 1), (True, 2)):
        if searched:
            pd.DataFrame(columns=STRUCK.columns).to_csv(folder / STRUCK.file, index=False)
        rows_ = front(load([folder]))
        assert rows_[["on_front", "on_backend_front"]].sum().tolist()[0] == expected
        assert rows_["rounds"].tolist() == [ROUNDS, ROUNDS - 4]
        assert rows_["latency_s"].nunique() == 2, "each has the median of its own rounds"
