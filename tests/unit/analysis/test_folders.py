"""Which folders are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.runs.load import folders, load
from pareto.errors import UserError
from tests.unit.example_run import trials, write


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Run folders a and b, beside what is no run."""
    results = tmp_path / "results"
    runs = [write(results / name, trials(rounds=1, run=name)) for name in ("b", "a")]
    (results / "README.md").write_text("# results")
    (results / "joined").mkdir()
    return sorted(runs)


def test_a_run_is_given_by_path_text_pattern_or_the_folder_around_it(two: list[Path]) -> None:
    around = two[0].parent
    assert folders(two[0]) == folders(str(two[0])) == [two[0]]
    assert folders(around) == folders(f"{around}/*") == folders([f"{around}/[ab]"]) == two
    assert folders(reversed(two)) == two[::-1], "in the order asked for"
    assert folders([]) == []


def test_a_pattern_s_folders_of_runs_are_opened_too(two: list[Path]) -> None:
    assert folders(f"{two[0].parent.parent}/res*") == two


def test_a_folder_named_like_a_pattern_is_that_folder(tmp_path: Path) -> None:
    run = write(tmp_path / "net[1]", trials(rounds=1))
    write(tmp_path / "net1", trials(rounds=1))
    assert folders(str(run)) == [run]


def test_relative_and_home(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two[0].parent)
    monkeypatch.setenv("HOME", str(two[0].parent))
    assert folders("*") == [Path("a"), Path("b")]
    assert folders("~/a") == [two[0]]


@pytest.mark.parametrize(
    "asked",
    ["nowhere", "nowh*", "results/README.md", "results/joined", ""],
    ids=["nothing", "no match", "a file", "no run in it", "no run beside it"],
)
def test_what_is_no_run_is_refused(two: list[Path], asked: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as caught:
        load(str(two[0].parents[1] / asked))
    assert "\n" not in str(caught.value)
    assert str(caught.value) == snapshot
