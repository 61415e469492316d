"""Results folders that somebody hostile has made, or whose bytes are wrong: each is read as what it says it is, or
refused in one line.

Bytes are changed by seeded chance: a case that fails is named by its number. `--cases N` tries more.
"""

from __future__ import annotations

import json
import logging
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareto.analysis.figures.shown import drawings
from pareto.analysis.findings import Options, find
from pareto.analysis.prediction.network import Network
from pareto.analysis.reporting import report
from pareto.analysis.runs import reading
from pareto.analysis.runs.load import joined, links
from pareto.analysis.runs.manifest import read_manifest
from pareto.analysis.runs.requests import latencies_s, request_latencies
from pareto.analysis.schema import KINDS, LINKS, STAGES, TEXT, TRIALS, Kind, Table
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

SHOWN = (
    *("reason escapes", "manifest.json escapes", "unknown column with escapes", "trials.csv model 'escapes'"),
    *("trials.csv model 'markup'", "trials.csv netem 'latex'", "trials.csv latency_s 'inf'"),
    *("two writers", "chains among pairs"),
)
"""Attacks on what is shown: by the command itself."""
NETWORK = Network(0.02, 20e6, 0.0, math.inf)


def lines_of(run: Path) -> None:
    found = find([run], Options())
    assert not any("\n" in line for line in (*found.answers, *found.warnings, *found.verdicts, *found.notes))


def compared(*runs: Path) -> None:
    compare(*runs, DEFAULT_OBJECTIVES, "", runs[0].parent, fail_if="", json=False)


ASKED: dict[str, tuple[int, tuple[Callable[[Path, Path], object], ...]]] = {
    "read": (45, (lambda run, _: request_latencies(run, joined(run).trials), lambda run, _: links([run]))),
    "analysed": (400, (lambda run, _: lines_of(run),)),
    "compared": (
        1000, (lambda run, other: compared(other, run), compared, lambda run, _: advised([run], NETWORK)),
    ),
}  # fmt: skip
"""Attacks on a run beside a fine one; the gate tries every 45th attack, ...; with `--deep` or `--cases` all."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile.run(tmp_path_factory.mktemp("hostile") / "run")


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Iterator[Path]:
    """A run's folder beside a file that is none of its business."""
    (tmp_path / "victim").write_text("mine")
    yield shutil.copytree(base, tmp_path / "run")
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize(("every", "asked"), ASKED.values(), ids=ASKED)
def test_it_is_taken_or_refused_in_a_line(
    base: Path, tmp_path: Path, cases: int, capsys: pytest.CaptureFixture[str], every: int, asked: Any
) -> None:
    answers = refused = 0
    for number, name in enumerate(sorted(hostile.ATTACKS)[:: every if cases <= CASES else 1]):
        (folder := tmp_path / str(number)).mkdir()
        (folder / "victim").write_text("mine")
        run = shutil.copytree(base, folder / "run")
        hostile.ATTACKS[name](run)
        for ask in asked:
            try:
                ask(run, base)
                answers += 1
            except UserError as error:
                refused += 1
                assert_is_a_line(str(error), run)
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error
            shown, warned = capsys.readouterr()
            assert shown.replace("\n", "").isprintable() or not shown, name
            assert warned == "", name
        assert (folder / "victim").read_text() == "mine", name
        shutil.rmtree(folder)
    assert answers > 0
    assert refused > 100 / every or every != ASKED["read"][0]


def assert_is_a_line(said: str, run: Path) -> None:
    assert said.isprintable()
    assert len(said) < 500 + 2 * len(str(run))


