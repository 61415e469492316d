"""The columns of a run's files, and the tables of the README that are made from them."""

from __future__ import annotations

from pareto.analysis.schema import DEVICES, KINDS, REQUESTS, TABLES
from pareto.analysis.schema.__main__ import README, documented


def test_the_readme_is_up_to_date() -> None:
    text = README.read_text()
    assert documented(text) == text, "python -m pareto.analysis.schema renews it"
    for table in TABLES:
        part = text.partition(f"<!-- columns: {table.file} -->")[2].partition("<!-- end -->")[0]
        assert [name for name in table.columns if f"`{name}`" not in part] == []


def test_every_column_is_declared_once_and_explained() -> None:
    for table in TABLES:
        assert len(set(table.columns)) == len(table.columns)
        assert table.described[0].meaning
    for table in set(TABLES) - {REQUESTS, DEVICES}:
        for column in table.described:
            assert KINDS[column.name] is column.kind, "a column of several files is of one kind"
