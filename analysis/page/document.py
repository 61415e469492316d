"""The page as a whole: text, tables and charts, style and script, in one file that asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pareto.analysis.advice.advise import Answer
from pareto.analysis.figures.drawing import testbeds
from pareto.analysis.findings import Findings
from pareto.analysis.fronts.quality import in_words
from pareto.analysis.page import tables
from pareto.analysis.page.best_map import maps
from pareto.analysis.page.conditions import PLANE, conditions
from pareto.analysis.runs.manifest import section
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.runs.standing import stands, status_words
from pareto.analysis.tables.testbeds import testbeds_table
from pareto.basics import files
from pareto.basics.escaping import terminal
from pareto.sweep.options import command

ASSETS = Path(__file__).parent
MOST_RUNS = 100
"""How many runs a command names."""


def write(findings: Findings, path: Path) -> Path:
    """Write the report as one HTML file and return its path; the same findings give the same bytes.

    It opens from disk: style, script and data are in it, and its content security policy forbids everything else. It
    says what is not known, or was too much to be shown. Raises OSError.
    """
    return files.write(path, html(findings))


def html(findings: Findings) -> str:
    """The page."""
    shown = conditions(findings)
    places = {condition["key"]: place for place, condition in enumerate(shown)}
    found = list(maps(findings))
    bad = findings.trials[findings.trials["status"] != "ok"]
    return rendered(
        "page.html",
        findings=findings,
        answers=[(line, _of(line, places)) for line in findings.answers],
        conditions=shown,
        every=findings.front[CONDITION].drop_duplicates(),
        is_plane=set(findings.objectives) == PLANE,
        objectives=[in_words([name], findings.front) for name in findings.objectives],
        maps=[
            (each, [place for place, condition in enumerate(shown) if condition["workload"] == workload])
            for workload, each in found
        ],
        data=[each["data"] for _, each in found],
        tables=tables.others(findings),
        link=tables.link(findings),
        statuses=status_words(findings.trials),
        bad=bad,
        some_count=bool(stands(bad).any()),
        reasons=tables.reasons(bad, "netem", "status"),
        environments=tables.environments(findings.runs),
        testbed=testbeds(run.manifest for run in findings.runs),
        testbeds=testbeds_table(findings.runs, findings.trials, findings.testbeds),
        commands=_commands(findings),
        again=_again(findings),
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
    templates.globals["zip"] = zip
    own = {"style": Markup(style), "script": Markup(script)}  # noqa: S704 - this project's own files
    hashes = {f"{name}_hash": _hash(text) for name, text in own.items()}
    return terminal(templates.get_template(template).render(**own, **hashes, **content))


def _hash(inline: str) -> str:
    """The hash by which a content security policy allows an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}"


def _of(line: str, places: Mapping[tuple[str, ...], int]) -> list[int]:
    """The conditions on the page that an answer is of, first the one that it leads to."""
    return [places[key] for key in (line.conditions if isinstance(line, Answer) else ()) if key in places]


def _commands(findings: Findings) -> dict[str, list[str]]:
    """The commands that measure the same again, and the runs that do not say it (those of the empty command)."""
    runs: dict[str, list[str]] = {}
    for run in findings.runs:
        sweep = section(run.manifest, "sweep")
        runs.setdefault(command(sweep) if sweep else "", []).append(run.folder.name)
    return runs


def _again(findings: Findings) -> str:
    """The command that makes this report."""
    words = ["./pareto.sh", "report", *(_path(run.folder.resolve()) for run in findings.runs[:MOST_RUNS])]
    words += [] if set(findings.objectives) == PLANE else ["--objectives", ",".join(findings.objectives)]
    words += ["--where", findings.where] if findings.where else []
    return " ".join(map(shlex.quote, words)) + " ..." * (len(findings.runs) > MOST_RUNS)


def _path(folder: Path) -> str:
    """The path from the project's folder; of a run elsewhere only its name, as the rest may be private."""
    return f"{'results' if folder.parent.name == 'results' else 'PATH/TO'}/{folder.name}"
