"""A results folder's files with wrong bytes by the thousand: each is read as what it says it is, or refused in a line.

Seeded: a case that fails is named by its number. `--cases N` tries more.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pareto.analysis.findings import Options, find
from pareto.analysis.runs import reading
from pareto.analysis.runs.manifest import read_manifest
from pareto.analysis.runs.requests import latencies_s
from pareto.analysis.schema import KINDS, LINKS, STAGES, TEXT, TRIALS, Kind, Table
from pareto.protocol.errors import UserError
from tests.unit.analysis import hostile

SEED = 15
SHARE, WHOLE = 5, 5000
"""Of the cases: a file that is read stands for so many, a folder that is analysed whole for more."""
TOKENS = (
    *(b"", b"inf", b"nan", b"-1", b"0", b"1e308", b"1e-308", b"9" * 400, b"\xd9\xa3", b"1_0", b"7+14", b"+", b"ok"),
    *(b'"', b'""', b"'", b",", b",,,,", b"\n", b"\r\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80"),
    *(b"=1+1", b"\x1b[2J", b"\xe2\x80\xae", b"$\\x$", b"[/b]", b"../..", b"x" * 2000, b"status", b"latency_s", b"run"),
    *(b"[" * 50, b"{", b"}", b"]", b"null", b"true", b"NaN", b"1e999", b'"\\ud800"', b":", b'{"a":', b"PAR1"),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e19, 1e300, "", "x", "\x1b[2J", "\ud800", [], [1], {}, {"a": []}, "9" * 300),
)


@pytest.fixture(autouse=True)
def no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """That a last line is unfinished is said of thousands."""
    caplog.set_level(logging.ERROR)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = hostile.run(tmp_path_factory.mktemp("fuzzed") / "run")
    for name in ("trials.csv", "stages.csv", "link.csv"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:7]))
    return folder


def test_a_file_is_read_or_refused(run: Path, cases: int) -> None:
    readers: dict[str, Callable[[], None]] = {
        "trials.csv": lambda: as_table(run, TRIALS),
        "stages.csv": lambda: as_table(run, STAGES),
        "link.csv": lambda: as_table(run, LINKS),
        "manifest.json": lambda: as_manifest(run),
        hostile.REQUESTS: lambda: as_requests(run / hostile.REQUESTS),
    }
    whole = {name: (run / name).read_bytes() for name in readers}
    refused = 0
    cases //= SHARE
    for case in range(cases):
        chance = random.Random(f"{SEED} {case}")  # noqa: S311
        name = chance.choice(list(readers))
        (run / name).write_bytes(spoiled(whole[name], name, chance))
        try:
            readers[name]()
        except UserError as error:
            refused += 1
            assert str(error).isprintable(), case
            assert len(str(error)) < 500 + 2 * len(str(run)), case
        except Exception as error:
            raise AssertionError(f"case {case}, {name}: {error!r}") from error
    for name, content in whole.items():
        (run / name).write_bytes(content)
    assert 0.2 * cases < refused < 0.8 * cases, "or it tries only one way"


def test_a_folder_is_analysed_or_refused(run: Path, cases: int) -> None:
    names = ("trials.csv", "stages.csv", "link.csv", "manifest.json")
    whole = {name: (run / name).read_bytes() for name in names}
    for case in range(cases // WHOLE):
        chance = random.Random(f"{SEED} whole {case}")  # noqa: S311
        while True:  # until one that the reader lets in: whatever that is, the rest must bear it
            for name, content in whole.items():
                (run / name).write_bytes(content if chance.random() < 0.5 else spoiled(content, name, chance))
            try:
                find([run], Options())
            except UserError:
                continue
            except Exception as error:
                raise AssertionError(f"case {case}: {error!r}") from error
            break
    for name, content in whole.items():
        (run / name).write_bytes(content)


def as_table(run: Path, table: Table) -> None:
    rows, _ = reading.read(run, table)
    for column in rows.column_names:
        if column in TEXT:
            texts = rows[column].to_pylist()
            assert None not in texts
            assert KINDS[column] is Kind.FREE or all(text.isprintable() for text in texts)
        else:
            values = rows[column].to_numpy()
            assert not np.isinf(values).any()
            assert KINDS[column] is not Kind.POSITIVE or not (values <= 0).any()


def as_manifest(run: Path) -> None:
    found, notes = read_manifest(run)
    json.dumps(found, allow_nan=False).encode()
    assert all(note.isprintable() for note in notes)


def as_requests(file: Path) -> None:
    found_s = latencies_s(file)
    assert np.isfinite(found_s).all()
    assert (found_s > 0).all()


def spoiled(content: bytes, name: str, chance: random.Random) -> bytes:
    """The content with a few changes: a field or a value of it, or bytes anywhere."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if name.endswith(".csv") and chance.random() < 0.7:
            fields = content.split(b",")
            fields[chance.randrange(len(fields))] = chance.choice(TOKENS)
            content = b",".join(fields)
        elif name.endswith(".json") and chance.random() < 0.7:
            content = revalued(content, chance)
        else:
            content = scrambled(content, chance)
    return content


def scrambled(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content) + 1)
    end = min(len(content), begin + chance.choice((0, 1, 1, 4, 60)))
    how = chance.randrange(4)
    if how == 0:
        return content[:begin] + chance.choice(TOKENS) + content[end:]
    if how == 1:
        return content[:begin] + chance.randbytes(end - begin) + content[end:]
    if how == 2:
        return content[:end] + content[begin:]
    return content[:begin] if chance.random() < 0.2 else content[:begin] + content[end:]


def revalued(content: bytes, chance: random.Random) -> bytes:
    """JSON with another value somewhere, or another key; unchanged if it is none any more."""
    try:
        made = place = json.loads(content)
    except ValueError:
        return content
    while isinstance(place, dict | list) and place:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = chance.choice(keys)
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.2:
            place[key] = chance.choice(VALUES)
            break
        place = place[key]
    return json.dumps(made).encode()
