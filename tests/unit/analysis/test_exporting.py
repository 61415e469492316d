"""What a report finds, read back by what other programs read it with."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet

from analysis.exporting import EXPERIMENT, export, tables, targets
from analysis.findings import Findings
from analysis.schema import TRIALS
from pareto.errors import UserError
from tests.unit.analysis.test_latex import NASTY
from tests.unit.example_findings import findings
from tests.unit.example_run import trials


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    rows = [row | {"model": f"=1+{NASTY}"} for row in trials(rounds=2) if row["point"] in (0, 7, 21)]
    rows[0] |= {
        "status": "invalid",
        "reason": 'said "no";\nDROP TABLE trials \x1b[31m\x07',
        "latency_s": "",
        "throughput_ips": "",
    }
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
    meanings = {column.name: column.meaning for column in TRIALS.described}
    assert schema.field("latency_s").metadata[b"meaning"].decode() == meanings["latency_s"]
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
        assert counted == [('said "no";\nDROP TABLE trials \x1b[31m\x07', None)], "not measured is no 0"
        front = pd.read_sql("SELECT * FROM front WHERE on_front", connection)
    assert set(front["point"]) == set(found.front.loc[found.front["on_front"], "point"])


def test_duckdb(found: Findings, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    with closing(duckdb.connect(str(written(found, tmp_path / "run.duckdb")))) as connection:
        assert connection.table("trials").df()["latency_s"].isna().sum() == 1
        assert len(connection.table("front")) == len(found.front)


def test_excel_computes_nothing_that_a_name_says(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    sheets = pd.read_excel(written(found, tmp_path / "run.xlsx"), sheet_name=None)
    assert set(sheets) == set(tables(found))
    assert set(sheets["trials"]["model"]) == {f"'=1+{NASTY}"}
    assert "trials \\x1b[31m\\x07" in sheets["trials"]["reason"][0]


def test_mlflow_has_a_run_with_a_child_for_each_point(
    found: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    (target,) = targets(["mlflow"])
    assert EXPERIMENT in export(found, target)
    logged = mlflow.search_runs(experiment_names=[EXPERIMENT])
    parents = logged[logged["tags.mlflow.parentRunId"].isna()]
    assert parents["params.sweep.seed"].tolist() == ["3"]
    assert len(logged) == 1 + len(found.front)
    assert logged["metrics.latency_s"].min() == pytest.approx(found.front["latency_s"].min())


@pytest.mark.parametrize("text", ["run.csv", "run", "", "mlflows"])
def test_an_unknown_form_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="parquet") as refused:
        targets([text])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "package"), [("a.duckdb", "duckdb"), ("a.xlsx", "openpyxl"), ("mlflow:x", "mlflow")]
)
def test_a_missing_package_is_one_line_with_what_installs_it(
    text: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"pip install {package}$") as refused:
        targets([text])
    assert "\n" not in str(refused.value)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="a link"):
        targets([str(tmp_path / "run.sqlite")])
