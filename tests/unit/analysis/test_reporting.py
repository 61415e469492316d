"""A report: what it finds, what it writes, what it takes away."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import reporting
from pareto.analysis.figures.drawing import conditions
from pareto.analysis.figures.look import Look
from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Findings, Options, find
from pareto.analysis.fronts.front import front
from pareto.analysis.reporting import report
from pareto.analysis.runs.load import load
from pareto.analysis.schema import LINKS, STAGES
from pareto.protocol.errors import UserError
from tests.unit import drawn, example_chain
from tests.unit.analysis.test_tables import of_each, printed
from tests.unit.example_run import trials, with_energy, write
from tests.unit.refusals import refusal

TABLES = Options(figures="none")
ALWAYS = ("front", "attribution", "payload")


def names(found: Findings) -> list[str]:
    """The figures that there are, as in their files' names, without drawing them."""
    return ["-".join((drawing.kind, *drawing.name)) for drawing in drawings(found, each=True)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """A report with everything, which takes seconds; to be copied before anything in its folder is changed."""
    rows = [row for row in trials() if row["point"] in (0, 7, 20, 21)]
    return report(write(tmp_path_factory.mktemp("whole"), rows))


def test_files(whole: Findings) -> None:
    names = [path.name for path in whole.files]
    tables = [name for name in names if name.endswith(".csv") and "-" not in name]
    assert tables == [
        f"{name}.csv"
        for name in ["front", "answers", "hypervolume", "overhead", "paired", "drift", "progress"]
    ]
    condition = "mobilenetv2-200ms-5mbit"
    assert names.index("report.html") < names.index(f"front-{condition}.pdf"), "figures come last"
    assert set(names) >= {
        f"{kind}-{condition}.{ext}" for kind in ALWAYS for ext in ("pdf", "png", "csv", "txt")
    }
    assert set(names) >= {f"{kind}-{condition}.tex" for kind in ("front", "paired")}
    assert len(set(names)) == len(names)
    assert [note for note in whole.notes if "noise floor" not in note] == []
    assert whole.front["rounds"].eq(3).all()
    folder = whole.runs[0].folder
    written = {str(path.relative_to(folder)) for path in folder.rglob("*.*")}
    assert {name for name in written if not reporting.is_ours(name)} == {
        "trials.csv",
        "manifest.json",
        ".made",
    }
    contents = [(path.suffix, path.read_bytes()) for path in whole.files]
    for suffix, start in ((".pdf", b"%PDF"), (".png", b"\x89PNG")):
        assert all(content.startswith(start) for kind, content in contents if kind == suffix)
    assert not any(b"Type3" in content for _, content in contents)


@pytest.mark.parametrize(
    "options",
    [{"objectives": ["speed"]}, {"where": "latency_s <"}, {"width": "poster"}, {"figures": "some"}],
    ids=lambda options: next(iter(options)),
)
def test_bad_options_are_one_line(options: Any, snapshot: SnapshotAssertion) -> None:
    assert refusal(UserError, Options, **options) == snapshot
    assert set(Options(width="both").widths) == {"page", "column"}


def test_other_objectives_and_a_constraint_reach_the_front(whole: Findings) -> None:
    found = find([whole.runs[0].folder], Options(("latency", "payload"), "latency_s < 0.5"))
    assert found.objectives == ("latency", "payload")
    assert (~found.front["feasible"]).any()
    assert found.front.loc[found.front["on_front"], "latency_s"].max() < 0.5
    both = whole.front
    assert set(found.front.loc[found.front["on_front"], "point"]) != set(both.loc[both["on_front"], "point"])


def test_runs_are_joined_and_written_elsewhere(tmp_path: Path) -> None:
    rows = trials(rounds=1)[:6]
    runs = [
        write(tmp_path / name, [row | {"run": name, "netem": name} for row in rows])
        for name in ("one", "two")
    ]
    assert "2 runs" in refusal(UserError, report, runs)
    made = report(runs, tmp_path / "joined", TABLES)
    assert sorted(set(made.front["netem"])) == ["one", "two"]
    assert {path.parent for path in made.files} == {tmp_path / "joined"}
    assert not (tmp_path / "one" / "front.csv").exists()
    (tmp_path / "latest").symlink_to("one")
    assert report(str(tmp_path / "latest"), options=TABLES).files[0] == runs[0] / "front.csv"


def test_nothing_of_an_earlier_report_stays(whole: Findings, tmp_path: Path) -> None:
    run = shutil.copytree(whole.runs[0].folder, tmp_path / "run")
    own = [run / "figures" / "notes.md", run / "figures" / "front-page.png", run / "trials.csv"]
    for path in own[:2]:
        path.write_text("the user's own")
    trials_then = own[2].read_bytes()
    assert len(list((run / "figures").iterdir())) > 10
    report(run, options=Options(figures="none", where="backend == tcp"))
    assert {path.name for path in (run / "figures").iterdir()} == {"notes.md", "front-page.png"}
    assert own[2].read_bytes() == trials_then


def test_what_a_report_takes_away_is_not_decided_by_the_folder(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(rounds=1)[:2])
    own = {table.file: ",".join(table.columns) + "\n" for table in (STAGES, LINKS)}
    others = ".bashrc requests/one.parquet figures/mine.png ../elsewhere figures/front-old.png"
    own |= dict.fromkeys(others.split(), "")
    for name, content in own.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(content)
    own |= {name: (run / name).read_text() for name in ("trials.csv", "manifest.json")}
    lies = [*own, "figures/../trials.csv", str(tmp_path / "elsewhere")]
    (run / ".made").write_text("\n".join(lies))
    report(run, options=TABLES)
    left = {name: (run / name).read_text() for name in own if (run / name).exists()}
    own.pop("figures/front-old.png")  # ours by its name
    assert left == own


@pytest.mark.parametrize("name", ["front.csv", ".made", "figures", "figures/front-x.png"])
def test_nothing_is_written_through_a_link_in_a_run_s_folder(tmp_path: Path, name: str) -> None:
    run = write(tmp_path / "run", trials(rounds=1)[:2])
    victim = tmp_path / "victim"
    if name == "figures":
        victim.mkdir()
    else:
        victim.write_text("mine")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(victim)
    before = sorted(run.rglob("*"))
    with pytest.raises(UserError, match=f"{name} is a link") as refused:
        report(run)
    assert "\n" not in str(refused.value)
    assert sorted(run.rglob("*")) == before, "refused before anything was written"
    assert not list(victim.iterdir()) if name == "figures" else victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["front.csv", "figures/front-mobilenetv2-200ms-5mbit.tex"])
