"""Files of what a report finds, for other programs: Parquet, SQLite, Excel."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from pareto.analysis.findings import Findings
from pareto.analysis.schema import LINKS, STAGES, TRIALS
from pareto.basics import files
from pareto.basics.escaping import spreadsheet, terminal
from pareto.protocol.errors import UserError

FRAMES = (
    *("trials", "stages", "links", "front", "hypervolumes", "attainment", "overhead", "paired"),
    *("paired_codecs", "paired_engines", "drifts", "prediction", "delta_rates", "struck", "testbeds"),
)
"""The frames of the findings that are exported, each as the table of this name."""
MOST_ROWS = 1_048_575
"""The most rows of an Excel sheet, without its head."""
_MEANINGS = {"trials": TRIALS, "stages": STAGES, "links": LINKS}


def targets(given: Sequence[str]) -> list[Path]:
    """The paths of these texts: `FILE.parquet`, `FILE.sqlite`, `FILE.xlsx`.

    Raises UserError for any other ending, for what is not installed, and for a file that is no plain one.
    """
    for path in map(Path, given):
        if path.suffix.lower() not in FORMS:
            raise UserError(f"--export {path}: a file that ends in one of {', '.join(FORMS)}")
        if path.suffix.lower() == ".xlsx" and importlib.util.find_spec("openpyxl") is None:
            install = f"{sys.executable} -m pip install openpyxl"
            raise UserError(f"--export {path} needs the package openpyxl: {install}")
        files.refuse_link(path)
    return [*map(Path, given)]


def export(findings: Findings, path: Path) -> str:
    """The path of the findings' file, which is written in place of one of that name. Raises UserError, OSError."""
    folder = path.parent.resolve()
    files.make(folder)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / f"export{path.suffix}"
        FORMS[path.suffix.lower()](findings, draft)
        return str(files.write(folder / path.name, draft.read_bytes()))


def tables(findings: Findings) -> dict[str, pd.DataFrame]:
    """The frames that are not empty, by name: `FRAMES`; `runs` with their manifests; what the `columns` mean."""
    known = [(run.folder.resolve().name, run.manifest) for run in findings.runs]
    facts = ["pareto", "created_at", "testbed"]
    runs = [(name, *(str(of.get(fact, "")) for fact in facts), json.dumps(of)) for name, of in known]
    columns = [(table, *each) for table, of in _MEANINGS.items() for each in of.meanings().items()]
    frames = {name: getattr(findings, name) for name in FRAMES}
    frames["runs"] = pd.DataFrame(runs, columns=["run", *facts, "manifest"])
    frames["columns"] = pd.DataFrame(columns, columns=["table", "column", "meaning"])
    return {name: frame for name, frame in frames.items() if not frame.empty}


def _to_parquet(findings: Findings, path: Path) -> None:
    """Write the trials, one row each; the columns' meanings and the manifests are in the file's metadata."""
    table = pa.Table.from_pandas(findings.trials, preserve_index=False)
    meanings = {column: {"meaning": meaning} for column, meaning in TRIALS.meanings().items()}
    manifests = {run.folder.resolve().name: run.manifest for run in findings.runs}
    schema = pa.schema(
        [field.with_metadata(meanings.get(field.name)) for field in table.schema],
        metadata={**(table.schema.metadata or {}), b"pareto": json.dumps(manifests).encode()},
    )
    parquet.write_table(table.cast(schema), path)


def _to_sqlite(findings: Findings, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, frame in tables(findings).items():
            frame.to_sql(name, connection, index=False)


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


FORMS: dict[str, Callable[[Findings, Path], None]] = {
    ".parquet": _to_parquet,
    ".sqlite": _to_sqlite,
    ".db": _to_sqlite,
    ".xlsx": _to_excel,
}
"""By a file's ending, what writes it."""
