"""The page as a whole: its sections, its style and its scripts, in one file that asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

import pandas as pd

from analysis import files
from analysis.findings import Findings, Run
from analysis.page.costs import hypervolumes, overhead
from analysis.page.environment import environment
from analysis.page.fronts import PLANE, Shown, fronts
from analysis.page.left_out import left_out
from analysis.page.link import link
from analysis.page.markup import Html, element, embedded, items, joined
from analysis.page.words import words
from analysis.runs.setups import SIMULATED
from pareto.options import command

ASSETS = Path(__file__).parent
SCRIPTS = ("chart.js", "page.js")
MOST_NAMED = 3
"""Models in the question, and profiles: of more it says how many."""
MOST_LINES = 100
"""Sentences of a kind. Conditions may be many."""
MOST_COMMANDS = 20


def write(findings: Findings, path: Path) -> Path:
    """Write the report as one HTML file and return its path; the same findings give the same bytes.

    It opens from disk: style, scripts and data are in it, and its content security policy forbids everything else. What
    is not known, or was too much to be shown, it says. Raises OSError.
    """
    shown = fronts(findings.front, findings.objectives)
    style = _asset("page.css")
    script = "\n".join(map(_asset, SCRIPTS))
    text = Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        title=joined([_title(findings)]),
        style=style,
        body=_body(findings, shown),
        data=embedded({"backends": shown.backends, "charts": shown.charts}),
        script=script,
    )
    return files.write(path, text)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(inline: str) -> str:
    """What a content security policy knows an inline script or style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


def _body(findings: Findings, shown: Shown) -> Html:
    trials = findings.trials
    bad = int((trials["status"] != "ok").sum())
    sections = {
        "answer": ("The answer", _answer(findings)),
        "front": ("The front", _front(findings, shown)),
        "link": ("The link", link(findings.links)),
        "left-out": (f"Trials left out: {bad}", left_out(trials)),
        "environment": ("Environment", environment(findings.runs)),
        "reproduce": ("How to reproduce", _reproduce(findings)),
        "words": ("What the words mean", words()),
    }
    contents = element(
        "nav",
        *(element("a", head, href=f"#{name}") for name, (head, _) in sections.items()),
        aria_label="Contents",
    )
    made = (
        element(
            "section", element("h2", head, id=f"{name}-head"), inside, id=name, aria_labelledby=f"{name}-head"
        )
        for name, (head, inside) in sections.items()
    )
    return joined([element("header", element("h1", _question(findings)), contents), element("main", *made)])


def _title(findings: Findings) -> str:
    models = _named(findings.front["model"], "models")
    return (
        f"{models} at {_named(findings.front['netem'], 'profiles')}: where to cut"
        if models
        else "Where to cut"
    )


def _question(findings: Findings) -> str:
    models = _named(findings.front["model"], "models") or "the model"
    if findings.simulated:
        models += f" ({SIMULATED})"
    it = "they be cut" if "," in models or models.endswith(" models") else "it be cut"
    return f"{models}: where should {it} between edge and server, and is it worth cutting at all?"


def _named(values: pd.Series, several: str) -> str:
    names = [str(name) for name in values.unique()]
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} {several}"


def _answer(findings: Findings) -> Html:
    answers = findings.answers or ["No answer: too little was measured to say where to cut."]
    return joined(
        [
            items(_some(answers), class_="answers"),
            element("p", " ".join(filter(None, _counted(findings))), class_="about"),
            _box("Take care", findings.warnings, "warnings"),
            _box("Backends compared", findings.verdicts, "verdicts"),
            _box("Notes", findings.notes, "notes"),
        ]
    )


def _box(head: str, lines: Sequence[str], kind: str) -> Html:
    if not lines:
        return Html()
    return element("div", element("h3", head), items(_some(lines)), class_=f"box {kind}")


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"{more} more are not shown here"] if more > 0 else [])]


def _counted(findings: Findings) -> Iterator[str]:
    """How much was measured, and what the front is of."""
    trials = findings.trials
    counts = trials["status"].value_counts()
    each = ", ".join(f"{counts.get(status, 0)} {status}" for status in ("ok", "invalid", "failed"))
    yield f"{len(trials)} trials: {each}."
    yield f"{len(findings.runs)} runs." if len(findings.runs) > 1 else ""
    yield f"The front is in {' and '.join(findings.objectives)}."
    yield f"Only points where {findings.where}." if findings.where else ""
    testbeds = dict.fromkeys(str(run.manifest.get("testbed") or "") for run in findings.runs)
    yield f"Testbed: {'; '.join(filter(None, testbeds))}." if any(testbeds) else ""


def _front(findings: Findings, shown: Shown) -> Html:
    if findings.front.empty:
        return element("p", "No trial has ended yet: nothing to show.")
    plane = set(findings.objectives) == PLANE
    told = [
        "Latency to the right, throughput upwards: the best corner is the upper left.",
        "Filled points are on their backend's front" + (", the staircase." if plane else "."),
        ""
        if plane
        else f"This front is in {', '.join(findings.objectives)}: in latency and throughput alone it is no staircase.",
        *shown.notes,
    ]
    return joined(
        [
            element("p", " ".join(filter(None, told))),
            element(
                "noscript",
                element("p", "Without JavaScript there is no chart here; the tables have its figures."),
            ),
            element("div", id="controls"),
            shown.markup,
            hypervolumes(findings.hypervolumes),
            overhead(findings.overhead),
        ]
    )


def _reproduce(findings: Findings) -> Html:
    commands = list(dict.fromkeys(_commands(findings.runs)))
    parts = [element("p", "The measurement, from the folder of this project:")]
    if commands:
        parts.append(element("pre", "\n".join(commands[:MOST_COMMANDS]), class_="command"))
        if len(commands) > MOST_COMMANDS:
            parts.append(
                element(
                    "p", f"{len(commands) - MOST_COMMANDS} more: each run's manifest.json has its settings."
                )
            )
    unknown = [run.folder.name for run in findings.runs if not _sweep(run.manifest)]
    if unknown:
        parts.append(
            element(
                "p", f"Not recorded of {', '.join(unknown[:MOST_LINES])}: there is no manifest.json to read."
            )
        )
    if any(_sweep(run.manifest).get("testbed", "local") != "local" for run in findings.runs):
        parts.append(element("p", "The testbed's file names the hosts; it is not part of this page."))
    parts.append(element("p", "This page, the tables and the figures, again from what was measured:"))
    parts.append(element("pre", _again(findings), class_="command"))
    return joined(parts)


def _commands(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        if sweep := _sweep(run.manifest):
            yield command(sweep)


def _sweep(manifest: Mapping[str, object]) -> Mapping[str, object]:
    sweep = manifest.get("sweep")
    return sweep if isinstance(sweep, Mapping) else {}


def _again(findings: Findings) -> str:
    words = [
        "./pareto.sh",
        "report",
        *(_whereabouts(run.folder.resolve()) for run in findings.runs[:MOST_LINES]),
    ]
    if set(findings.objectives) != PLANE:
        words += ["--objectives", ",".join(findings.objectives)]
    if findings.where:
        words += ["--where", findings.where]
    return " ".join(map(shlex.quote, words)) + (" ..." if len(findings.runs) > MOST_LINES else "")


def _whereabouts(folder: Path) -> str:
    """As given from the project's folder; of a run elsewhere only the name is nobody's secret."""
    return f"{'results' if folder.parent.name == 'results' else 'PATH/TO'}/{folder.name}"
