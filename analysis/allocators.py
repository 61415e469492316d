"""Whether hosts kept freed memory, in words: how a deployed program is made to, and what leaving that out costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pareto.analysis.naming import SIMULATED, USUAL
from pareto.analysis.runs.manifest import section, sessions, within
from pareto.protocol.constants import KEPT_BYTES

TUNED = USUAL["allocator"]
_KEEPS = (
    "keeps freed memory for later runs, as a deployed program does with "
    f"MALLOC_MMAP_THRESHOLD_={KEPT_BYTES} MALLOC_TRIM_THRESHOLD_={KEPT_BYTES} MALLOC_ARENA_MAX=1 "
    "in its environment"
)


def sentences(trials: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on what the hosts' allocators were told; if any was tuned, on the cost of leaving that out."""
    known = [each for each in manifests if within(each, "sweep", "allocators") and not each.get(SIMULATED)]
    if not known:
        return
    values = [str(value) for value in trials["allocator"].unique()]
    default = "" if values == [TUNED] else "; default leaves it to the C library"
    yield f"The allocator was {' and '.join(values)}; {TUNED} {_KEEPS}{default}."
    if TUNED not in values:
        return
    costs = "; ".join(
        f"{', '.join(f'{times:.2f} times as long on the {role}' for role, times in each.items())} ({of.get('model')}, "
        f"point {of.get('point')}, batch size {of.get('batch_size', 0):g})"
        for manifest in known
        for session in sessions(manifest)
        for of in session.get("allocator_cost") or ()
        if (each := section(of, "times"))
    )
    told = f"a stage by itself took {costs}: the shortest of a few short measurements of each host"
    yield f"Without them {told}." if costs else "The cost of leaving them out was not measured."
