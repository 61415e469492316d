"""The harness called from Python: `pareto.run`, `load`, `compare`, `advise` and `Sweep`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import pareto
from pareto.api import Run
from pareto.basics.console import html
from pareto.commands import run as measuring
from tests import REPOSITORY
from tests.program import command
from tests.unit.example_run import trials, write
from tests.unit.refusals import refusal
from tests.unit.simulated.worlds import MODEL

EXAMPLE = REPOSITORY / "results" / "example"
SIMULATED: dict[str, Any] = {"netem": "10ms-50mbit", "testbed": "simulated", "trials": 1}


@pytest.fixture(scope="module")
def example() -> Run:
    return pareto.load(EXAMPLE)


def test_the_names_are_there_documented_and_cost_nothing_until_used() -> None:
    for name in pareto.__all__:
        assert name in dir(pareto)
        assert inspect.getdoc(getattr(pareto, name)), name
    with pytest.raises(AttributeError, match="'laod'"):
        pareto.laod  # noqa: B018
    code = "import sys, pareto; assert not {'pandas', 'numpy', 'torch', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


def test_a_run_is_measured_and_read(tmp_path: Path) -> None:
    told: list[str] = []
    run = pareto.run(MODEL, **SIMULATED, out=tmp_path, progress=told.append)
    assert any("trials, " in line for line in told), "how far it is"
    assert run.folders == [*tmp_path.iterdir()]
    assert set(run.trials["status"]) == {"ok"}
    assert run.front()["rounds"].eq(1).all()
    assert str(run) == run.answer == "\n".join(run.answers)
    assert run.answer.startswith("net.small at 10ms-50mbit, simulated: ")
    assert not (run.folders[0] / "report.md").exists(), "nobody asked for a report"
    assert run.folders[0] / "report.md" in run.report(figures="none")


def test_nothing_is_printed_without_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pareto.run(MODEL, **SIMULATED, out=tmp_path, progress=False)
    assert capsys.readouterr().out == ""


def test_an_interrupted_run_raises_and_one_that_measured_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "run", lambda *_, **__: 130)
    with pytest.raises(KeyboardInterrupt):
        pareto.run(MODEL, **SIMULATED, out=tmp_path)
    monkeypatch.setattr(measuring, "run", lambda *_, **__: 1)
    with pytest.raises(pareto.UserError, match="nothing was measured"):
        pareto.run(MODEL, **SIMULATED, out=tmp_path)


def test_a_sweep_goes_through_its_models_and_networks(tmp_path: Path) -> None:
    each = list(pareto.Sweep(["alexnet", MODEL], netem=["wifi", "lte"], quick=True, testbed="simulated"))
    chosen = [(one.options["model"], one.options["netem"]) for one in each]
    assert chosen == [(m, n) for m in ("alexnet", MODEL) for n in ("wifi", "lte")]
    assert all(one.options["quick"] for one in each)
    file = tmp_path / "sweep.yaml"
    file.write_text(f"model: [{MODEL}]\nnetem: [wifi]\ntestbed: simulated\ntrials: 1\n")
    (one,) = pareto.Sweep(file=file, netem="10ms-50mbit")
    assert one.run(out=tmp_path / "out", progress=False).trials["netem"].unique().tolist() == ["10ms-50mbit"]


def test_rows_of_trials_stand_for_their_run(example: Run) -> None:
    trials = example.trials
    one = pareto.load(trials[trials["netem"] == "lan-1gbit"])
    assert one.folders == [EXAMPLE]
    (answer,) = one.answers
    assert answer.startswith("mobilenet_v2 at lan-1gbit: ")
    assert "send the input to the server" in answer
    assert set(pareto.compare(one, EXAMPLE).differences["netem"]) == {"lan-1gbit"}


def test_advice_is_that_of_the_command(example: Run) -> None:
    said = pareto.advise(example, latency="20ms", rate="30mbit")
    printed = command("advise", str(EXAMPLE), "--latency", "20ms", "--rate", "30mbit").out
    assert " ".join(printed.split()).startswith(str(said))
    assert said.data["answer"] == said.answer
    assert "Best for latency" in said._repr_html_()


@pytest.mark.parametrize("kind", [name for name in dir(pareto.load(EXAMPLE).figures) if name[0] != "_"])
def test_each_kind_is_drawn_or_says_what_it_lacks(example: Run, kind: str) -> None:
    panels = 2 if kind in ("tail", "paired", "payload") else 1
    axes = Figure().subplots(1, panels)
    draw = getattr(example.figures, kind)
    assert inspect.getdoc(draw)
    if kind in ("energy", "accuracy", "utilization"):
        with pytest.raises(pareto.UserError):
            draw(ax=axes, netem="lan-1gbit")
        return
    chosen = {} if kind == "fronts" else {"netem": "lan-1gbit"}
    assert isinstance(draw(**chosen, width="column", title="mine"), Figure)
    if kind != "fronts":
        assert draw(ax=axes, **chosen) is axes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: pareto.load("nowhere"), "nowhere: no such folder"),
        (lambda run: pareto.load(run.front()), "rows are of a run's `trials`"),
        (lambda run: pareto.load(run.trials[["netem", "point"]]), "lacks columns"),
        (lambda run: pareto.advise(run, latency="20", rate="30mbit"), "has no unit"),
        (lambda run: pareto.compare(run, "nowhere"), "nowhere: no such folder"),
        (lambda run: run.figures.front(netem="x"), "no netem 'x' in this run: one of 10ms-100mbit"),
        (lambda run: run.figures.front(), "one netem in a figure"),
        (lambda run: run.front("p95x"), "p95x"),
        (lambda run: pareto.Sweep("alexnet", quik=True), "unknown key 'quik'"),
        (lambda run: pareto.Sweep("alexnet", netem="fiveg"), "fiveg"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(example: Run, call: Any, words: str) -> None:
    assert words in refusal(pareto.UserError, call, example)


def test_a_notebook_shows_the_answer_first_and_no_markup_of_others(example: Run, tmp_path: Path) -> None:
    shown = example._repr_markdown_()
    assert shown.index("send the input to the server") < shown.index("latency")
    assert isinstance(example.stages, pd.DataFrame)
    assert repr(example) == f"Run({EXAMPLE})"
    rows = [row | {"model": "<script>x"} for row in trials(rounds=2)]
    assert "<script" not in pareto.load(write(tmp_path / "run", rows))._repr_markdown_().replace("\\<", "")
    compared = pareto.compare(example, EXAMPLE)
    assert "B against A" in compared._repr_html_()
    assert str(compared).splitlines() == compared.sentences
    for name in ("one", "two"):
        write(tmp_path / "runs" / name, trials(rounds=1, run=name))
    with pytest.raises(pareto.UserError, match="2 runs"):
        pareto.compare(tmp_path / "runs", example)


def test_what_is_on_a_line_stays_on_it_and_is_text() -> None:
    shown = html("a[bold]b :smile: \x1b[31m", "next")
    assert "a[bold]b :smile:" in shown
    assert "\x1b" not in shown
