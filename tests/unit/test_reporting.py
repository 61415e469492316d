"""`report`, `compare` and `advise` as a user meets them, on the example run."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.figures import point_figures
from pareto.analysis.figures.drawing import save
from pareto.basics.escaping import markdown
from pareto.commands.report import _joined, run_folders
from pareto.remote.link.units import duration
from pareto.trial.store import StoreError
from tests import REPOSITORY
from tests.program import Ended, command, refused, well
from tests.unit.analysis.test_forecast import profile
from tests.unit.example_run import trials, write
from tests.unit.gating import gating
from tests.unit.refusals import refusal
from tests.unit.simulated.worlds import MODEL

EXAMPLE = REPOSITORY / "results" / "example"


@pytest.fixture(scope="module")
def of_example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """The example's report without figures, and what it printed."""
    name = "a-name-that-does-not-fit-into-one-line-of-a-terminal-with-its-80-columns"
    out = tmp_path_factory.mktemp("report") / name
    return out, command("report", str(EXAMPLE), "--figures", "none", "--out", str(out))


def test_a_report_has_the_answer_first_and_ends_with_where_the_rest_is(
    of_example: tuple[Path, Ended],
) -> None:
    out, done = of_example
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[-1] == str(out)
    assert max(len(line) for line in lines if not line.startswith("/")) <= 80
    assert len(lines) < 60
    assert {"front.csv", "report.html"} <= {path.name for path in out.iterdir()}
    assert not (out / "figures").exists()
    assert " ".join(done.out.split()).startswith("mobilenet_v2 at 10ms-100mbit: ")
    answers, _, rest = done.out.partition("\n\n")
    table = rest.partition("attention: ")[0]
    front = pd.read_csv(out / "front.csv")
    for least_s in front[front["rounds"] > 0].groupby("netem")["latency_s"].min():
        assert duration(least_s) in " ".join(answers.split())
        assert f"{1e3 * least_s:.2f}" in table
    places = [table.index(netem) for netem in ("10ms-100mbit", "200ms-5mbit", "lan-1gbit")]
    assert places == sorted(places), "networks have one order"
    text = (out / "report.md").read_text()
    for told_in_short in re.findall(r"attention: (.*)", done.out):
        assert markdown(told_in_short) in text
    assert "overhead beyond the bound" in text


def few(folder: Path, **fixed: Any) -> Path:
    """A run of three points, two of them under a backend each."""
    return write(folder, [row for row in trials(rounds=2, **fixed) if row["point"] in (0, 7, 21)])


@pytest.fixture
def chain_profile(tmp_path: Path) -> str:
    """The folder of a model profile of three hosts."""
    folder = tmp_path / "profile"
    folder.mkdir()
    profile(3).write(folder)
    return str(folder)


def test_few_points_are_all_in_the_table_and_tables_go_to_other_programs_too(
    tmp_path: Path, chain_profile: str
) -> None:
    run, parquet, database = few(tmp_path / "run"), tmp_path / "trials.parquet", tmp_path / "all.sqlite"
    to = ("--export", str(parquet), "--export", str(database), "--profile", chain_profile)
    done = well("report", str(run), "--figures", "none", *to)
    assert done.out.splitlines()[-3:] == [str(run), str(parquet), str(database)]
    rows = re.findall(r"^ *(tcp|rpc) +([07])\*? ", done.out.partition("latency")[2], re.MULTILINE)
    assert {*rows} == {(backend, point) for backend in ("tcp", "rpc") for point in "07"}
    assert "overhead beyond" not in done.out, "no table of dashes"
    with closing(sqlite3.connect(database)) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM trials")
    assert count == len(pd.read_parquet(parquet)) == 12
    assert "no run measured net" in " ".join(done.out.split()), "it is left out, as one of another model"
    assert not (run / "prediction.csv").exists()
    network = ("--latency", "1ms", "--rate", "1gbit")
    advised = well("advise", str(run), "--profile", chain_profile, *network)
    assert "no run measured net" in " ".join(advised.out.split()), "runs test the profile of an advice"


