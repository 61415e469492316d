"""What a report finds, for other programs: Parquet, SQLite, DuckDB, Excel, and MLflow.

None of these programs is a dependency: what one form needs is imported when it is asked for.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from analysis import files
from analysis.escaping import short, spreadsheet, terminal
from analysis.findings import Findings
from analysis.naming import cell_title
from analysis.points import CELL
from analysis.runs.manifest import leaves, section
from analysis.schema import LINKS, STAGES, TRIALS
from pareto.errors import UserError

MLFLOW = "mlflow"
EXPERIMENT = "pareto"
FRAMES = (
    *("trials", "stages", "links", "front", "hypervolumes", "attainment", "overhead", "paired"),
    *("paired_codecs", "paired_engines", "drifts", "prediction", "delta_rates", "struck", "testbeds"),
)
"""The frames of the findings that are exported, each as the table of this name."""
MOST_ROWS = 1_048_575
"""Of an Excel sheet, without its head."""
LONGEST_PARAMETER = 500
"""Characters of a parameter's value, which any MLflow server takes."""
MOST_IN_BATCH = 100
"""Parameters that an MLflow server takes at once."""
_MEANINGS = {"trials": TRIALS, "stages": STAGES, "links": LINKS}


@dataclass(frozen=True)
class Target:
    """Where to export to: a file whose ending names its form, or an experiment of MLflow (then there is no path)."""

    write: Callable[[Findings, Path], None] | None
    path: Path = Path()
    experiment: str = ""


def targets(given: Sequence[str]) -> list[Target]:
    """A target a text: `FILE.parquet`, `FILE.sqlite`, `FILE.duckdb`, `FILE.xlsx`, `mlflow`, `mlflow:EXPERIMENT`.

    Raises UserError for any other text, for what is not installed, and for a file that is no plain one.
    """
    return [_target(text) for text in given]


def _target(text: str) -> Target:
    name, _, experiment = text.partition(":")
    if name == MLFLOW:
        _module(MLFLOW, text)
        return Target(None, experiment=experiment or EXPERIMENT)
    path = Path(text)
    form = FORMS.get(path.suffix.lower())
    if form is None:
        endings = ", ".join(FORMS)
        raise UserError(
            f"--export {text}: a file that ends in one of {endings}, or mlflow, or mlflow:EXPERIMENT"
        )
    needs, write = form
    if needs:
        _module(needs, text)
    files.refuse_link(path)
    return Target(write, path)


def export(findings: Findings, target: Target) -> str:
    """Write the findings, in place of a file of that name, and return where they are now. Raises UserError, OSError."""
    if target.write is None:
        return _to_mlflow(findings, target.experiment)
    folder = target.path.parent.resolve()
    files.make(folder)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / f"export{target.path.suffix}"
        target.write(findings, draft)
        return str(files.write(folder / target.path.name, draft.read_bytes()))


def tables(findings: Findings) -> dict[str, pd.DataFrame]:
    """The frames that are not empty, by name: `FRAMES`; `runs` with their manifests; what the `columns` mean."""
    frames = {name: getattr(findings, name) for name in FRAMES}
    runs = [
        {
            "run": run.folder.resolve().name,
            "pareto": str(run.manifest.get("pareto", "")),
            "created_at": str(run.manifest.get("created_at", "")),
            "testbed": str(run.manifest.get("testbed", "")),
            "manifest": json.dumps(run.manifest),
        }
        for run in findings.runs
    ]
    columns = [
        {"table": table, "column": column.name, "meaning": column.meaning}
        for table, of in _MEANINGS.items()
        for column in of.described
    ]
    frames |= {"runs": pd.DataFrame(runs), "columns": pd.DataFrame(columns)}
    return {name: frame for name, frame in frames.items() if not frame.empty}


def _to_parquet(findings: Findings, path: Path) -> None:
    """Write the trials, one row each; the columns' meanings and the manifests are in the file's metadata."""
    table = pa.Table.from_pandas(findings.trials, preserve_index=False)
    meanings = {column.name: column.meaning for column in TRIALS.described if column.meaning}
    schema = pa.schema(
        [
            field.with_metadata({"meaning": meanings[field.name]}) if field.name in meanings else field
            for field in table.schema
        ],
        metadata={
            **(table.schema.metadata or {}),
            b"pareto": json.dumps(
                {run.folder.resolve().name: run.manifest for run in findings.runs}
            ).encode(),
        },
    )
    parquet.write_table(table.cast(schema), path)


