"""The test suite. What each folder of it proves and needs stands in CONTRIBUTING.md."""

from __future__ import annotations

import csv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def rows_of(path: Path) -> list[dict[str, str]]:
    """What is in a CSV file, by its columns' names."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
