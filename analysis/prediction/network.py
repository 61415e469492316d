"""A network by its delays and rates, and which ones a run's profiles were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from pareto.analysis.runs.manifest import directions, section, sessions, within
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError

ROUNDING = 1e-9
OWN_APART = 0.25
"""The share by which a link that is not emulated may differ from run to run and be the same: others use it, too."""
CHANGING = ("trace", "loss", "reorder", "limit_bytes")
"""Fields of a direction that keep TCP from running at one rate: there the arithmetic says nothing."""


@dataclass(frozen=True)
class Network:
    """Between edge and server: one-way delays (s) and rates on the wire (bit/s; inf: not limited), out and back.

    The way back is not shaped unless it is given, as with the profiles of the name `80ms-20mbit`.
    """

    delay_s: float
    rate_bps: float
    delay_back_s: float = 0.0
    rate_back_bps: float = math.inf

    def __post_init__(self) -> None:
        delays, rates = (self.delay_s, self.delay_back_s), (self.rate_bps, self.rate_back_bps)
        if not all(0 <= delay < math.inf for delay in delays) or not all(rate > 0 for rate in rates):
            raise UserError("a network has delays of 0 or more and rates above 0")

    def same(self, other: Network, apart: float = ROUNDING) -> bool:
        """Whether both are one network: no figure of theirs is that share apart."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return all(math.isclose(mine, theirs, rel_tol=apart) for mine, theirs in pairs)


UNSHAPED = Network(0.0, math.inf)


def networks(manifests: Iterable[Mapping[str, Any]], *, strict: bool = True) -> dict[str, Network]:
    """The profiles of some runs, by name, that are one constant delay and rate each way: none that `CHANGING` or a
    token bucket keeps TCP from filling, and no chain.

    Jitter counts with its mean. Real hosts' own link is as the run measured it before its first trial. Where two runs
    mean different things by one name it is left out, or with `strict` raises `UserError`.
    """
    result: dict[str, Network] = {}
    unclear = set()
    for manifest in manifests:
        own = _own(manifest)
        for name in section(manifest, "profiles"):
            content, ways = within(manifest, "profiles", name), directions(manifest, name)
            changing = any(way.get(field) for way in ways for field in CHANGING)
            if changing or not isinstance(content, Mapping) or content.get("bucket"):
                continue
            figures = ((way.get("delay_s") or 0.0, way.get("rate_bps") or math.inf) for way in ways)
            network, apart = Network(*(each for way in figures for each in way)), ROUNDING
            if own is not None and network == UNSHAPED:
                network, apart = own, OWN_APART
            if not result.setdefault(name, network).same(network, apart):
                if strict:
                    raise UserError(f"the runs mean different links by {name!r}: analyse them one by one")
                unclear.add(name)
    return {name: network for name, network in result.items() if name not in unclear}


def _own(manifest: Mapping[str, Any]) -> Network | None:
    """The one link between a run's real hosts as it is, as its last session measured it."""
    for session in reversed(sessions(manifest)):
        bare = section(session, "bare_links")
        if len(bare) == 1:
            (link,) = bare.values()
            delay_s = (link.get("rtt_s") or 0.0) / 2
            out_bps, back_bps = (link.get(rate) or math.inf for rate in ("rate_bps", "rate_back_bps"))
            return Network(delay_s, out_bps / GOODPUT, delay_s, back_bps / GOODPUT)
    return None
