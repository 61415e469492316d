"""Tables in LaTeX, as text: there is no TeX here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.comparing.paired import paired
from analysis.fronts.front import front
from analysis.runs.load import load
from analysis.tables.latex import escaped, front_latex, paired_latex, save
from tests.unit import example_chain, example_run

NASTY = r"a_b&c%d$e#f{g}h~i^j\k<l>m|n…o"
PLAIN = re.compile(r"\\[a-zA-Z]+|\\.|\$[^$]*\$")
"""Commands, escaped signs and formulas: what is left may hold nothing that TeX takes for itself."""


def trials(tmp_path: Path, **options: Any) -> pd.DataFrame:
    return load([example_run.write(tmp_path, example_run.trials(**options))])


def check(latex: str) -> list[list[str]]:
    """That it is well-formed; returns the cells, row by row, heads first."""
    open_ = re.findall(r"\\begin\{(\w+)\}", latex)
    closed = re.findall(r"\\end\{(\w+)\}", latex)
    assert open_ == ["table", "tabular"]
    assert closed == open_[::-1]
    bare = PLAIN.sub("", latex)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[_#$%^~<>\\]", bare), re.findall(r".{20}[_#$%^~<>\\].{20}", bare)
    latex.encode("ascii")
    aligned = re.search(r"\\begin\{tabular\}\{([lr]+)\}", latex)
    assert aligned is not None
    body = latex.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line.strip().removesuffix(r"\\") for line in body.splitlines() if line.endswith(r"\\")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)&", row)] for row in rows]
    assert {len(row) for row in cells} == {len(aligned[1])}
    assert [latex.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    return cells


def test_escaping() -> None:
    assert escaped(NASTY) == (
        r"a\_b\&c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
        r"\textless{}l\textgreater{}m\textbar{}n\ldots{}o"
    )
    assert escaped("5 µs → 3×") == r"5 $\mu$s $\rightarrow$ 3$\times$"  # noqa: RUF001
    assert escaped("点") == "?"


def test_the_front_as_a_table(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=100)
    latex = front_latex(rows, "local: relay")
    heads, units, *cells = check(latex)
    assert heads[:3] == ["Backend", "Point", "Latency"]
    assert dict(zip(heads, units, strict=True))["Throughput"] == "(images/s)"
    assert dict(zip(heads, units, strict=True))["Latency"] in ("(ms)", "(s)")
    shown = rows[rows["on_backend_front"]]
    assert len(cells) == len(shown)
    assert [row[0] for row in cells if row[0]] == ["tcp", "rpc", "any"]
    first = shown[shown["backend"] == "tcp"].sort_values("latency_s").iloc[0]
    scale = 1e3 if "(ms)" in units else 1
    assert float(cells[0][2]) == pytest.approx(scale * first["latency_s"], rel=0.01)
    low, high = map(float, cells[0][3].split(" to "))
    assert (low, high) == pytest.approx(
        (scale * first["latency_low_s"], scale * first["latency_high_s"]), rel=0.01
    )
    assert "Energy" not in heads, "not measured: no column"
    assert r"\label{tab:front-mobilenetv2-200ms-5mbit}" in latex
    caption = re.search(r"\\caption\{(.*)\}", latex)
    assert caption is not None and caption[1] == snapshot
    stars = [row[1].endswith("*") for row in cells]
    assert sum(stars) == shown["on_front"].sum() > 0


def test_too_few_rounds_have_no_interval_and_no_column_for_it(tmp_path: Path) -> None:
    heads, *_ = check(front_latex(front(trials(tmp_path, rounds=1))))
    assert r"95\,\%" not in heads
    assert "$p$" not in heads


def test_what_is_not_known_of_one_point_is_a_dash(tmp_path: Path) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=50)
    first = rows.index[rows["on_backend_front"]][0]
    rows.loc[first, ["latency_efficiency", "probability"]] = np.nan
    assert sum(row.count("--") for row in check(front_latex(rows))) >= 2


def test_names_that_tex_would_choke_on(tmp_path: Path) -> None:
    rows = [
        row | {"model": NASTY, "netem": "50%_loss", "backend": f"{row['backend']}:{NASTY}"}
        for row in example_run.trials()
    ]
    loaded = load([example_run.write(tmp_path, [row | {"point_name": "block_1&2"} for row in rows])])
    latex = front_latex(front(loaded, resamples=50), NASTY)
    check(latex)
    assert r"block\_1\&2" in latex
    check(paired_latex(paired(loaded)))
    label = re.search(r"\\label\{(.*)\}", latex)
    assert label is not None and re.fullmatch(r"[A-Za-z0-9:.+-]+", label[1])


def test_a_chain(tmp_path: Path) -> None:
    rows, staged = example_chain.trials(example_chain.splits(2, (0, 7, 21)), rounds=2)
    check(front_latex(front(load([example_chain.write(tmp_path, rows, staged)]), resamples=50)))


def test_conditions_have_labels_of_their_own(tmp_path: Path) -> None:
    labels = set()
    for number, more in enumerate(({}, {"batch_size": 8}, {"codec": "fp16"}, {"in_flight_asked": "4"})):
        latex = front_latex(front(trials(tmp_path / str(number), rounds=1, **more)))
        labels.add(re.findall(r"\\label\{.*\}", latex)[0])
    assert len(labels) == 4


def test_backends_in_pairs(tmp_path: Path) -> None:
    compared = paired(trials(tmp_path, rounds=8))
    _, units, *cells = check(paired_latex(compared))
    assert cells[0][0] == "rpc $-$ tcp"
    assert cells[-1][1] == "all"
    assert len(cells) == len(compared[compared["pairs"] > 0])
    by_point = compared.set_index("point")
    row = next(row for row in cells if row[1] == "1")
    scale = 1e3 if units[3] == "(ms)" else 1
    told = float(row[3].strip("*").replace("$+$", ""))
    assert told == pytest.approx(scale * by_point.loc["1", "latency_difference_s"], rel=0.01)
    assert row[3].startswith("$+$"), "longer"
    assert next(row for row in cells if row[1] == "1")[6].startswith("$-$"), "fewer images"
    starred = sum(row[3].endswith("*") for row in cells)
    assert starred == compared["latency_significant"].eq(True).sum()


def test_without_a_front_or_a_pair_there_is_no_table(tmp_path: Path) -> None:
    failed = trials(tmp_path, rounds=1, status="failed", latency_s="", throughput_ips="")
    assert front_latex(front(failed)) == paired_latex(paired(failed)) == ""


def test_saved_as_text_that_any_tex_reads(tmp_path: Path) -> None:
    path = save("front", ("my_net", "wifi"), "\\begin{table}\n", tmp_path / "figures")
    assert path == tmp_path / "figures" / "front-my-net-wifi.tex"
    assert path.read_bytes() == b"\\begin{table}\n"