def test_advice_where_nothing_crosses_says_that_nothing_could_be_tested(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile.ATTACKS["nothing crosses"](run)
    for part in advised([run], NETWORK).parts:
        console().print(part)
    assert "could not be tested" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", gating(SHOWN, SHOWN[0]))
def test_it_is_shown_or_refused_in_a_line(run: Path, name: str) -> None:
    hostile.ATTACKS[name](run)
    done = command("report", str(run), "--figures", "none")
    assert (done.out + done.err).replace("\n", "").isprintable()
    assert done.code == 0 or (done.code == 2 and re.fullmatch("error: .*\n", done.err))


@pytest.mark.parametrize("figures", gating(["none", "auto"], "none"))
def test_names_are_drawn_and_written_as_they_are(run: Path, figures: str) -> None:
    """Dollars begin no mathematics, equals signs no formula."""
    for name in ("model 'dollars'", "codec 'formula'", "point_name 'dollars'", "netem 'percent'"):
        hostile.ATTACKS[f"trials.csv {name}"](run)
    made = report(run, options=Options(figures=figures))
    assert all(files.kind(path) == "a file" for path in made.files)
    tables = [path.read_text() for path in made.files if path.suffix == ".csv"]
    assert not any("\n=" in table or ",=" in table for table in tables)
    assert "'=HYPERLINK" in (run / "front.csv").read_text()
    front = next(each for each in drawings(made, each=True) if each.kind == "front")
    assert any("$" in text for text in drawn.texts(drawn.rendered(front.drawn()[0])))
    for latex in (run / "figures").glob("front-*.tex"):
        text = latex.read_text().replace(r"\$\textbackslash{}frac\$", "").replace("{tab:front--frac-", "")
        assert "frac" not in text


SHARE, WHOLE = 5, 1000
"""A file that is read stands for so many cases; of as many that the reader takes, one folder is analysed whole."""
TOKENS = (
    *(b"", b"inf", b"nan", b"-1", b"0", b"1e308", b"1e-308", b"9" * 400, b"\xd9\xa3", b"1_0", b"7+14", b"+", b"ok"),
    *(b'"', b'""', b"'", b",", b",,,,", b"\n", b"\r\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80"),
    *(b"=1+1", b"\x1b[2J", b"\xe2\x80\xae", b"$\\x$", b"[/b]", b"../..", b"x" * 2000, b"status", b"latency_s", b"run"),
    *(b"[" * 50, b"{", b"}", b"]", b"null", b"true", b"NaN", b"1e999", b'"\\ud800"', b":", b'{"a":', b"PAR1"),
)  # fmt: skip
JSON = (
    *(
        b"null",
        b"true",
        b"-1",
        b"1e19",
        b"1e300",
        b'""',
        b'"x"',
        b'"\\ud800"',
        b"[]",
        b"{}",
        b'{"a": []}',
        b"[1]",
    ),
)


@pytest.fixture
def few(base: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """A run of few rows; that a last line is unfinished is said of thousands."""
    caplog.set_level(logging.ERROR)
    folder = shutil.copytree(base, tmp_path / "few")
    for name in ("trials.csv", "stages.csv", "link.csv"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:7]))
    return folder


def as_table(run: Path, table: Table) -> None:
    rows, _ = reading.read(run, table)
    for column in rows.column_names:
        if column not in TEXT:
            values = rows[column].to_numpy()
            assert not np.isinf(values).any()
            assert KINDS[column] is not Kind.POSITIVE or not (values <= 0).any()
        else:
            texts = rows[column].to_pylist()
            assert KINDS[column] is Kind.FREE or "".join(texts).isprintable()


def as_manifest(run: Path) -> None:
    found, notes = read_manifest(run)
    json.dumps(found, allow_nan=False).encode()
    assert all(note.isprintable() for note in notes)


def as_requests(run: Path) -> None:
    found_s = latencies_s(run / hostile.REQUESTS)
    assert np.isfinite(found_s).all()
    assert (found_s > 0).all()


READERS: dict[str, Callable[[Path], None]] = {
    **{table.file: partial(as_table, table=table) for table in (TRIALS, STAGES, LINKS)},
    "manifest.json": as_manifest,
    hostile.REQUESTS: as_requests,
}


def test_a_file_of_wrong_bytes_is_read_or_refused(few: Path, cases: int) -> None:
    """The rest must bear all that the reader lets in."""
    whole = {name: (few / name).read_bytes() for name in READERS}
    taken, cases = 0, cases // SHARE
    for case in range(cases):
        chance = random.Random(f"15 {case}")  # noqa: S311
        name = chance.choice(list(READERS))
        (few / name).write_bytes(spoiled(whole[name], name, chance))
        try:
            READERS[name](few)
            taken += 1
            if taken % WHOLE == 1:
                find([few], Options())
        except UserError as error:
            assert_is_a_line(str(error), few)
        except Exception as error:
            raise AssertionError(f"case {case}, {name}: {error!r}") from error
        (few / name).write_bytes(whole[name])
    assert 0.2 * cases < taken < 0.8 * cases, "or it tries only one way"


def spoiled(content: bytes, name: str, chance: random.Random) -> bytes:
    """The content with a few changes: a field or a value of it, or bytes anywhere."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if name.endswith(".csv") and chance.random() < 0.7:
            fields = content.split(b",")
            fields[chance.randrange(len(fields))] = chance.choice(TOKENS)
            content = b",".join(fields)
        elif name.endswith(".json") and chance.random() < 0.7:
            values = re.findall(rb': ("[^"]*"|[0-9.]+|true|null)', content) or [b"x"]
            content = content.replace(chance.choice(values), chance.choice(JSON), 1)
        else:
            begin = chance.randrange(len(content) + 1)
            end = min(len(content), begin + chance.choice((0, 1, 1, 4, 60)))
            instead = (chance.choice(TOKENS), chance.randbytes(end - begin), content[begin:end] * 2, b"")
            rest = content[end:] if chance.random() < 0.95 else b""
            content = content[:begin] + chance.choice(instead) + rest
    return content
