"""From samples to what the tables say: one row for each place, size and way, one line for each place and way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pareto.bench.asked import FLOOR, Way
from pareto.bench.figures import Figure, Line, figure, line, ratio
from pareto.bench.measuring import ALONE, Sample

GB = 1e9


@dataclass(frozen=True)
class Row:
    """rounds: how many samples each figure is of. None: not measured, or there is no floor beside it.

    trip_s: of the median trip of each round; trip_mean_s: of the mean, which tells where some trips are slow.

    busy: as of `Sample`. cpu_s_per_gb: processor time of both ends together.
    """

    place: str
    nbytes: int
    way: str
    busy: float
    rounds: int
    trip_s: Figure
    trip_mean_s: Figure
    trip_to_floor: Figure | None
    bytes_per_s: Figure | None = None
    rate_to_floor: Figure | None = None
    cpu_s_per_gb: Figure | None = None


@dataclass(frozen=True)
class Overhead:
    """What a way's round trips alone, of any size, are on a place: a fixed time and one for each byte."""

    place: str
    way: str
    line: Line


def rows(samples: Sequence[Sample], ways: Sequence[Way]) -> list[Row]:
    """In the order of places, sizes, ways and how busy the ends were."""
    found: dict[tuple[str, int, float, str], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.place, sample.nbytes, sample.busy, sample.way), []).append(sample)
    places = list(dict.fromkeys(sample.place for sample in samples))
    labels = [way.label for way in ways]
    ordered = sorted(found, key=lambda key: (places.index(key[0]), key[1], labels.index(key[3]), key[2]))
    return [_row(found[key], found.get((*key[:3], FLOOR))) for key in ordered]


def overheads(of: Sequence[Row]) -> list[Overhead]:
    """Of each place and way that has enough sizes, fitted to the medians."""
    points: dict[tuple[str, str], list[Row]] = {}
    for row in of:
        if row.busy == ALONE:
            points.setdefault((row.place, row.way), []).append(row)
    fitted = {
        key: line([row.nbytes for row in some], [row.trip_s.median for row in some])
        for key, some in points.items()
    }
    return [Overhead(place, way, fit) for (place, way), fit in fitted.items() if fit is not None]


def _row(samples: Sequence[Sample], floor: Sequence[Sample] | None) -> Row:
    first = samples[0]
    trips = [sample.trip_s for sample in samples]
    rates, processor = _rates(samples), _processor(samples)
    floor_rates = _rates(floor) if floor else []
    return Row(
        first.place,
        first.nbytes,
        first.way,
        first.busy,
        len(samples),
        figure(trips),
        figure([sample.trip_mean_s for sample in samples]),
        ratio(trips, [sample.trip_s for sample in floor]) if floor else None,
        figure(rates) if rates else None,
        ratio(rates, floor_rates) if rates and floor_rates else None,
        figure(processor) if processor else None,
    )


def _rates(samples: Sequence[Sample]) -> list[float]:
    return [it.nbytes * it.payloads / it.stream_s for it in samples if it.payloads and it.stream_s]


def _processor(samples: Sequence[Sample]) -> list[float]:
    return [
        (it.near_cpu_s + it.far_cpu_s) / (it.nbytes * it.payloads) * GB
        for it in samples
        if it.payloads and it.near_cpu_s is not None and it.far_cpu_s is not None
    ]
