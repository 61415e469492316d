"""The page as a whole: text and tables, style and scripts, in one file that asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pareto.analysis.costs import payload_share
from pareto.analysis.figures.drawing import testbeds
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.quality import in_words
from pareto.analysis.page.environment import environments
from pareto.analysis.page.fronts import KEYS, PLANE, fronts
from pareto.analysis.runs.manifest import within
from pareto.analysis.runs.setups import SIMULATED
from pareto.analysis.schema import STATUSES
from pareto.analysis.standing import stands, status_words
from pareto.analysis.tables.columns import UNKNOWN, Column, figure
from pareto.analysis.tables.testbeds import testbeds_table
from pareto.basics import files
from pareto.basics.escaping import terminal
from pareto.sweep.options import command

ASSETS = Path(__file__).parent
SCRIPTS = ("chart.js", "parts.js", "map.js", "page.js")
MOST_NAMED = 3
"""Up to this many models, and profiles, are named in the question; if there are more it says how many."""
MOST_LINES = 100
"""How many sentences of a kind are shown."""
MOST_COMMANDS = 20
MOST_TRIALS = 200
"""How many trials that do not count are shown one by one."""
MOST_REASONS = 50
MOST_PROBE_REASONS = 20
SHORT = 160
"""How many characters of a reason are shown; the rest opens on a click."""
_LINK = {
    "round trip": ("rtt_s", "ms", 1e3),
    "rate out": ("rate_bps", "Mbit/s", 1e-6),
    "rate back": ("rate_back_bps", "Mbit/s", 1e-6),
    "loss out": ("loss", "%", 100.0),
    "loss back": ("loss_back", "%", 100.0),
}
"""The quantities of a link: their column, the unit shown, and how many of it make one of the column's."""
LONG = 4000
"""How many characters of a reason the page holds. A traceback has as many; a program's output may have millions."""


def write(findings: Findings, path: Path) -> Path:
    """Write the report as one HTML file and return its path; the same findings give the same bytes.

    It opens from disk: style, scripts and data are in it, and its content security policy forbids everything else. It
    says what is not known, or was too much to be shown. Raises OSError.
    """
    return files.write(path, html(findings))


def html(findings: Findings) -> str:
    """The page."""
    front, data = fronts(findings)
    bad = int((findings.trials["status"] != "ok").sum())
    return rendered(
        "page.html",
        data=data,
        heads={
            "answer": "The answer",
            "front": "The front",
            "link": "The link",
            "left-out": f"Trials not ok: {bad}",
            "environment": "Environment",
            "reproduce": "How to reproduce",
            "words": "What the words mean",
        },
        front=None if findings.front.empty else front,
        link=None if findings.links.empty else _link(_on_the_wire(findings)),
        left_out=_left_out(findings.trials),
        **_question(findings),
        **_answer(findings),
        **environments(findings.runs),
        testbeds=testbeds_table(findings.runs, findings.trials, findings.testbeds),
        **_reproduction(findings),
    )


