"""The pages of a report and of two runs: text, tables, charts, style and script in one file that asks no network."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pareto.analysis.advice.observed import WORKLOAD
from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.figures.drawing import testbeds
from pareto.analysis.figures.look import states
from pareto.analysis.findings import Findings, figure_name
from pareto.analysis.fronts.quality import in_words
from pareto.analysis.naming import backend_name, backends, cell_names, condition_title, count, time_unit
from pareto.analysis.page import tables
from pareto.analysis.page.best_map import maps
from pareto.analysis.page.chart import LATENCY, THROUGHPUT, chart
from pareto.analysis.runs.manifest import section
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.runs.standing import stands, status_words, struck_off
from pareto.analysis.tables.compare import front_marks
from pareto.analysis.tables.load import load_tables
from pareto.analysis.tables.report import points, testbeds_table
from pareto.analysis.tables.table import Column, by_backend, sureness
from pareto.basics import files
from pareto.basics.escaping import terminal
from pareto.sweep.options import command

ASSETS = Path(__file__).parent
MOST_RUNS = 100
"""How many runs a command names."""
MOST_CELLS = 4000
"""How many points a page has: with more, no telephone opens it."""
PLANE = {"latency", "throughput"}
"""The objectives whose front is a staircase in the chart."""
SHEET, MOST_SHEETS, MOST_SHEET_BYTES = "pictures/sheet.png", 6, 1 << 24
"""A sheet of pictures, which `show` makes in a run's folder."""
_FIRST = ["backend", "point", "name", "latency", "latency-interval", "images", "of-bound", "bound-by", "sure"]
"""The columns of a point that come first: those of the terminal's table."""
_THEIRS = {
    *("backend", "point", "point_order", "point_name", "on_front", "probability", "probability_all"),
    *("latency_s", "latency_low_s", "latency_high_s", "latency_efficiency"),
    *("throughput_ips", "throughput_efficiency", "bound_by"),
}
COMPARED = "compare.html"
_SIDES = (("A", "first", "*-"), ("B", "other", "*+"))
"""Each run: its name, how its columns begin, and the marks (`analysis.tables.compare`) of what is on its front."""
_FIRST_COMPARED = [
    *("backend", "point", "point_name", "A_latency_s", "B_latency_s", "latency_difference_percent"),
    *("latency_significant", "throughput_difference_percent"),
]
"""The columns that the table of two runs shows at first."""


def html(findings: Findings) -> str:
    """The report as one HTML file; the same findings give the same text.

    It opens from disk: style, script and data are in it, and its content security policy forbids everything else. It
    says what is not known, or was too much to be shown.
    """
    shown, found = conditions(findings), list(maps(findings))
    places = {condition["key"]: place for place, condition in enumerate(shown)}
    bad = findings.trials[findings.trials["status"] != "ok"]
    off = findings.links[findings.links["verdict"] != "ok"] if len(findings.links) else findings.links
    sweeps = [section(run.manifest, "sweep") for run in findings.runs]
    return rendered(
        "page.html",
        findings=findings,
        # Each with the conditions on the page that it is of, first the one that it leads to.
        answers=[
            (line, [places[key] for key in getattr(line, "conditions", ()) if key in places])
            for line in findings.answers
        ],
        conditions=shown,
        every=len(findings.front[CONDITION].drop_duplicates()),
        is_plane=set(findings.objectives) == PLANE,
        objectives=[in_words([name], findings.front) for name in findings.objectives],
        maps=[
            (each, [place for place, condition in enumerate(shown) if condition["workload"] == workload])
            for workload, each in found
        ],
        data=[each["data"] for _, each in found],
        tables=tables,
        off=off,
        statuses=status_words(findings.trials),
        bad=bad,
        some_count=bool(stands(bad).any()),
        testbed=testbeds(run.manifest for run in findings.runs),
        loads=load_tables(findings.loads, findings.rates, tables.MOST_ROWS),
        testbeds=testbeds_table(findings.runs, findings.trials, findings.testbeds),
        commands=[*dict.fromkeys(command(sweep) for sweep in sweeps if sweep)],
        unrecorded=[run.folder.name for run, sweep in zip(findings.runs, sweeps, strict=True) if not sweep],
        again=_again(findings),
        sheets=[*_sheets(findings)],
    )


def _sheets(findings: Findings) -> Iterator[tuple[str, str]]:
    """Yield the name of each run whose folder lists and has a sheet of pictures, and the picture as a URI."""
    for folder in (run.folder for run in findings.runs[:MOST_SHEETS]):
        with suppress(files.StoreError, OSError):
            if SHEET in files.made(folder):
                content = files.read(folder, *SHEET.split("/"), most_bytes=MOST_SHEET_BYTES)
                yield folder.name, f"data:image/png;base64,{base64.b64encode(content).decode()}"


def conditions(findings: Findings) -> list[dict[str, Any]]:
    """Each condition that there is room for, in the order of all tables."""
    every = shown(findings.front)
    names, stairs = backends(every), "each" if set(findings.objectives) == PLANE else ""
    made: list[dict[str, Any]] = []
    first = 0
    for _, group in every.groupby(CONDITION, dropna=False, observed=True):
        rows = by_backend(group, "point")
        on, kept, one = rows["on_backend_front"].astype(bool), ~struck_off(rows), rows.iloc[0].astype("str")
        made.append(
            {
                "key": tuple(one[CONDITION]),
                "workload": tuple(one[WORKLOAD]),
                "name": ", ".join(figure_name(rows, every)),
                "title": condition_title(rows.iloc[0]),
                "rows": rows,
                "kept": rows[kept],
                "measured": rows[kept & (rows["rounds"] > 0)],
                "charts": [("", chart(rows.assign(on=on, state=states(rows)), names, first, stairs))],
                "columns": _columns(rows),
                "first": first,
                "bold": on.tolist(),
            }
        )
        first += len(rows)
    return made


