"""How often a search's front is the true one, and for which share of the time: the table of docs/search.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit import searched

pytestmark = pytest.mark.perf
REPEATS = 200


@pytest.mark.parametrize("cells", [44, 400])
@pytest.mark.parametrize("kind", ["single", "common"])
@pytest.mark.parametrize(
    ("noise", "of"),
    [(0.03, ""), (0.1, ""), (0.1, "ties"), (0.1, "drift"), (0.1, "forecast"), (0.3, "")],
)
@pytest.mark.timeout(0)
def test_the_share_of_true_fronts(
    printed: Callable[[str], None], cells: int, kind: str, noise: float, of: str
) -> None:
    results = [
        searched.repeat(
            seed,
            cells,
            noise,
            kind,
            ties=of == "ties",
            drift=0.3 if of == "drift" else 0.0,
            off=3.0 if of == "forecast" else 1.0,
        )
        for seed in range(REPEATS)
    ]
    means = [
        float(np.mean([getattr(each, name) for each in results]))
        for name in ("is_right", "all_right", "lost", "share", "trials")
    ]
    printed(
        f"| {cells} | {noise:.0%} | {kind} | {of} | " + " | ".join(f"{mean:.1%}" for mean in means) + " |"
    )