def test_what_no_report_wrote_is_not_written_over(tmp_path: Path, name: str) -> None:
    run, out = write(tmp_path / "run", trials(rounds=1)[:2]), tmp_path / "paper"
    own = out / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    said = refusal(UserError, report, run, out, options=Options() if "/" in name else TABLES)
    assert f"{name} is there, and this program did not write it" in said
    assert [path for path in out.rglob("*") if path.is_file()] == [own]
    assert own.read_text() == "mine"
    own.unlink()
    for _ in range(2):
        report(run, out, options=TABLES)


def test_models_whose_names_are_alike_have_figures_of_their_own(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=1) if row["point"] == 7]
    both = [row | {"model": model} for model in ("net_a", "net-a") for row in rows]
    pictures = Options(look=Look(formats=("pdf",)))
    made = report(write(tmp_path / "run", both), options=pictures).files
    assert len(set(made)) == len(made)
    assert all(path.is_file() for path in made)
    for kind in ("csv", "tex", "pdf"):
        assert len([path for path in made if path.match(f"front-net-a-*.{kind}")]) == 2


def test_headers_are_unknown_where_runs_mean_different_links_by_one_name(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=1) if row["point"] in (0, 1, 2, 3, 5)]
    runs = []
    for name, rate_bps in (("one", 5e6), ("two", 6e6)):
        ways = {"edge_to_server": {"delay_s": 0.2, "rate_bps": rate_bps}, "server_to_edge": {"rate_bps": 1e7}}
        named = [row | {"run": name} for row in rows]
        runs.append(write(tmp_path / name, named, profiles={"200ms-5mbit": ways}))
    assert find(runs[:1]).overhead["headers_s_per_byte"].notna().all()
    both = find(runs)
    assert len(both.overhead) == 4, "two setups of two backends"
    assert both.overhead["headers_s_per_byte"].isna().all()


def test_many_conditions_have_no_figures_each_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(reporting, "MOST_CONDITIONS", 2)
    rows = [row | {"batch_size": size} for size in (1, 2, 3) for row in trials(rounds=1)[:1]]
    made = report(write(tmp_path, rows))
    assert not list(tmp_path.glob("figures/front-*"))
    assert "3 conditions" in made.notes[0]
    assert "--figures all" in made.notes[0]
    assert made.notes == snapshot


def test_a_run_without_a_valid_trial_gets_a_note(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(status="failed", reason="worker\nexited", latency_s="", throughput_ips="")
    of = {"none": [], "one": rows, "two": [*rows, *(row | {"netem": "wifi"} for row in rows)]}
    made = {name: report(write(tmp_path / name, each)) for name, each in of.items()}
    assert not any(found.front["on_front"].any() for found in made.values())
    said = {name: [*found.verdicts, *found.notes] for name, found in made.items()}
    assert {name: ([path.name for path in made[name].files], said[name]) for name in made} == snapshot


def test_depths_in_flight_get_files_of_their_own(tmp_path: Path) -> None:
    few = trials(rounds=1)[20:23]
    run = write(tmp_path, few + [row | {"in_flight_asked": "4"} for row in few])
    made = find([run])
    assert set(names(made)) >= {f"front-mobilenetv2-200ms-5mbit-d{depth}" for depth in ("auto", "4")}
    one = front(load([write(tmp_path / "one", [row | {"in_flight_asked": "4"} for row in few])]))
    assert "4 in flight" in " ".join(printed(*of_each(made.front)).split())
    assert "auto" not in printed(*of_each(made.front))
    assert "4 in flight" in conditions(one)


def test_every_figure_of_a_chain_twice_the_same(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, (3, 21)), backends=["tcp"])
    for stage in staged:
        stage["energy_j"] = 5 * (stage["compute_s"] + stage["bubble_s"])
    for row in with_energy(rows, server=False):
        row["server_energy_j"] = 1 if row["server_s"] else ""
    run = example_chain.write(tmp_path, rows, staged)
    first, again = report(run, tmp_path / "a", TABLES), report(run, tmp_path / "b", TABLES)
    assert ["a byte that crosses" in note for note in first.notes] == [True, False]
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in again.files]
    made = [
        [it for it in drawings(found, each=True) if it.kind in ("utilization", "energy")]
        for found in (first, again)
    ]
    assert len(made[0]) == 2
    for one, other in zip(*made, strict=True):
        assert one.name == other.name == ("mobilenetv2", "wifi")
        (figure, caption, data), (figure_again, caption_again, data_again) = one.drawn(), other.drawn()
        assert caption == caption_again
        pd.testing.assert_frame_equal(data, data_again)
        assert drawn.pdf(figure) == drawn.pdf(figure_again), one.kind
