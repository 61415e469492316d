"""Tables on the screen, as CSV and in LaTeX: what they say, whole, and that they fit."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console, RenderableType
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.between_runs import CHANGES, Comparison
from pareto.analysis.comparing.paired import paired
from pareto.analysis.figures.drawing import stem
from pareto.analysis.fronts.front import front
from pareto.analysis.methods import made
from pareto.analysis.naming import cell_names
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.compare import MOST_TABLES, compare_table, write
from pareto.analysis.tables.latex import escaped, front_latex, paired_latex
from pareto.analysis.tables.report import MOST_ROWS, chosen_points, codecs_tables, overview
from pareto.analysis.tables.table import sureness
from pareto.protocol.errors import UserError
from tests.unit import example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_findings import compared
from tests.unit.example_run import trials, with_energy
from tests.unit.example_run import write as write_run

NASTY = r"a_b&c%d$e#f{g}h~i^j\k<l>m|n…o"
PLAIN = re.compile(r"\\[a-zA-Z]+|\\.|\$[^$]*\$")
"""Commands, escaped signs and formulas: what is left may hold nothing that TeX takes for itself."""
JOULES = ("latency", "energy")


def analysed(folder: Path, rows: list[dict[str, Any]], *asked: Any) -> pd.DataFrame:
    return front(load([write_run(folder, rows)]), *asked)


def of_each(rows: pd.DataFrame, *asked: Any) -> list[RenderableType]:
    return [overview(of, *asked, most=len(of)) for _, of in rows.groupby(CONDITION, dropna=False)]


def printed(*tables: RenderableType) -> str:
    """The text of tables in a terminal of 80 columns, in which nothing is wider, cut, or coloured."""
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(*tables)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert not set("…\x1b") & set(text)
    return text


def words(*tables: RenderableType) -> str:
    return " ".join(printed(*tables).split())


def of_a_chain(folder: Path) -> Sequence[RenderableType]:
    return of_each(example_chain.analysed([(3, 5), (5, 5), (21, 21)], rounds=3)[0])


def of_other_objectives(folder: Path) -> Sequence[RenderableType]:
    few = [row for row in with_energy(trials(rounds=1), server=False) if row["point"] in (0, 7, 20, 21)]
    asked = JOULES, "latency_s < 0.5"
    return of_each(analysed(folder, few, *asked), *asked)


def of_a_codec(folder: Path) -> Sequence[RenderableType]:
    rows = front(codecs(codecs=("none", "int8"), rounds=3))
    assert "accuracy" not in printed(*of_each(rows[rows["codec"] == "none"]))
    return of_each(rows[rows["codec"] == "int8"])


def of_all_codecs(folder: Path) -> Sequence[RenderableType]:
    data = codecs(rounds=3)
    data.loc[data["codec"] == "fp16", ["agreement", "output_error"]] = np.nan
    return codecs_tables(front(data))


def of_codecs_that_cost_little(folder: Path) -> Sequence[RenderableType]:
    asked = ("latency", "throughput"), "agreement >= 95%"
    assert not codecs_tables(front(codecs(codecs=("int8",), rounds=1)))
    return codecs_tables(front(codecs(rounds=3), *asked), *asked)


@pytest.mark.parametrize(
    "tables", [of_a_chain, of_other_objectives, of_a_codec, of_all_codecs, of_codecs_that_cost_little]
)
def test_a_table(
    tables: Callable[[Path], Sequence[RenderableType]], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    assert printed(*tables(tmp_path)) == snapshot


def test_without_a_front_the_table_says_why(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = trials(rounds=1)
    joules, few = (*JOULES, "payload"), (("latency", "throughput"), "latency_s < 1us")
    failed = [row | {"status": "failed"} for row in rows]
    said = [words(*of_each(analysed(tmp_path / "j", rows, joules), joules)).rpartition("; ")[2]]
    said.append(words(*of_each(analysed(tmp_path / "w", rows, *few), *few)))
    said.append(words(*of_each(analysed(tmp_path / "f", failed))))
    assert said == snapshot


@pytest.mark.parametrize(
    ("share", "said"), [(0.714, "71"), (0.996, ">99"), (1.0, ">99"), (0.004, "<1"), (np.nan, "-")]
)
def test_no_probability_is_stated_as_all_or_nothing(share: float, said: str) -> None:
    assert sureness(share) == said


def test_every_point_has_its_probability_and_a_star_on_the_front(tmp_path: Path) -> None:
    rows = analysed(tmp_path, trials(rounds=6))
    lines = [line.split() for line in printed(*of_each(rows)).splitlines()]
    shown = {(cells[0], cells[1].rstrip("*")): cells for cells in lines if len(cells) > 5}
    assert len(rows) > MOST_ROWS
    for row in rows.itertuples():
        cells = shown[row.backend.replace("none", "any"), row.point]
        assert cells[-1] == sureness(row.probability_all)
        assert cells[1].endswith("*") == row.on_front


@pytest.mark.parametrize(
    ("labels", "said"), [({}, "agreement of 200"), ({"top1": 0.9, "top1_images": 400}, "top-1 of 400")]
)
def test_accuracy_among_the_objectives_says_which_it_is(labels: dict[str, Any], said: str) -> None:
    asked = ("latency", "accuracy")
    assert f"accuracy ({said} images)" in words(*of_each(front(codecs(rounds=1, **labels), asked), asked))


def test_what_was_left_out_is_counted_once_and_of_every_codec() -> None:
    """Where nothing crosses one trial stands for both codecs; where something does, each has its own."""
    data = codecs(codecs=("none", "int8"), rounds=3)
    data.loc[(data["round"] == 1) & data["point"].isin(["1", "4"]), "status"] = "failed"
    assert "3 trials left out" in words(overview(front(data)))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """B takes a tenth less at odd points, lacks rpc, and was made with other settings."""
    profiles = [{"200ms-5mbit": {"edge_to_server": {"rate_bps": rate}}} for rate in (5e6, 6e6)]
    sweeps = [{"trials": 8, "congestion": congestion} for congestion in (None, "bbr")]
    made = [{"profiles": of, "sweep": sweep} for of, sweep in zip(profiles, sweeps, strict=True)]
    return compared(tmp_path_factory.mktemp("runs"), *made, b=("tcp",))


def test_of_two_runs_the_conclusion_comes_first_then_doubts_then_each_point(
    comparison: Comparison, snapshot: SnapshotAssertion
) -> None:
    # Its first lines are where the runs are.
    text = printed(compare_table(comparison)).partition("\n\n")[2]
    assert "\n".join(line.rstrip() for line in text.splitlines()) == snapshot
    few = replace(comparison, differences=comparison.differences.assign(note="too few rounds"))
    assert "too few rounds" in words(compare_table(few))


def test_of_many_points_those_that_matter_and_of_many_conditions_the_sentences(
    comparison: Comparison,
) -> None:
    rows, fronts = comparison.differences, comparison.fronts
    named = [name for change in CHANGES for name in fronts.iloc[0][change].split("; ")]
    more = pd.concat([rows, rows.assign(backend="rpc", latency_significant=False)], ignore_index=True)
    hidden = ~(more["latency_significant"] | cell_names(more).isin(named))
    text = words(compare_table(replace(comparison, differences=more)))
    assert f"{hidden.sum()} points that neither differ significantly" in text
    names = map(str, range(MOST_TABLES + 1))
    of_each = zip(*((rows.assign(netem=name), fronts.assign(netem=name)) for name in names), strict=True)
    rows, fronts = map(pd.concat, of_each)
    text = printed(compare_table(replace(comparison, differences=rows, fronts=fronts)))
    assert "21*" not in text, "no table"
    assert "compare.csv" in text


def test_a_comparison_as_csv(comparison: Comparison, tmp_path: Path) -> None:
    paths = write(comparison, tmp_path / "made" / "here")
    assert [path.name for path in paths] == ["compare.csv", "compare-fronts.csv"]
    back = pd.read_csv(
        paths[0], dtype={"point": str, "codec": str}, keep_default_na=False, na_values={"latency_low_s": [""]}
    )
    assert back["point"].tolist() == comparison.differences["point"].tolist()
    expected = comparison.differences["latency_difference_s"].to_numpy()
    assert back["latency_difference_s"].to_numpy() == pytest.approx(expected)
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in write(comparison, tmp_path / "made" / "here")] == before


def loaded(folder: Path, **options: Any) -> pd.DataFrame:
    return load([write_run(folder, trials(**options))])


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The front of seven rounds: take a copy to change it."""
    return front(loaded(tmp_path_factory.mktemp("seven"), rounds=7))


