"""Tables in LaTeX: as text, and where TeX is installed as it sets them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.paired import paired
from pareto.analysis.fronts.front import front
from pareto.analysis.methods import made
from pareto.analysis.runs.load import load
from pareto.analysis.tables.columns import sureness
from pareto.analysis.tables.latex import escaped, file_name, front_latex, paired_latex
from pareto.analysis.tables.overview import chosen_points
from pareto.protocol.errors import UserError
from tests.unit import example_chain, example_run

NASTY = r"a_b&c%d$e#f{g}h~i^j\k<l>m|n…o"
PLAIN = re.compile(r"\\[a-zA-Z]+|\\.|\$[^$]*\$")
"""Commands, escaped signs and formulas: what is left may hold nothing that TeX takes for itself."""


def trials(tmp_path: Path, **options: Any) -> pd.DataFrame:
    return load([example_run.write(tmp_path, example_run.trials(**options))])


def check(latex: str) -> list[list[str]]:
    """That it is well-formed; returns the cells, row by row, heads first."""
    latex = re.sub(r"^%.*\n", "", latex, flags=re.MULTILINE)
    open_ = re.findall(r"\\begin\{(\w+)\}", latex)
    closed = re.findall(r"\\end\{(\w+)\}", latex)
    assert open_ == ["table", "tabular"]
    assert closed == open_[::-1]
    bare = PLAIN.sub("", latex)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[_#$%^~<>\\]", bare), re.findall(r".{20}[_#$%^~<>\\].{20}", bare)
    latex.encode("ascii")
    aligned = re.search(r"\\begin\{tabular\}\{@\{\}(.+)@\{\}\}", latex)
    assert aligned is not None
    body = latex.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line.strip().removesuffix(r"\\") for line in body.splitlines() if line.endswith(r"\\")]
    cells = [
        [re.sub(r"^\{(.*)\}$", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)&", row)] for row in rows
    ]
    assert {len(row) for row in cells} == {len(aligned[1])}
    assert [latex.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    return cells


def span(cell: str) -> tuple[float, float]:
    found = re.fullmatch(r"\\numrange\{(.*)\}\{(.*)\}", cell)
    assert found is not None
    return float(found[1]), float(found[2])


def test_escaping() -> None:
    assert escaped(NASTY) == (
        r"a\_b\&c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
        r"\textless{}l\textgreater{}m\textbar{}n\ldots{}o"
    )
    assert escaped("5 µs → 3×") == r"5 $\mu$s $\rightarrow$ 3$\times$"  # noqa: RUF001
    assert escaped("点") == "?"


def test_the_points_of_the_terminal_as_a_table(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=100)
    chosen = ("backend", "point", "latency", "latency-interval", "images", "sure")
    latex = front_latex(rows, "local: relay", chosen=chosen)
    heads, units, *cells = check(latex)
    assert heads == ["Backend", "Point", "Latency", r"95\,\%", "Images", "Sure"]
    scale = 1e3 if units[2] == "(ms)" else 1
    shown, _ = chosen_points(rows)
    assert len(cells) == len(shown)
    assert [row[0] for row in cells] == [backend.replace("none", "any") for backend in shown["backend"]]
    for row, (_, of) in zip(cells, shown.iterrows(), strict=True):
        assert float(row[2]) == pytest.approx(scale * of["latency_s"], rel=0.01)
        if row[3] != "--":
            ends = scale * of["latency_low_s"], scale * of["latency_high_s"]
            assert span(row[3]) == pytest.approx(ends, rel=0.01)
        assert row[1].endswith("*") == of["on_front"]
        sure = sureness(of["probability_all"]).replace("<", r"\textless{}").replace(">", r"\textgreater{}")
        assert row[5].replace("--", "-") == sure, "as on the screen, and of the same front"
    assert r"\label{tab:front-mobilenetv2-200ms-5mbit}" in latex
    assert latex == snapshot


def test_too_few_rounds_have_no_interval_and_no_column_for_it(tmp_path: Path) -> None:
    heads, *_ = check(front_latex(front(trials(tmp_path, rounds=1))))
    assert "Sure" not in heads


def test_what_is_not_known_of_one_point_is_a_dash(tmp_path: Path) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=50)
    first = rows.index[rows["on_front"]][0]
    rows.loc[first, ["latency_efficiency", "probability_all"]] = np.nan
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
    assert float(row[3]) == pytest.approx(scale * by_point.loc["1", "latency_difference_s"], rel=0.01)
    assert row[5].startswith("-"), "fewer images"
    starred = sum(row[1].endswith("*") for row in cells)
    assert starred == compared["latency_significant"].eq(True).sum()


def test_without_a_front_or_a_pair_there_is_no_table(tmp_path: Path) -> None:
    failed = trials(tmp_path, rounds=1, status="failed", latency_s="", throughput_ips="")
    assert front_latex(front(failed)) == paired_latex(paired(failed)) == ""


def test_the_name_of_a_table_s_file() -> None:
    assert file_name("front", ("my_net", "wifi")) == "front-my-net-wifi.tex"
    assert file_name("front", ("my_net", "wifi"), "column") == "front-my-net-wifi-column.tex"


def test_a_column_is_narrower(tmp_path: Path) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=50)
    page, column = (check(front_latex(rows, width=width))[0] for width in ("page", "column"))
    assert column == ["Backend", "Point", "Latency", "Images", "Sure"]
    assert [head for head in page if head in column] == column


def test_columns_may_be_chosen_and_stand_in_that_order(tmp_path: Path) -> None:
    rows = front(trials(tmp_path, rounds=7), resamples=50)
    chosen = ("point", "images", "sure", "latency")
    table = front_latex(rows, width="column", chosen=chosen)
    assert check(table)[0] == ["Point", "Images", "Sure", "Latency"]
    with pytest.raises(UserError, match="--columns speed: no column; there are backend, point, "):
        front_latex(rows, chosen=("point", "speed"))


def test_captions_name_the_version_and_the_settings(tmp_path: Path) -> None:
    manifest = {
        "pareto": "1.2.3",
        "sweep": {"seed": 7, "threads": 2},
        "models": {"net": {"weights": "/home/me/w_1.pth", "input": "uint8"}},
    }
    loaded = trials(tmp_path, rounds=7)
    told = f"lab.yaml. Made by {made([manifest])}"
    for latex in (front_latex(front(loaded, resamples=50), told), paired_latex(paired(loaded), told)):
        check(latex)
        assert (
            "Testbed: lab.yaml. Made by pareto 1.2.3 with given weights, uint8 input, 2 threads a host, seed 7."
            in (latex)
        )


@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no pdflatex: apt install texlive-latex-recommended texlive-science",
)
@pytest.mark.parametrize(("width", "options"), [("page", "10pt"), ("column", "10pt,twocolumn")])
def test_tables_fit_their_column(tmp_path: Path, width: str, options: str) -> None:
    if not subprocess.run(["kpsewhich", "siunitx.sty"], capture_output=True).stdout:
        pytest.skip("no siunitx: apt install texlive-science")
    every = [row for row in example_run.trials(rounds=7) if row["point"] in (0, 3, 7, 14, 20, 21)]
    usual = example_run.with_energy([dict(row) for row in every])
    nasty = [
        row
        | {
            "model": NASTY,
            "netem": "50%_loss",
            "backend": f"{row['backend']}:{NASTY[:4]}",
            "point_name": NASTY,
        }
        for row in every
    ]
    slow = [
        row | {"latency_s": 1234.5 * row["latency_s"], "throughput_ips": 0.001 * row["throughput_ips"]}
        for row in every
    ]
    tables = []
    for name, rows in {"usual": usual, "nasty": nasty, "slow": slow}.items():
        loaded = load([example_run.write(tmp_path / name, rows)])
        tables += [
            front_latex(front(loaded, resamples=50), "a testbed", width=width),
            paired_latex(paired(loaded), width=width),
        ]
    rows, staged = example_chain.trials(example_chain.splits(2, (0, 7, 21)), rounds=2)
    chain = load([example_chain.write(tmp_path / "chain", rows, staged)])
    tables.append(front_latex(front(chain, resamples=50), width=width))
    for number, table in enumerate(tables):
        assert table
        (tmp_path / f"{number}.tex").write_text(table)
    inputs = "".join(rf"\input{{{number}}}" for number in range(len(tables)))
    document = rf"""\documentclass[{options}]{{article}}
\usepackage{{booktabs,siunitx}}
\hbadness=10000 \vbadness=10000 \emergencystretch=10em
\begin{{document}}
\typeout{{width \the\columnwidth}}
{inputs}
\end{{document}}
"""
    (tmp_path / "paper.tex").write_text(document)
    made = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert made.returncode == 0, made.stdout[-2000:]
    assert "Overfull" not in made.stdout, re.findall(r"Overfull.*", made.stdout)
    assert "undefined" not in made.stdout