def rendered(template: str, **content: Any) -> str:
    """A page from a template, with style, script and the policy that allows no others. All text is escaped, and
    what would turn or hide it is shown as in a terminal."""
    style, script = _asset("page.css"), "\n".join(map(_asset, SCRIPTS))
    templates = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "sort_keys": True,
        "allow_nan": False,
    }
    templates.globals["zip"] = zip
    made = templates.get_template(template).render(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),  # noqa: S704 - this project's own file
        script=Markup(script),  # noqa: S704 - this project's own files
        **content,
    )
    return terminal(str(made))


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(inline: str) -> str:
    """The hash by which a content security policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def _question(findings: Findings) -> dict[str, str]:
    models = _named(findings.front["model"], "models")
    title = (
        f"{models} at {_named(findings.front['netem'], 'profiles')}: where to cut"
        if models
        else "Where to cut"
    )
    models = models or "the model"
    if findings.simulated:
        models += f" ({SIMULATED})"
    which = "they be cut" if "," in models or models.endswith(" models") else "it be cut"
    question = f"{models}: where should {which} between edge and server, and is it worth cutting at all?"
    return {"title": title, "question": question}


def _named(values: pd.Series, several: str) -> str:
    names = [str(name) for name in values.unique()]
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} {several}"


def _answer(findings: Findings) -> dict[str, Any]:
    testbed = testbeds(run.manifest for run in findings.runs)
    counted = [
        f"{len(findings.trials)} trials: {status_words(findings.trials)}.",
        f"{len(findings.runs)} runs." if len(findings.runs) > 1 else "",
        f"The front is in {' and '.join(_objectives(findings))}.",
        f"Only points where {findings.where}." if findings.where else "",
        f"Testbed: {testbed}." if testbed else "",
    ]
    answers = findings.answers or ["No answer: too little was measured to say where to cut."]
    return {
        "answers": _some(answers),
        "counted": " ".join(filter(None, counted)),
        "boxes": [
            ("Take care", _some(findings.warnings), "warnings"),
            ("Backends compared", _some(findings.verdicts), "verdicts"),
            ("Codecs: what they win and cost", _some(findings.codecs), "verdicts"),
            ("Engines: what they win, and how long they take to start", _some(findings.engines), "verdicts"),
            ("Notes", _some(findings.notes), "notes"),
        ],
    }


def _objectives(findings: Findings) -> list[str]:
    return [in_words([name], findings.front) for name in findings.objectives]


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"{more} more are not shown here"] if more > 0 else [])]


def _on_the_wire(findings: Findings) -> pd.DataFrame:
    """The probes with the rates that they measured as a profile asks for them, on the wire."""
    links = findings.links
    manifests = {name: run.manifest for run in findings.runs for name in run.names}
    share = [
        payload_share(manifests.get(str(run), {}), str(netem))
        for run, netem in zip(links["run"], links["netem"], strict=True)
    ]
    return links.assign(**{name: links[name] / share for name in ("rate_bps", "rate_back_bps")})


def _link(links: pd.DataFrame) -> dict[str, Any]:
    """The link of each profile as asked and as probed; why probes were off, and how often."""
    groups = links.groupby(["netem", "link"], dropna=False, observed=True)
    rows = [_link_row(str(netem), str(name), probes) for (netem, name), probes in groups]
    heads = [head for head in rows[0] if any(row[head] != UNKNOWN for row in rows)]
    off = links[links["verdict"] != "ok"]
    ordered = _by_kind(off, "netem")
    reasons = [
        f"{row['netem']}, {row['size']} x: {row['first'] or 'no reason given'}"
        for row in ordered.head(MOST_PROBE_REASONS).to_dict("records")
    ]
    more = len(ordered) - len(reasons)
    return {
        "columns": [
            Column(
                head,
                [row[head] for row in rows],
                _LINK[head.rpartition(" ")[0]][1] if head.rpartition(" ")[0] in _LINK else "",
                kind="text" if head in ("profile", "link") else "number",
            )
            for head in heads
        ],
        "probes": len(links),
        "off": len(off),
        "reasons": [*reasons, *([f"{more} more kinds of reasons: see link.csv"] if more else [])],
    }


def _link_row(netem: str, name: str, probes: pd.DataFrame) -> dict[str, str]:
    row = {"profile": netem, "link": name}
    for what, (column, _, scale) in _LINK.items():
        for prefix, which in (("asked_", "asked"), ("", "measured")):
            values = probes.get(f"{prefix}{column}", pd.Series(dtype=float))
            row[f"{what} {which}"] = _spanned(pd.to_numeric(values, errors="coerce").dropna() * scale)
    ok = int((probes["verdict"] == "ok").sum())
    return row | {"probes ok": str(ok), "probes off": str(len(probes) - ok)}


def _spanned(values: pd.Series) -> str:
    """The median, the least and the greatest: `200 (199 to 201)`; `UNKNOWN` without a value."""
    if values.empty:
        return UNKNOWN
    median, least, most = (
        figure(value, max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0)
        for value in map(float, (values.median(), values.min(), values.max()))
    )
    median, least, most = (
        text.rstrip("0").rstrip(".") if "." in text else text for text in (median, least, most)
    )
    return median if least == most else f"{median} ({least} to {most})"


def _left_out(trials: pd.DataFrame) -> dict[str, Any]:
    """Up to `MOST_TRIALS` trials that are not ok; if there are more, also all their reasons."""
    bad = trials[trials["status"] != "ok"]
    shown: dict[str, Any] = {"kinds": [], "each": _each(bad.head(MOST_TRIALS)) if len(bad) else []}
    if trials.empty:
        return shown | {"about": "No trial has ended yet."}
    if bad.empty:
        return shown | {"about": f"None: all {len(trials)} trials are ok."}
    numbers = bad["status"].value_counts()
    each = ", ".join(f"{numbers[status]} {status}" for status in STATUSES if status in numbers)
    where = "They are in no figure above."
    if stands(bad).any():
        where = "What counts for its latency or its throughput alone is above in that; the others are in no figure."
    shown["about"] = f"{len(bad)} of {len(trials)} trials: {each}. {where}"
    if len(bad) > MOST_TRIALS:
        shown |= _kinds(bad)
        shown["cut"] = (
            f"Below are the first {MOST_TRIALS} of {len(bad)}; all are in trials.csv, by their status."
        )
    return shown


def _by_kind(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """The most frequent reasons first: `key`, the `first` of its kind and its `size`, whatever numbers it holds.

    Numbers differ from row to row, so that the first reason stands for its kind.
    """
    kinds = rows["reason"].astype(str).str.replace(r"\d+(?:\.\d+)?", "#", regex=True)
    grouped = rows.assign(kind=kinds).groupby([key, "kind"], sort=False, observed=True)["reason"]
    counted = grouped.agg(["first", "size"]).sort_values("size", ascending=False, kind="stable")
    return counted.reset_index()


def _kinds(bad: pd.DataFrame) -> dict[str, Any]:
    """The number of times that each reason occurs, whatever numbers it holds."""
    counted = _by_kind(bad.assign(reason=bad["reason"].map(lambda text: _line(text)[:SHORT])), "status")
    shown = counted.head(MOST_REASONS)
    more = f"; the first {len(shown)} of {len(counted)}" if len(counted) > len(shown) else ""
    return {
        "kinds_caption": f"Reasons by how often they occur, with an example of each{more}",
        "kinds": [
            Column("trials", [str(count) for count in shown["size"]], kind="number"),
            Column("status", list(shown["status"])),
            Column("reason", list(shown["first"])),
        ],
    }


def _each(bad: pd.DataFrame) -> list[Column]:
    several = [key for key in ("run", *KEYS) if bad[key].nunique(dropna=False) > 1]
    keys = ["model", "netem", *(key for key in several if key not in ("model", "netem"))]
    texts = {key: bad[key].astype(str).tolist() for key in (*keys, "backend", "point", "round", "status")}
    kinds: dict[str, Literal["point", "number"]] = {"point": "point", "round": "number"}
    columns = [Column(KEYS.get(key, key), cells, kind=kinds.get(key, "text")) for key, cells in texts.items()]
    return [*columns, Column("reason", list(map(_reason, bad["reason"].astype(str))))]


def _reason(text: str) -> str:
    """A reason as one line; a longer one as a line that opens."""
    line, text = _line(text), text.strip()
    if len(line) <= SHORT and "\n" not in text:
        return line or "no reason was written"
    more = len(text) - LONG
    ending = f"\n... {more} characters more, in trials.csv" if more > 0 else ""
    head = line if len(line) <= SHORT else f"{line[:SHORT]}..."
    return Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(head, text[:LONG] + ending)


def _line(text: str) -> str:
    """The text as one line; of a traceback only its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if lines[0].startswith("Traceback") else " ".join(lines)


