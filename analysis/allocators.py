"""Whether hosts kept freed memory, in words: how a deployed program is made to, and what leaving that out costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.runs.manifest import section, sessions, within
from analysis.runs.setups import SIMULATED, TUNED
from pareto.constants import KEPT_BYTES

VARIABLES = f"MALLOC_MMAP_THRESHOLD_={KEPT_BYTES} MALLOC_TRIM_THRESHOLD_={KEPT_BYTES}"
"""What has glibc do in any program what workers have it do by mallopt."""


def sentences(trials: pd.DataFrame, manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What the hosts' allocators were told; where any was, how to deploy likewise, and what leaving it out costs."""
    known = [
        manifest
        for manifest in manifests
        if within(manifest, "sweep", "allocators") and not manifest.get(SIMULATED)
    ]
    values = list(trials["allocator"].unique()) if known else []
    keeps = f"as a deployed program does with {VARIABLES} in its environment"
    if values == [TUNED]:
        yield f"Freed memory was kept for later runs (allocator: {TUNED}), {keeps}."
    elif values:
        yield (
            f"The allocators were {' and '.join(map(str, values))}: {TUNED} keeps freed memory for later runs, {keeps}; "
            "default leaves it to the C library."
        )
    if TUNED not in values:
        return
    costs = [
        f"{', '.join(f'{times:.2f} times as long on the {role}' for role, times in each.items())} ({model}, point "
        f"{within(of, 'point')})"
        for manifest in known
        for session in sessions(manifest)
        for model, of in section(session, "allocator_cost").items()
        if (each := section(of, "times"))
    ]
    yield (
        f"Without them a stage by itself took {'; '.join(costs)}: the shortest of a few short measurements of each host."
        if costs
        else "The cost of leaving them out was not measured."
    )