def test_methods_are_all_that_is_printed_and_nothing_is_written(tmp_path: Path) -> None:
    run = shutil.copytree(EXAMPLE, tmp_path / "example")
    before = sorted(tmp_path.rglob("*"))
    done = well("report", str(run), "--methods")
    assert done.out.startswith("We measured mobilenet_v2 with pareto ")
    assert "6 rounds" in done.out
    assert done.out.rstrip().splitlines()[-1].startswith("./pareto.sh --model mobilenet_v2 ")
    assert sorted(tmp_path.rglob("*")) == before
    done = command("report", str(run), "--methods", "--where", "latency_s < 1", "--json")
    assert (done.code, done.out) == (2, "")
    assert "--json, --where: not with --methods" in done.err


def test_whoever_interrupts_the_drawing_has_the_answers_and_all_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    def first_figure(waiting: Any, folder: Path, widths: Any, *_: Any) -> list[Path]:
        assert {"front.csv", "report.html", ".made"} <= {path.name for path in run.iterdir()}
        save(waiting[0], folder, widths)
        raise KeyboardInterrupt

    run = few(tmp_path / "run")
    monkeypatch.setattr("pareto.analysis.reporting.save_all", first_figure)
    done = command("report", str(run))
    assert done.code == 130
    assert "mobilenetv2 at 200ms-5mbit: " in " ".join(done.out.split())
    assert done.out.splitlines()[-1].replace(str(run), "OUT") == snapshot
    drawn = {path.suffix for path in (run / "figures").glob("front-*")}
    assert drawn == {".pdf", ".png", ".csv", ".txt", ".tex"}
    well("report", str(run), "--figures", "none")
    assert not list((run / "figures").iterdir()), "what was drawn does not stay"


