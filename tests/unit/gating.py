"""Which of a test's cases the gate takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def gating(names: Iterable[Any], *gate: Any) -> list[Any]:
    """The names as a test's parameters, all but these only with --deep."""
    names = [*names]
    assert all(name in names for name in gate)
    return [name if name in gate else pytest.param(name, marks=pytest.mark.deep) for name in names]
