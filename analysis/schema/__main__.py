"""`python -m pareto.analysis.schema`: renews the tables of results/README.md."""

from __future__ import annotations

from pathlib import Path

from pareto.analysis.schema import TABLES

README = Path(__file__).resolve().parents[2] / "results" / "README.md"


def documented(text: str) -> str:
    """A text in which each table between `<!-- columns: FILE -->` and `<!-- end -->` is as the schema says."""
    for table in TABLES:
        mark = f"<!-- columns: {table.file} -->\n"
        before, found, rest = text.partition(mark)
        if found:
            _, end, after = rest.partition("<!-- end -->")
            text = "".join((before, mark, *table.markdown(), end, after))
    return text


if __name__ == "__main__":
    README.write_text(documented(README.read_text()))