def _to_sqlite(findings: Findings, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, frame in tables(findings).items():
            frame.to_sql(name, connection, index=False)


def _to_duckdb(findings: Findings, path: Path) -> None:
    duckdb = _module("duckdb", path.name)
    with closing(duckdb.connect(str(path))) as connection:
        for name, frame in tables(findings).items():
            connection.from_arrow(pa.Table.from_pandas(frame, preserve_index=False)).create(name)


def _to_excel(findings: Findings, path: Path) -> None:
    frames = tables(findings)
    for name, frame in frames.items():
        if len(frame) > MOST_ROWS:
            raise UserError(
                f"--export: {len(frame)} {name} are more rows than an Excel sheet has: export to .parquet or .sqlite"
            )
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        for name, frame in frames.items():
            shown = spreadsheet(frame, terminal)  # a sheet cannot hold every character
            shown.to_excel(book, sheet_name=name, index=False, freeze_panes=(1, 0))


def _to_mlflow(findings: Findings, experiment: str) -> str:
    """Log a run with the settings as parameters and the report's files, and a child of it for each row of the front."""
    mlflow = _module(MLFLOW, MLFLOW)
    entities = importlib.import_module("mlflow.entities")
    try:
        client = mlflow.MlflowClient()
        known = client.get_experiment_by_name(experiment)
        where = known.experiment_id if known else client.create_experiment(experiment)
        names = " ".join(run.folder.resolve().name for run in findings.runs)
        parent = client.create_run(where, run_name=short(names, 200)).info.run_id

        def log(run: str, parameters: Mapping[str, str], metrics: Mapping[str, float]) -> None:
            now, each = int(time.time() * 1000), list(parameters.items())
            for start in range(0, len(each), MOST_IN_BATCH):
                batch = [entities.Param(name, value) for name, value in each[start : start + MOST_IN_BATCH]]
                client.log_batch(run, params=batch)
            client.log_batch(run, metrics=[entities.Metric(*metric, now, 0) for metric in metrics.items()])

        log(parent, _settings(findings), {"trials": float(len(findings.trials))})
        for path in findings.files:
            client.log_artifact(parent, str(path), "figures" if path.parent.name == "figures" else None)
        for title, parameters, metrics in _rows(findings):
            tags = {"mlflow.parentRunId": parent}
            child = client.create_run(where, run_name=title, tags=tags).info.run_id
            log(child, parameters, metrics)
            client.set_terminated(child)
        client.set_terminated(parent)
    except (
        Exception
    ) as error:  # its own, its server's, the network's: whatever they are, the report is written
        raise UserError(f"--export {MLFLOW}: {short(str(error)) or type(error).__name__}") from error
    return f"MLflow's experiment {experiment} at {mlflow.get_tracking_uri()}"


def _settings(findings: Findings) -> dict[str, str]:
    """The sweep's settings, and the version; of several runs what differs has each value."""
    values: dict[str, dict[str, None]] = {}
    for run in findings.runs:
        settings = [("pareto", run.manifest.get("pareto")), ("testbed", run.manifest.get("testbed"))]
        settings += list(leaves(section(run.manifest, "sweep"), path="sweep"))
        for name, value in settings:
            if value is not None:
                values.setdefault(name, {})[short(str(value), LONGEST_PARAMETER)] = None
    return {
        _name(name): short(" | ".join(each), LONGEST_PARAMETER) for name, each in values.items() if any(each)
    }


def _rows(findings: Findings) -> Iterator[tuple[str, dict[str, str], dict[str, float]]]:
    """Yield the title of each row of the front, the columns of its cell, and its figures."""
    keys = [*CELL, "point_name"]
    figures = findings.front.select_dtypes(["number", "bool"]).columns.difference(keys)
    for row in findings.front.to_dict("records"):
        cell = {name: short(str(row[name]), LONGEST_PARAMETER) for name in keys if str(row.get(name, ""))}
        known = {str(name): float(row[name]) for name in figures if pd.notna(row[name])}
        yield short(cell_title(row), 200), cell, known


def _name(text: str) -> str:
    """The text as a name that MLflow takes."""
    return "".join(character if character.isalnum() or character in "_-./ " else "_" for character in text)[
        :250
    ]


def _module(name: str, what: str) -> Any:
    """Import a package that only some users have. Raises UserError that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            f"--export {what} needs the package {name}: {sys.executable} -m pip install {name}"
        ) from None


FORMS: dict[str, tuple[str, Callable[[Findings, Path], None]]] = {
    ".parquet": ("", _to_parquet),
    ".sqlite": ("", _to_sqlite),
    ".db": ("", _to_sqlite),
    ".duckdb": ("duckdb", _to_duckdb),
    ".xlsx": ("openpyxl", _to_excel),
}
"""By a file's ending, the package that is needed beside the usual ones, and what writes it."""