def _reproduction(findings: Findings) -> dict[str, Any]:
    """The commands that measure the same again, and report it again."""
    known, unknown = [], []
    for run in findings.runs:
        sweep = within(run.manifest, "sweep")
        if isinstance(sweep, Mapping) and sweep:
            known.append(sweep)
        else:
            unknown.append(run.folder.name)
    commands = list(dict.fromkeys(map(command, known)))
    words = ["./pareto.sh", "report", *(_path(run.folder.resolve()) for run in findings.runs[:MOST_LINES])]
    if set(findings.objectives) != PLANE:
        words += ["--objectives", ",".join(findings.objectives)]
    if findings.where:
        words += ["--where", findings.where]
    return {
        "commands": commands[:MOST_COMMANDS],
        "more_commands": max(len(commands) - MOST_COMMANDS, 0),
        "unknown": ", ".join(unknown[:MOST_LINES]),
        "has_hosts": any(sweep.get("testbed", "local") != "local" for sweep in known),
        "again": " ".join(map(shlex.quote, words)) + (" ..." if len(findings.runs) > MOST_LINES else ""),
    }


def _path(folder: Path) -> str:
    """The path from the project's folder; of a run elsewhere only its name, as the rest may be private."""
    return f"{'results' if folder.parent.name == 'results' else 'PATH/TO'}/{folder.name}"
