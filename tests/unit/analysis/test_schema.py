"""The columns of a run's files, and the tables of results/README.md that say what they mean."""

from __future__ import annotations

import pytest

from pareto.analysis.schema import TABLES, Table


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_every_column_is_declared_once_and_explained(table: Table) -> None:
    assert len(set(table.columns)) == len(table.columns)
    assert list(table.meanings()) == list(table.columns)
