"""What a report finds, read back by what other programs read it with."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet

from pareto.analysis.exporting import export, tables, targets
from pareto.analysis.findings import Findings
from pareto.analysis.schema import TRIALS
from pareto.protocol.errors import UserError
from tests.unit.analysis.test_tables import NASTY
from tests.unit.example_findings import findings
from tests.unit.example_run import trials

REASON = 'said "no";\nDROP TABLE trials \x1b[31m\x07'


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    rows = [row | {"model": f"=1+{NASTY}"} for row in trials(rounds=2) if row["point"] in (0, 7, 21)]
    rows[0] |= {"status": "invalid", "reason": REASON, "latency_s": "", "throughput_ips": ""}
    return findings(tmp_path_factory.mktemp("export"), rows)


def written(found: Findings, path: Path) -> Path:
    (target,) = targets([str(path)])
    assert export(found, target) == str(path)
    return path


def test_one_parquet_file_says_what_its_columns_mean_and_how_it_was_made(
    found: Findings, tmp_path: Path
) -> None:
    path = written(found, tmp_path / "new" / "run.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(path), found.trials, check_dtype=False)
    schema = parquet.read_schema(path)
    assert schema.field("latency_s").metadata[b"meaning"].decode() == TRIALS.meanings()["latency_s"]
    assert json.loads(schema.metadata[b"pareto"])["run"]["pareto"] == "0.1.0"


def test_sqlite_has_every_table_and_replaces_the_file(found: Findings, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_text("an older one")
    with closing(sqlite3.connect(written(found, path))) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert names == set(tables(found)) >= {"trials", "front", "runs", "columns"}
        counted = connection.execute(
            "SELECT reason, latency_s FROM trials WHERE status = 'invalid'"
        ).fetchall()
        assert counted == [(REASON, None)], "not measured is no 0"
        front = pd.read_sql("SELECT * FROM front WHERE on_front", connection)
    assert set(front["point"]) == set(found.front.loc[found.front["on_front"], "point"])


def test_excel_computes_nothing_that_a_name_says(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    sheets = pd.read_excel(written(found, tmp_path / "run.xlsx"), sheet_name=None)
    assert set(sheets) == set(tables(found))
    assert set(sheets["trials"]["model"]) == {f"'=1+{NASTY}"}
    assert "trials \\x1b[31m\\x07" in sheets["trials"]["reason"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "parquet") for text in ("run.csv", "run", "", "mlflow", "run.duckdb")),
        ("a.xlsx", "pip install openpyxl$"),
        ("link.sqlite", "a link"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown form, a missing package, which it says how to install, and a link, which is not followed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    Path("link.sqlite").symlink_to("elsewhere")
    with pytest.raises(UserError, match=words) as refused:
        targets([text])
    assert "\n" not in str(refused.value)
