"""The test suite. What each folder of it proves and needs stands in CONTRIBUTING.md."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