def shown(front: pd.DataFrame) -> pd.DataFrame:
    """The rows that there is room for: all, or those that are, or may be, on a front, of as many conditions as fit."""
    if len(front) <= MOST_CELLS:
        return front
    likely = front[front["on_backend_front"] | (front["probability"] > 0)]
    groups = likely.groupby(CONDITION, dropna=False, observed=True)
    return likely[groups.ngroup() < (groups.size().cumsum() <= MOST_CELLS).sum()]


def _columns(rows: pd.DataFrame) -> list[Column]:
    """Every figure of a condition's points: first the columns of the terminal's table, then each other column of
    front.csv in which the points differ, under its own name.
    """
    least_s = float(rows["latency_s"].min())
    made = points(rows, "probability", least_s)
    more = [name for name in rows if name not in {*CONDITION, *_THEIRS} and rows[name].nunique() > 1]
    sure = Column("sure, all", [*map(sureness, rows["probability_all"])], "%", "number")
    return [*(made[name] for name in _FIRST), sure, *tables.plain(rows, more, time_unit(least_s))]


def _again(findings: Findings) -> str:
    """The command that makes this report; of a run outside `results` only its name, as the rest may be private."""
    folders = [run.folder.resolve() for run in findings.runs[:MOST_RUNS]]
    paths = [f"{'results' if at.parent.name == 'results' else 'PATH/TO'}/{at.name}" for at in folders]
    words = ["./pareto.sh", "report", *paths]
    words += [] if set(findings.objectives) == PLANE else ["--objectives", ",".join(findings.objectives)]
    words += ["--where", findings.where] if findings.where else []
    return shlex.join(words) + " ..." * (len(findings.runs) > MOST_RUNS)


def write_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write the page of two runs and return its path; it is as self-contained as a report's.

    Raises `files.StoreError`, OSError.
    """
    return files.write(files.claim(folder, COMPARED) / COMPARED, comparison_html(comparison))


def comparison_html(comparison: Comparison) -> str:
    """The page: the conclusion, both charts, what differs otherwise, and every point."""
    rows, marks = comparison.differences.head(MOST_CELLS), front_marks(comparison.fronts)
    shown: list[dict[str, Any]] = []
    first = 0
    for _, group in rows.groupby(CONDITION, dropna=False, observed=True, sort=False):
        of = by_backend(group, "point")
        found = cell_names(of).map(marks.get(tuple(of.iloc[0][CONDITION]), {})).fillna(" ")
        sides = {name: _side(of, found, side, on) for name, side, on in _SIDES}
        both = pd.concat(sides.values())
        charts = [(name, chart(each, backends(rows), first, "all", both)) for name, each in sides.items()]
        named = of.assign(backend=of["backend"].map(backend_name))
        for name, side, _ in _SIDES:  # `A_latency_s` of `first_latency_s`
            named.columns = named.columns.str.replace(f"^{side}_", f"{name}_", regex=True)
        names = dict.fromkeys([*_FIRST_COMPARED, *named.columns.difference(CONDITION, sort=False)])
        shown.append(
            {
                "name": condition_title(of.iloc[0]),
                "title": condition_title(of.iloc[0]),
                "significant": int((of["latency_significant"] | of["throughput_significant"]).sum()),
                "rounds": [int(of[f"{side}_rounds"].median()) for _, side, _ in _SIDES],
                "charts": charts,
                "columns": list(tables.plain(named, names, time_unit(float(both[LATENCY[0]].min())))),
                "first": first,
            }
        )
        first += len(of)
    return rendered(
        "comparison.html",
        comparison=comparison,
        names=[Path(name).name for name in comparison.names],
        # A sentence a condition, in the same order.
        answers=[(line, [place] * (place < len(shown))) for place, line in enumerate(comparison.sentences)],
        conditions=shown,
        most=MOST_CELLS,
        data=[],
    )


def _side(rows: pd.DataFrame, found: pd.Series, side: str, on: str) -> pd.DataFrame:
    is_on = found.str[0].isin(list(on))
    return rows[["backend", "point", "point_name"]].assign(
        **dict.fromkeys((*LATENCY[1:], *THROUGHPUT[1:]), math.nan),
        **{name: rows[f"{side}_{name}"] for name in (LATENCY[0], THROUGHPUT[0])},
        on=is_on,
        state=np.where(is_on, np.where(found.str.endswith("?"), "unsure", "front"), "dominated"),
        feasible=True,
    )


def rendered(template: str, **content: Any) -> str:
    """A page from a template, with style, script and the policy that allows no others. All text is escaped, and
    what would turn or hide it is shown as in a terminal."""
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    templates = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "sort_keys": True}
    templates.globals["zip"], templates.filters["count"] = zip, count
    own = {"style": Markup(style), "script": Markup(script)}  # noqa: S704 - this project's own files
    # By these a content security policy allows what is inline.
    digests = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()) for name, text in own.items()}
    hashes = {f"{name}_hash": f"sha256-{digest.decode()}" for name, digest in digests.items()}
    return terminal(templates.get_template(template).render(**own, **hashes, **content))
