"""A sensor of one present value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Gauge:
    """`field` of a sample, and where it comes from. `read` gives None where the sensor did not answer."""

    field: str
    source: str
    read: Callable[[], float | int | None]


def answering(gauge: Gauge) -> Gauge | None:
    """The gauge if it gives a value now: a file or a command that is there may still be denied."""
    return None if gauge.read() is None else gauge
