"""Text that somebody else may have written."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from pareto.analysis import as_json
from pareto.basics.escaping import say, short, spreadsheet, terminal
from pareto.hosts.host import to_stderr

OBEYED = "a\x1b[2J\x9b31m\u202eb\udcff"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mobilenet_v2 µ → 12", "mobilenet_v2 µ → 12"),
        ("two\nlines", "two\nlines"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten\tby\x08", "over\\rwritten\\tby\\x08"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("line\u2028break", "line\\u2028break"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert terminal(text) == shown
    shown.encode()


def test_what_is_printed_is_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    say(OBEYED)
    to_stderr(OBEYED)
    shown = "a\\x1b[2J\\x9b31m\\u202eb\\udcff\n"
    assert capfd.readouterr() == (shown, shown)


def test_json_of_it_is_printable_and_the_same() -> None:
    made = as_json.text({"µ": OBEYED})
    assert all(each.isprintable() or each == "\n" for each in made)
    assert "µ" in made
    assert json.loads(made) == {"µ": OBEYED}


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\N{FULLWIDTH EQUALS SIGN}"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(first: str) -> None:
    cells = pd.DataFrame({"text": [f'{first}HYPERLINK("http://x")', "a=b", ""], "number": [-1.0, 2, 3]})
    made = spreadsheet(cells)
    assert made["text"].tolist() == [f"'{cells['text'][0]}", "a=b", ""]
    assert made["number"].tolist() == [-1.0, 2, 3]


def test_a_category_is_text() -> None:
    cells = pd.DataFrame({"text": pd.Categorical(["=x", "y", "=x"])})
    assert spreadsheet(cells)["text"].tolist() == ["'=x", "y", "'=x"]


def test_long_text_is_cut() -> None:
    assert short(" a\nb  c ") == "a b c"
    assert len(short("x" * 200_000)) == 300
    assert short("x" * 300) == "x" * 300