def test_several_runs_are_joined_beside_them_and_a_constraint_is_obeyed_by_all_that_is_printed(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        few(tmp_path / name, run=name)
    (tmp_path / "notes.txt").write_text("no run")
    runs = sorted(map(str, tmp_path.iterdir()))
    done = well("report", *runs, "--figures", "none", "--where", "backend == rpc")
    (joined,) = tmp_path.glob("joined-2-runs-*")
    assert done.out.splitlines()[-1] == str(joined)
    assert ",4," in (joined / "front.csv").read_text(), "four rounds, of two runs"
    assert not (tmp_path / "one" / "front.csv").exists()
    fronts = done.out.partition("attention: ")[0]
    assert " rpc " in fronts
    assert " tcp " not in fronts


def test_compare_writes_its_tables(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = str(few(tmp_path / "example"))
    done = well("compare", run, run, "--out", str(tmp_path))
    written = {path.name for path in (tmp_path / "compare-example-example").iterdir()}
    assert written == {"compare.csv", "compare-fronts.csv", "compare.html", ".made"}
    for name in ("compare.csv", "compare.html"):
        (own := tmp_path / "compare-run-example" / name).parent.mkdir()
        own.write_text("mine")
        again = command("compare", str(few(tmp_path / name / "run")), run, "--out", str(tmp_path))
        assert (again.code, own.read_text()) == (2, "mine")
        assert name in again.err
        shutil.rmtree(own.parent)
    (shared,) = [line for line in done.out.splitlines() if line.startswith("12 ")]
    assert shared == snapshot


NETWORK = ("--latency", "20ms", "--rate", "30mbit")


def test_advise_says_what_to_do_first_and_chooses_among_all_splits_by_a_model_profile(
    chain_profile: str, snapshot: SnapshotAssertion
) -> None:
    done = well("advise", str(EXAMPLE), "--latency", "300ms", "--rate", "1mbit")
    assert done.out.split(": ")[:2] == snapshot  # then come its figures
    for options in ("--for throughput", "--latency-back 20ms --rate-back 1mbit", "--where payload_bytes>0"):
        done = well("advise", "--profile", chain_profile, *NETWORK, *options.split())
        assert max(map(len, done.out.splitlines())) <= 80
        assert done.out == snapshot


def test_what_a_model_profile_does_not_have_is_one_line(
    chain_profile: str, snapshot: SnapshotAssertion
) -> None:
    for options, named in (
        ("--batch-size 8", "batch size 8"),
        ("--for joy", "--for joy"),
        ("--where edge_rss_bytes<1", "edge_rss_bytes"),
        ("--model net", "--model"),
    ):
        line = refused("advise", "--profile", chain_profile, *NETWORK, *options.split())
        assert named in line
        assert line.replace(chain_profile, "FOLDER") == snapshot


@pytest.mark.parametrize("name", ["report", "compare"])
def test_an_unwritable_place_is_one_line(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "file").write_text("")
    runs = [str(few(tmp_path / "example"))] * (1 if name == "report" else 2)
    line = refused(name, *runs, "--out", str(tmp_path / "file" / "below"))
    assert f"{tmp_path}/file/below" in line
    assert line == snapshot


def test_a_run_given_twice_counts_once_and_what_is_none_is_told(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    file = io.StringIO()
    console = Console(file=file, width=300)
    assert run_folders(console, [EXAMPLE, tmp_path / ".." / EXAMPLE, tmp_path], tmp_path) == [EXAMPLE]
    printed = file.getvalue()
    assert str(tmp_path) in printed
    assert [
        printed,
        refusal(StoreError, run_folders, console, [tmp_path, tmp_path.parent], tmp_path),
    ] == snapshot
    (tmp_path / "trials.csv").touch()
    assert run_folders(console, [tmp_path], tmp_path) == [tmp_path], "also without a manifest"
    one, other, last = (Path("results", name) for name in ("a", "b", "z"))
    assert _joined([one, last]) == _joined([last, one]) != _joined([other, last])


JSON_OF = {
    "report": "report OUT --figures none --json",
    "compare": "compare OUT OUT --out OUT --json",
    "advise": f"advise {EXAMPLE} --latency 20ms --rate 30mbit --json",
    "partitions": "partitions squeezenet1_1 --json",
    "prediction": f"advise --model {MODEL} --netem wifi --testbed simulated --out OUT --json",
}


@pytest.mark.parametrize("name", JSON_OF)
def test_json_is_one_object_with_the_keys_that_are_documented(name: str, tmp_path: Path) -> None:
    few(tmp_path)
    done = command(*JSON_OF[name].replace("OUT", str(tmp_path)).split())
    assert done.code == 0
    made = json.loads(done.out, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    page = (REPOSITORY / "docs" / "json.md").read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
    documented = {
        key
        for line in page.splitlines()
        if line.startswith("| `")
        for key in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert set(made) == documented
    rows = made.get("points") or made.get("choices") or made["cases"][0]["splits"]
    assert len(rows) > 1
    assert {"point", "latency_s"} <= set(rows[0]) or name in ("partitions", "compare")


@pytest.mark.parametrize("threads", gating([0, 1], 0), ids=["in processes", "in this one"])
def test_a_figure_that_cannot_be_drawn_is_one_line_and_ends_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    def no_height(*_: object, **__: object) -> None:
        raise ValueError("figure size must be positive\nnot -1")

    monkeypatch.setattr(point_figures, "attribution", no_height)
    monkeypatch.setattr(threading, "active_count", lambda: 1 + threads)
    run = few(tmp_path)
    done = command("report", str(run), "--format", "pdf")
    said = [line for line in done.out.splitlines() if "cannot be drawn" in line]
    assert (done.code, done.err, len(said)) == (0, "", 1)
    assert said[0].startswith("attention: the figure attribution-mobilenetv2-200ms-5mbit")
    made = {path.name.partition("-")[0] for path in (run / "figures").iterdir()}
    assert {"front", "payload"} <= made
    assert "attribution" not in made
    assert "ValueError: figure size must be positive not -1; report it" in done.out
