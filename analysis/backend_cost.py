"""The cost of a backend to a request on a link, by the payloads probed: a line, and its processor time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from pareto.analysis.statistics.samples import Bools, Floats
from pareto.protocol.constants import GOODPUT, QUEUE_LEAST_BYTES

RESENT = 1.25
"""A payload that takes so many times as long as smaller ones let expect has been sent again in part."""


@dataclass(frozen=True, eq=False)
class BackendCost:
    """The seconds that a backend adds to a request on a link, beyond delays and bytes over goodput: a + b x bytes.

    By payload, columns of `backends.csv` (`analysis.schema.BACKENDS`). Empty is like NaN: not measured.
    """

    link: str
    backend: str
    payload_bytes: Floats
    trip_s: Floats
    link_s: Floats
    near_s: Floats = field(default_factory=partial(np.empty, 0))
    far_s: Floats = field(default_factory=partial(np.empty, 0))
    shaper_s: Floats = field(default_factory=partial(np.empty, 0))

    @property
    def figures(self) -> dict[str, Any]:
        """Each figure by payload; NaN where nobody measured it."""
        unknown = np.full(len(self.payload_bytes), np.nan)
        figures = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {name: value if len(value) else unknown for name, value in figures.items()}

    def where(self, *, waiting: bool) -> BackendCost:
        """The same by the payloads that a link slowed, or by those that nothing did; by all where there are no such."""
        chosen = (self.link_s > 0) == waiting
        chosen |= not chosen.any()
        return replace(self, **{name: value[chosen] for name, value in self.figures.items()})

    def and_of(self, other: BackendCost) -> BackendCost:
        """The same by the payloads of both."""
        theirs = other.figures
        both: dict[str, Any] = {name: np.append(mine, theirs[name]) for name, mine in self.figures.items()}
        return replace(self, **both)

    @property
    def parts(self) -> tuple[BackendCost, ...]:
        """The same by the payloads that nothing slowed, and by those that a link did, as far as there are such."""
        both = (self.where(waiting=False), self.where(waiting=True))
        return both if len(both[0].payload_bytes) < len(self.payload_bytes) else both[:1]

    @property
    def fixed_s(self) -> float:
        """a, in seconds a request."""
        return self._line[0]

    @property
    def per_byte_s(self) -> float:
        """b, in seconds a byte."""
        return self._line[1]

    @property
    def residual(self) -> float:
        """The root of the mean square of log(round trip / what a, b and the link say of it)."""
        return float(np.sqrt(np.mean(np.log(self._off[self._fitting]) ** 2)))

    @property
    def resends(self) -> bool:
        """Whether payloads that no queue of usual length holds took much longer than a, b and the link say: they are
        sent in part once more. One connection sends no more than the queue holds; several do.
        """
        return bool((self._off[~self._fitting] > RESENT).any())

    def processor_s(self, end: str, nbytes: Floats) -> Floats:
        """The processor time (s) of these payloads by `near_s`, `far_s` or `shaper_s`; 0 where nobody knows."""
        taken_s = getattr(self, end)
        known = np.isfinite(taken_s)
        if not known.any():
            return np.zeros_like(nbytes)
        fixed_s, per_byte_s = _line(self.payload_bytes[known], np.maximum(taken_s[known], 1e-9))
        return np.asarray(fixed_s + per_byte_s * nbytes)

    @property
    def _off(self) -> Floats:
        """Round trips over what a, b and the link say of them."""
        fixed_s, per_byte_s = self._line
        return self.trip_s / np.maximum(self.link_s + fixed_s + per_byte_s * self.payload_bytes, 1e-12)

    @property
    def _fitting(self) -> Bools:
        """The payloads of which a link's queue holds all packets at once, or that meet no queue; else all."""
        fits = (self.link_s == 0) | (self.payload_bytes / GOODPUT <= QUEUE_LEAST_BYTES)
        return np.asarray(fits | ~fits.any())

    @property
    def _line(self) -> tuple[float, float]:
        """The line through what payloads take beyond the link, by those that fit into its queue."""
        fits, rest_s = self._fitting, np.maximum(self.trip_s - self.link_s, 0.0)
        return _line(self.payload_bytes[fits], rest_s[fits], self.trip_s[fits])


def _line(nbytes: Floats, seconds: Floats, scale_s: Floats | None = None) -> tuple[float, float]:
    """a and b of a + b x bytes by least squares of the errors as shares of `scale_s`, neither below 0."""
    from scipy.optimize import nnls  # takes long to import, and a run without a profile needs none of it

    scale_s = seconds if scale_s is None else scale_s
    terms = np.column_stack([np.ones_like(nbytes), nbytes])
    size = np.array([1.0, max(float(nbytes.max()), 1.0)])  # terms of like size
    solved, _ = nnls(terms / size / scale_s[:, None], seconds / scale_s)
    return float(solved[0]), float(solved[1] / size[1])
