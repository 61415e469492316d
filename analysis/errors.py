"""What the user can mend."""

from __future__ import annotations


class AnalysisError(ValueError):
    """Bad input to the analysis: one line that says what is wrong and what to do."""
