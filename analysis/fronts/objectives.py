"""The objectives of a front, which may be traded against each other, and which way each is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pareto.protocol.errors import UserError

_P95 = "95th percentile of the latency"
_REQUESTS = "a trial needs 130 requests for it: --requests"
_LOAD, _RATE = "requests that arrive by themselves: --load, --slo", "highest rates: --find-rate"
_SENSORS = "energy sensors on all hosts"


class Objective(NamedTuple):
    """`column` of the front's frame, in `unit`; `words` say it in a sentence. Less is better unless `maximise`. needs:
    what a run must have for it, where that is not always so.
    """

    name: str
    column: str
    maximise: bool
    unit: str
    words: str
    needs: str = ""


OBJECTIVES = {
    each.name: each
    for each in (
        Objective("latency", "latency_s", False, "s", "latency"),
        Objective("throughput", "throughput_ips", True, "images/s", "throughput"),
        Objective("p95", "latency_p95_s", False, "s", _P95, _REQUESTS),
        Objective("loaded-latency", "loaded_latency_s", False, "s", "latency at full throughput"),
        Objective("loaded-p95", "loaded_latency_p95_s", False, "s", f"{_P95} at full throughput", _REQUESTS),
        Objective("energy", "energy_j", False, "J", "energy per image", _SENSORS),
        Objective("active-energy", "active_energy_j", False, "J", "energy per image above idle", _SENSORS),
        Objective("payload", "payload_bytes", False, "bytes", "payload per request"),
        Objective("wire", "wire_bytes_per_image", False, "bytes", "bytes per image that cross the link"),
        Objective("accuracy", "accuracy_level", True, "", "accuracy"),
        Objective("edge-memory", "edge_peak_rss_bytes", False, "bytes", "peak memory of the edge"),
        Objective("edge-time", "edge_s", False, "s", "time on the edge"),
        Objective("goodput", "goodput_ips", True, "images/s", "images in time", _LOAD),
        Objective("sustained-rate", "sustained_ips", True, "images/s", "highest rate that holds", _RATE),
    )
}
DEFAULT = ("latency", "throughput")
ACCURACY = "accuracy"
"""The objective of the share of images that are classified right, or as by the whole model: `analysis.fronts.quality`.
Cells that the images cannot tell apart are equal in it."""


def objectives_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """The names of objectives, which may stand in one text with commas."""
    each = text.split(",") if isinstance(text, str) else text
    return tuple(filter(None, map(str.strip, each)))


def chosen(names: Sequence[str]) -> tuple[Objective, ...]:
    """The objectives of these names, in this order. Raises `UserError` for an unknown or repeated name, and for fewer
    than two: one objective has a best point, not a front.
    """
    for name in names:
        if name not in OBJECTIVES:
            raise UserError(f"no objective {name!r}; there are {', '.join(OBJECTIVES)}")
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"objectives {','.join(names) or 'none'}: name at least two, each once")
    return tuple(OBJECTIVES[name] for name in names)
