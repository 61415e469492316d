"""`analysis.figures` as a notebook uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from syrupy.assertion import SnapshotAssertion

from analysis import figures
from analysis.runs.load import load, stages
from pareto.errors import UserError
from tests.unit import example_chain, example_run


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    rows = [row for row in example_run.trials(rounds=3) if row["point"] % 3 == 0]
    return load([example_run.write(tmp_path_factory.mktemp("run"), example_run.with_energy(rows))])


def test_the_package_costs_nothing_until_it_draws() -> None:
    code = "import sys, analysis.figures; print({'matplotlib', 'pandas', 'moocore'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["front", "fronts", "attribution", "bound", "energy", "paired", "payload"])
@pytest.mark.parametrize("width", ["column", "page"])
def test_trials_become_figures(trials: pd.DataFrame, name: str, width: str) -> None:
    figure = getattr(figures, name)(trials, width=width)
    assert isinstance(figure, Figure)
    assert figure.get_size_inches()[0] == {"column": 3.4, "page": 7}[width]
    assert figure.axes


def test_axes_of_the_caller_are_drawn_on_and_come_back() -> None:
    rows = figures.example()
    for draw in (
        figures.front,
        figures.bound,
        lambda df, ax: figures.attribution(df, ax, backend="rpc"),
    ):
        whole = Figure(figsize=(7, 3), layout="constrained")
        left, right = whole.subplots(1, 2)
        before = matplotlib.rcParams["font.size"]
        assert draw(rows, ax=left) is left
        assert left.lines and not right.lines
        assert whole.axes == [left, right], "nothing is added to the caller's figure"
        assert whole.get_size_inches().tolist() == [7, 3], "nor does it change its size"
        assert isinstance(whole.get_layout_engine(), ConstrainedLayoutEngine), "nor its layout"
        assert matplotlib.rcParams["font.size"] == before


def test_labels_on_narrow_axes_of_the_caller_are_numbers() -> None:
    (left, _) = Figure(figsize=(5, 3), layout="constrained").subplots(1, 2)
    figures.front(figures.example(), ax=left)
    assert all(text.get_text().isdigit() for text in left.texts)


def test_one_condition_at_a_time(snapshot: SnapshotAssertion) -> None:
    both = pd.concat([figures.example(), figures.example().assign(netem="lte")])
    for name in ("front", "attribution", "bound"):
        with pytest.raises(UserError) as several_profiles:
            getattr(figures, name)(both)
        assert str(several_profiles.value) == snapshot(name="profiles")
    assert len(figures.fronts(both).axes) == 2
    with pytest.raises(UserError) as several_models:
        figures.fronts(pd.concat([both, both.assign(model="other")]))
    assert str(several_models.value) == snapshot(name="models")


def test_nothing_valid_is_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = example_run.trials(rounds=1, status="failed", latency_s="", throughput_ips="")
    with pytest.raises(UserError) as refused:
        figures.front(load([example_run.write(tmp_path, rows)]))
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(
    "draw",
    [
        lambda rows: figures.energy(rows),
        lambda rows: figures.cuts(rows),
        lambda rows: figures.bound(rows.assign(latency_bound_s=float("nan")), Figure().add_subplot()),
        lambda rows: figures.bound(rows, Figure().add_subplot(), measure="weight"),
        lambda rows: figures.attribution(rows, backend="mpi"),
        lambda rows: figures.front(rows, width="poster"),
        lambda rows: figures.pipelining(rows),
    ],
    ids=[
        "no energy", "one cut", "no bound", "no such measure", "no such backend", "no such width",
        "no gain",
    ],
)  # fmt: skip
def test_bad_input_is_one_line(draw: Any, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as caught:
        draw(figures.example())
    assert "\n" not in str(caught.value)
    assert str(caught.value) == snapshot


def test_a_chain_has_figures_of_its_own(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, (0, 7, 14, 21)), rounds=2)
    run = example_chain.write(tmp_path, rows, staged)
    found, hosts = load([run]), stages([run])
    assert len(figures.cuts(found).axes) == 3, "two backends and what the colours mean"
    assert len(figures.utilization(found, hosts).axes) == 2
    assert figures.payload(found, hosts).axes
