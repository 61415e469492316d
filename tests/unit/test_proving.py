"""What is said of a proof."""

from __future__ import annotations

import pytest

from pareto.proving import NO, word
from partitions.proof import PointProof


@pytest.mark.parametrize(
    ("error", "said"), [(3e-7, "within 1e-6"), (1e-6, "within 1e-6"), (0.0, "equal"), (0.5, NO)]
)
def test_an_error_is_stated_no_closer_than_it_is(error: float, said: str) -> None:
    found = PointProof(1, parted=True, bitwise=False, error=error)
    assert word(found) == said
