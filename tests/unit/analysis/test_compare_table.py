"""The comparison of two runs on the screen and as CSV."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.between_runs import APART, Comparison, compare
from pareto.analysis.tables.compare import MOST_TABLES, compare_table, write
from tests.unit.example_run import PAYLOAD_KIB, trials
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


def test_it_is_legible_at_80_columns_without_colour(comparison: Comparison) -> None:
    text = shown(comparison)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "\x1b" not in text


def test_the_conclusion_comes_first_then_doubts_then_figures(
    comparison: Comparison, snapshot: SnapshotAssertion
) -> None:
    text = shown(comparison)
    parts = comparison.sentences, comparison.settings, comparison.only_first, ["21*"], [APART]
    flat = " ".join(text.split())
    places = [flat.index(part) for each in parts for part in each]
    assert places == sorted(places)


def test_all_its_words(comparison: Comparison, snapshot: SnapshotAssertion) -> None:
    differences = comparison.differences
    few = differences[differences["point"].isin(["1", "20"])]
    text = shown(replace(comparison, differences=few))
    assert text.partition("\n\n")[2] == snapshot  # its first lines are where the runs are


def test_every_point_has_its_figures_and_what_is_significant_is_marked(comparison: Comparison) -> None:
    text = shown(comparison)
    rows = comparison.differences.set_index("point")
    for point in map(str, range(len(PAYLOAD_KIB))):
        (line,) = (
            line
            for line in text.splitlines()
            if line.replace("tcp", "").replace("any", "").split()[:1] in ([point], [f"{point}*"])
        )
        row = rows.loc[point]
        assert f"{row['first_latency_s']:.3f}" in line
        assert f"{row['latency_low_s']:.3f}..{row['latency_high_s']:.3f}" in line
        assert ("!" in line) == (row["latency_significant"] or row["throughput_significant"])
    assert f"{2 * len(PAYLOAD_KIB)} tests" in " ".join(text.split())


def test_of_many_points_those_that_matter(comparison: Comparison) -> None:
    differences = comparison.differences
    more = pd.concat(
        [differences, differences.assign(backend="rpc", latency_significant=False)], ignore_index=True
    )
    text = shown(replace(comparison, differences=more))
    hidden = (
        44
        - 22
        + 11
        - sum(point.startswith("tcp") for point in stays(comparison) if int(point.split()[1]) % 2 == 0)
    )
    assert f"{hidden} points" in " ".join(text.split())


def stays(comparison: Comparison) -> list[str]:
    front = comparison.fronts.iloc[0]
    changes = ("enter", "may_enter", "leave", "may_leave", "stay", "may_stay")
    return [named for change in changes for named in front[change].split("; ") if named]


def test_of_many_conditions_the_sentences(comparison: Comparison) -> None:
    numbers = range(MOST_TABLES + 1)
    many = replace(
        comparison,
        differences=pd.concat([comparison.differences.assign(netem=str(number)) for number in numbers]),
        fronts=pd.concat([comparison.fronts.assign(netem=str(number)) for number in numbers]),
    )
    text = shown(many)
    assert "21*" not in text, "no table"
    assert "compare.csv" in text


def test_few_rounds_are_told(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, trials(rounds=3, run=name, seed=seed)) for seed, name in enumerate("ab")
    ]
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
