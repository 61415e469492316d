"""The comparison of two runs on the screen and as CSV."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.between_runs import CHANGES, Comparison, compare
from pareto.analysis.naming import cell_names
from pareto.analysis.tables.compare import MOST_TABLES, compare_table, write
from tests.unit.example_run import trials
from tests.unit.example_run import write as write_run


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """B takes a tenth less at odd points, lacks rpc, and was made with other settings."""
    folder = tmp_path_factory.mktemp("runs")
    a = trials(rounds=8, seed=1, run="a", noise=0.02)
    b = trials(rounds=8, seed=2, run="b", noise=0.02, backends=("tcp",))
    for row in b:
        row["latency_s"] *= 0.9 if row["point"] % 2 else 1
    profiles = [{"200ms-5mbit": {"edge_to_server": {"rate_bps": rate}}} for rate in (5e6, 6e6)]
    sweeps = [{"trials": 8, "congestion": congestion} for congestion in (None, "bbr")]
    return compare(
        write_run(folder / "a", a, profiles=profiles[0], sweep=sweeps[0]),
        write_run(folder / "b", b, profiles=profiles[1], sweep=sweeps[1]),
    )


def shown(comparison: Comparison, width: int = 80) -> str:
    file = StringIO()
    Console(file=file, width=width, no_color=True).print(compare_table(comparison))
    return file.getvalue()


def test_the_conclusion_comes_first_then_doubts_then_each_point(
    comparison: Comparison, snapshot: SnapshotAssertion
) -> None:
    text = shown(comparison)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "\x1b" not in text
    # Its first lines are where the runs are.
    assert "\n".join(line.rstrip() for line in text.splitlines()).partition("\n\n")[2] == snapshot


def test_of_many_points_those_that_matter_and_of_many_conditions_the_sentences(
    comparison: Comparison,
) -> None:
    rows, front = comparison.differences, comparison.fronts.iloc[0]
    named = [name for change in CHANGES for name in front[change].split("; ")]
    more = pd.concat([rows, rows.assign(backend="rpc", latency_significant=False)], ignore_index=True)
    shows = more["latency_significant"] | cell_names(more).isin(named)
    text = " ".join(shown(replace(comparison, differences=more)).split())
    assert f"{(~shows).sum()} points that neither differ significantly" in text
    numbers = [str(number) for number in range(MOST_TABLES + 1)]
    of_each = [
        pd.concat([frame.assign(netem=name) for name in numbers]) for frame in (rows, comparison.fronts)
    ]
    text = shown(replace(comparison, differences=of_each[0], fronts=of_each[1]))
    assert "21*" not in text, "no table"
    assert "compare.csv" in text


def test_few_rounds_are_told(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / run, trials(rounds=3, run=run, seed=seed)) for seed, run in enumerate("ab")]
    found = compare(*runs)
    text = " ".join(shown(found).split())
    (note,) = set(found.differences["note"])
    assert note in text
    assert text.count("!") == 1, "in the legend alone"


def test_the_tables_as_csv(comparison: Comparison, tmp_path: Path) -> None:
    paths = write(comparison, tmp_path / "made" / "here")
    assert [path.name for path in paths] == ["compare.csv", "compare-fronts.csv"]
    back = pd.read_csv(
        paths[0], dtype={"point": str, "codec": str}, keep_default_na=False, na_values={"latency_low_s": [""]}
    )
    assert back["point"].tolist() == comparison.differences["point"].tolist()
    assert back["latency_difference_s"].to_numpy() == pytest.approx(
        comparison.differences["latency_difference_s"].to_numpy()
    )
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write(comparison, tmp_path / "made" / "here")] == before
