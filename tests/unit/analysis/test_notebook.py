"""What a notebook gets and shows: findings, advice and comparisons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pareto import analysis
from pareto.analysis.notebook import html, of_findings
from pareto.analysis.statistics.doubt import Doubt
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit.example_findings import findings
from tests.unit.example_run import trials, write

EXAMPLE = REPOSITORY / "results" / "example"


def test_findings_show_the_answer_first_and_no_markup_of_others(tmp_path: Path) -> None:
    rows = [row | {"model": "<script>x"} for row in trials(rounds=2)]
    found = findings(tmp_path, rows, answers=["cut at 7"], doubts=[Doubt("too few rounds")])
    shown = of_findings(found)
    assert shown.startswith("<pre")
    assert "<script" not in shown
    assert "&lt;script&gt;x" in shown
    assert shown.index("cut at 7") < shown.index("; eff = ") < shown.index("attention: too few rounds")


def test_what_is_on_a_line_stays_on_it_and_is_text() -> None:
    shown = html("a[bold]b :smile: \x1b[31m", "next")
    assert "a[bold]b :smile:" in shown
    assert "\x1b" not in shown


def test_advice_and_comparison_take_what_load_takes_and_are_a_sentence_as_text() -> None:
    advice = analysis.advise(str(EXAMPLE), delay_s=0.2, rate_bps=5e6)
    shown = re.sub(r"<[^>]*>", "", analysis.advise([EXAMPLE], 0.2, 5e6)._repr_html_())
    assert " ".join(shown.split()).startswith(str(advice))
    assert "keep everything on the edge" in str(advice)
    compared = analysis.compare(str(EXAMPLE), [EXAMPLE])
    assert str(compared).splitlines() == compared.sentences
    assert "B against A" in compared._repr_html_()


def test_one_run_is_compared_with_one(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, trials(rounds=1))
    with pytest.raises(UserError, match="2 runs") as refused:
        analysis.compare(tmp_path, EXAMPLE)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="rates above 0"):
        analysis.advise(EXAMPLE, delay_s=0.1, rate_bps=0)
