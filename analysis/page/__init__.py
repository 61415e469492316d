"""`report.html` and `compare.html`: everything that was found, in one file that opens from disk."""

from pareto.analysis.page.document import write

__all__ = ["write"]
