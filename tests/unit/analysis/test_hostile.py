"""Results folders that somebody hostile has made: a report of them, or one line that says what is wrong with them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Options, find
from pareto.analysis.prediction.network import Network
from pareto.analysis.reporting import report
from pareto.analysis.runs import load
from pareto.analysis.runs.load import joined
from pareto.analysis.runs.requests import request_latencies
from pareto.basics import files
from pareto.basics.console import console
from pareto.commands.advise import advised
from pareto.commands.compare import compare
from pareto.commands.help import DEFAULT_OBJECTIVES
from pareto.protocol.errors import UserError
from tests.conftest import CASES
from tests.program import command
from tests.unit import drawn
from tests.unit.analysis import hostile
from tests.unit.gating import gating

ALL = sorted(hostile.ATTACKS)
READ, ANALYSED, COMPARED = 45, 400, 1000
"""Of all attacks, each run of the suite reads every 45th, analyses every 300th and compares every 1000th; with `--deep`
or `--cases` all."""
SHOWN = (
    *("reason escapes", "manifest escapes", "unknown column with escapes", "model escapes"),
    *("model markup", "netem latex", "latency_s inf", "two writers", "chains among pairs"),
)
"""Attacks on what is shown: by the command itself."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.run(tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Iterator[Path]:
    """A run's folder beside a file that is none of its business."""
    (tmp_path / "victim").write_text("mine")
    yield shutil.copytree(base, tmp_path / "run")
    assert (tmp_path / "victim").read_text() == "mine"


def test_all_are_read_or_refused_in_a_line(base: Path, tmp_path: Path, cases: int) -> None:
    every = READ if cases <= CASES else 1
    refused = 0
    for number, name in enumerate(ALL[::every]):
        run = copied(base, tmp_path / str(number), name)
        try:
            known = joined(run)
            load.links([run])
            request_latencies(run, known.trials)
        except UserError as error:
            refused += 1
            assert_is_a_line(str(error), run)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        shutil.rmtree(run.parent)
    assert len(ALL) > 600
    assert refused > 100 / every


def test_some_are_analysed_or_refused_in_a_line(base: Path, tmp_path: Path, cases: int) -> None:
    for number, name in enumerate(ALL[:: ANALYSED if cases <= CASES else 1]):
        run = copied(base, tmp_path / str(number), name)
        try:
            found = find([run], Options())
        except UserError as error:
            assert_is_a_line(str(error), run)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        else:
            assert not any(
                "\n" in line for line in (*found.answers, *found.warnings, *found.verdicts, *found.notes)
            )
        shutil.rmtree(run.parent)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_some_are_compared_and_advised_on_or_refused_in_a_line(
    base: Path, tmp_path: Path, cases: int, capsys: pytest.CaptureFixture[str]
) -> None:
    network, answers = Network(0.02, 20e6, 0.0, math.inf), 0
    for number, name in enumerate(ALL[:: COMPARED if cases <= CASES else 1]):
        run = copied(base, tmp_path / str(number), name)
        for ask in (
            partial(compare, base, run, DEFAULT_OBJECTIVES, "", run.parent, json=False),
            partial(compare, run, base, DEFAULT_OBJECTIVES, "", run.parent, json=False),
            partial(show, console(), [run], network, "latency", "", ""),
        ):
            try:
                ask()
            except UserError as error:
                assert_is_a_line(str(error), run)
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error
            else:
                answers += 1
            shown, warned = capsys.readouterr()
            assert all(character.isprintable() for character in shown.replace("\n", "")), name
            assert warned == "", name
        assert (run.parent / "victim").read_text() == "mine", name
        shutil.rmtree(run.parent)
    assert answers > 0


def test_advice_where_nothing_crosses_says_that_nothing_could_be_tested(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile.ATTACKS["nothing crosses"](run)
    network = Network(0.02, 20e6, 0.0, math.inf)
    advised([run], network)
    assert "could not be tested" in " ".join(capsys.readouterr().out.split())


def copied(base: Path, folder: Path, name: str) -> Path:
    """The run under that attack, beside a file that is none of its business."""
    folder.mkdir()
    (folder / "victim").write_text("mine")
    run = shutil.copytree(base, folder / "run")
    hostile.ATTACKS[name](run)
    return run


def assert_is_a_line(said: str, run: Path) -> None:
    assert said.isprintable()
    assert len(said) < 500 + 2 * len(str(run))


@pytest.mark.parametrize("name", gating(SHOWN, SHOWN[0]))
def test_it_is_shown_or_refused_in_a_line(run: Path, name: str) -> None:
    hostile.ATTACKS[name](run)
    done = command("report", str(run), "--figures", "none")
    assert done.code in (0, 2)
    assert all(character.isprintable() for character in (done.out + done.err).replace("\n", ""))
    if done.code:
        assert len(done.err.splitlines()) == 1
        assert done.err.startswith("error: ")


NAMES = ("model dollars", "codec formula", "point_name dollars", "netem percent")
"""Attacks by names: dollars begin no mathematics, equals signs no formula."""


def test_names_are_drawn_and_written_as_they_are(run: Path) -> None:
    for name in NAMES:
        hostile.ATTACKS[name](run)
    made = report(run, options=Options(figures="none"))
    assert not any(
        "\n=" in path.read_text() or ",=" in path.read_text() for path in made.files if path.suffix == ".csv"
    )
    assert "'=HYPERLINK" in (run / "front.csv").read_text()
    front = next(each for each in drawings(made, each=True) if each.kind == "front")
    assert any("$" in text for text in drawn.texts(drawn.rendered(front.drawn()[0])))


@pytest.mark.deep
def test_figures_tables_and_page_of_such_names_are_made(run: Path) -> None:
    for name in NAMES:
        hostile.ATTACKS[name](run)
    made = report(run)
    (latex,) = (run / "figures").glob("front-*.tex")
    text = latex.read_text().replace(r"\$\textbackslash{}frac\$", "").replace("{tab:front--frac-", "")
    assert "frac" not in text
    assert all(files.kind(path) == "a file" for path in made.files)
