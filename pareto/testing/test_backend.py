"""The checks of a backend, one a test: `PARETO_BACKEND=mine.py:Transport pytest --pyargs pareto.testing`."""

from __future__ import annotations

import os

import pytest

from pareto.testing.checks import CHECKS
from pareto.testing.ends import verdict

BACKEND = os.environ.get("PARETO_BACKEND", "tcp")


@pytest.mark.parametrize("must", CHECKS)
def test_backend(must: str) -> None:
    if fault := verdict(BACKEND, CHECKS[must]):
        pytest.fail(fault, pytrace=False)