def check(latex: str) -> list[list[str]]:
    """That it is well-formed; returns the cells, row by row, heads first."""
    latex = re.sub(r"^%.*\n", "", latex, flags=re.MULTILINE)
    open_, closed = (re.findall(rf"\\{word}\{{(\w+)\}}", latex) for word in ("begin", "end"))
    assert open_ == closed[::-1] == ["table", "tabular"]
    bare = PLAIN.sub("", latex)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[_#$%^~<>\\]", bare), re.findall(r".{20}[_#$%^~<>\\].{20}", bare)
    latex.encode("ascii")
    (aligned,) = re.findall(r"\\begin\{tabular\}\{@\{\}(.+)@\{\}\}", latex)
    body = latex.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line.strip().removesuffix(r"\\") for line in body.splitlines() if line.endswith(r"\\")]
    cells = [
        [re.sub(r"^\{(.*)\}$", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)&", row)] for row in rows
    ]
    assert {len(row) for row in cells} == {len(aligned)}
    assert [latex.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    return cells


def test_escaping() -> None:
    assert escaped(NASTY) == (
        r"a\_b\&c\%d\$e\#f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
        r"\textless{}l\textgreater{}m\textbar{}n\ldots{}o"
    )
    assert escaped("5 µs → 3×点") == r"5 $\mu$s $\rightarrow$ 3$\times$?"  # noqa: RUF001
    assert stem("front", ("my_net", "wifi")) == "front-my-net-wifi"
    assert stem("front", ("my_net", "wifi"), "column") == "front-my-net-wifi-column"


def test_the_points_of_the_terminal_in_latex(seven: pd.DataFrame, snapshot: SnapshotAssertion) -> None:
    """As on the screen, and of the same front."""
    chosen = ("backend", "point", "latency", "latency-interval", "images", "sure")
    latex = front_latex(seven, "local: relay", chosen=chosen)
    _, units, *cells = check(latex)
    scale = 1e3 if units[2] == "(ms)" else 1
    shown, _ = chosen_points(seven)
    for (backend, point, latency, interval, _, sure), (_, of) in zip(cells, shown.iterrows(), strict=True):
        known = of[["latency_s", "latency_low_s", "latency_high_s"]].dropna().tolist()
        told = [float(each) for each in (latency, *re.findall(r"\{(.*?)\}", interval))]
        assert told == pytest.approx([scale * each for each in known], rel=0.01)
        assert (backend, point.endswith("*")) == (of["backend"].replace("none", "any"), of["on_front"])
        assert sure.replace("--", "-") == escaped(sureness(of["probability_all"]))
    assert latex == snapshot


@pytest.mark.parametrize(
    ("width", "chosen", "heads"),
    [
        ("column", (), ["Backend", "Point", "Latency", "Images", "Sure"]),
        ("page", (), ["Backend", "Point", "Latency", "Eff", "Images", "Eff", "Sure"]),
        ("column", ("point", "images", "sure", "latency"), ["Point", "Images", "Sure", "Latency"]),
    ],
)
def test_the_columns_of_a_width_or_those_that_are_chosen(
    width: str, chosen: tuple[str, ...], heads: list[str], seven: pd.DataFrame
) -> None:
    assert check(front_latex(seven, width=width, chosen=chosen))[0] == heads
    with pytest.raises(UserError, match="--columns speed: no column; there are backend, point, "):
        front_latex(seven, chosen=("point", "speed"))


def test_what_is_not_known_is_a_dash_and_of_no_point_no_column(seven: pd.DataFrame, tmp_path: Path) -> None:
    rows = seven.copy()
    rows.loc[rows.index[rows["on_front"]][0], ["latency_efficiency", "probability_all"]] = np.nan
    assert sum(row.count("--") for row in check(front_latex(rows))) >= 2
    assert "Sure" not in check(front_latex(front(loaded(tmp_path, rounds=1))))[0]
    failed = loaded(tmp_path, rounds=1, status="failed", latency_s="", throughput_ips="")
    assert front_latex(front(failed)) == paired_latex(paired(failed)) == ""


def test_names_that_tex_would_choke_on(tmp_path: Path) -> None:
    names = {"model": NASTY, "netem": "50%_loss", "point_name": "block_1&2"}
    rows = [row | names | {"backend": f"{row['backend']}:{NASTY}"} for row in trials()]
    known = load([write_run(tmp_path, rows)])
    latex = front_latex(front(known), NASTY)
    check(latex)
    assert r"block\_1\&2" in latex
    check(paired_latex(paired(known)))
    (label,) = re.findall(r"\\label\{(.*)\}", latex)
    assert re.fullmatch(r"[A-Za-z0-9:.+-]+", label)


def test_conditions_have_labels_of_their_own(tmp_path: Path) -> None:
    others = ({}, {"batch_size": 8}, {"codec": "fp16"}, {"in_flight_asked": "4"})
    fronts = [front(loaded(tmp_path / str(place), rounds=1, **other)) for place, other in enumerate(others)]
    assert len({re.findall(r"\\label\{.*\}", front_latex(rows))[0] for rows in fronts}) == len(others)


def test_backends_in_pairs(tmp_path: Path) -> None:
    pairs = paired(loaded(tmp_path, rounds=8))
    _, units, *cells = check(paired_latex(pairs))
    assert (cells[0][0], cells[-1][1], len(cells)) == ("rpc $-$ tcp", "all", (pairs["pairs"] > 0).sum())
    row = next(row for row in cells if row[1] == "1")
    difference_s = pairs.set_index("point").loc["1", "latency_difference_s"]
    assert float(row[3]) == pytest.approx((1e3 if units[3] == "(ms)" else 1) * difference_s, rel=0.01)
    assert row[5].startswith("-"), "fewer images"
    assert sum(row[1].endswith("*") for row in cells) == pairs["latency_significant"].eq(True).sum()


def test_captions_name_the_version_and_the_settings(seven: pd.DataFrame, tmp_path: Path) -> None:
    models = {"net": {"weights": "/home/me/w_1.pth", "input": "uint8"}}
    told = f"lab.yaml. Made by {made([{'pareto': '1.2.3', 'sweep': {'seed': 7, 'threads': 2}, 'models': models}])}"
    for latex in (front_latex(seven, told), paired_latex(paired(loaded(tmp_path, rounds=7)), told)):
        check(latex)
        said = "pareto 1.2.3 with given weights, uint8 input, 2 threads a host, seed 7."
        assert f"Testbed: lab.yaml. Made by {said}" in latex


@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="no pdflatex: apt install texlive-latex-recommended texlive-science",
)
@pytest.mark.parametrize(("width", "options"), [("page", "10pt"), ("column", "10pt,twocolumn")])
def test_tables_fit_their_column(tmp_path: Path, width: str, options: str) -> None:
    if not subprocess.run(["kpsewhich", "siunitx.sty"], capture_output=True).stdout:
        pytest.skip("no siunitx: apt install texlive-science")
    every = [row for row in trials(rounds=7) if row["point"] in (0, 3, 7, 14, 20, 21)]
    names = {"model": NASTY, "netem": "50%_loss", "point_name": NASTY}
    nasty = [row | names | {"backend": f"{row['backend']}:{NASTY[:4]}"} for row in every]
    slower = {"latency_s": 1234.5, "throughput_ips": 0.001}
    slow = [row | {name: factor * row[name] for name, factor in slower.items()} for row in every]
    rows, staged = example_chain.trials(example_chain.splits(2, (0, 7, 21)), rounds=2)
    runs = [with_energy([dict(row) for row in every]), nasty, slow]
    known = [load([write_run(tmp_path / str(place), of)]) for place, of in enumerate(runs)]
    chain = load([example_chain.write(tmp_path / "chain", rows, staged)])
    tables = [front_latex(front(each), "a testbed", width=width) for each in (*known, chain)]
    tables += [paired_latex(paired(each), width=width) for each in known]
    for table in tables:
        check(table)
    (tmp_path / "paper.tex").write_text(
        rf"\documentclass[{options}]{{article}}" + r"\usepackage{booktabs,siunitx}"
        r"\hbadness=10000 \vbadness=10000 \emergencystretch=10em \begin{document}"
        + "\n".join(tables) + r"\end{document}"
    )  # fmt: skip
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
