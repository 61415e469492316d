"""How well predictions do, tested where the truth was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.advice.observed import Observed
from analysis.advice.predict import predictor
from analysis.advice.rounds import medians
from analysis.fronts.dominance import Floats


@dataclass(frozen=True)
class Validation:
    """Absolute errors, as shares of what was measured, over the points that cross the link (NaN: none could be tested).

    `held_out`: each profile was predicted from the others alone; else from all, itself among them, as there is no
    other. `profiles`: how many were tested. `cells`: how many points at them. spread: the root of the mean
    square of the logarithms of predicted over measured.
    """

    held_out: bool
    profiles: int
    cells: int
    latency_median: float
    latency_worst: float
    throughput_median: float
    throughput_worst: float
    latency_spread: float
    throughput_spread: float

    def of(self, objective: str) -> tuple[float, float]:
        """Median and worst."""
        if objective == "latency":
            return self.latency_median, self.latency_worst
        return self.throughput_median, self.throughput_worst

    def spread(self, objective: str) -> float:
        """What the model gets wrong, as a standard deviation; NaN where nothing is known of how it does elsewhere."""
        if not self.held_out:
            return np.nan
        return self.latency_spread if objective == "latency" else self.throughput_spread


def validate(observed: Observed) -> Validation:
    """Leaves out one profile after the other, predicts it, and compares with the medians measured there.

    Points where nothing crosses are not tested: no network is in them.
    """
    held_out = len(observed.profiles) > 1
    errors: list[tuple[Floats, Floats]] = []
    crossing = observed.cells["backend"].ne("").to_numpy()
    for profile in observed.profiles:
        network = vars(observed.networks[profile])
        central = predictor(observed.without(profile) if held_out else observed)
        there = observed.at(profile)
        latency = central.latency_s(**network) / medians(there.latency_s) - 1
        throughput = central.throughput_ips(**network) / medians(there.throughput_ips) - 1
        errors.append((latency[crossing], throughput[crossing]))
    latencies, throughputs = (np.concatenate(of_kind) for of_kind in zip(*errors, strict=True))
    tested = np.isfinite(latencies)
    return Validation(
        held_out,
        len(observed.profiles),
        int(np.count_nonzero(tested)),
        *_median_and_worst(latencies),
        *_median_and_worst(throughputs),
        *(_spread(errors) for errors in (latencies, throughputs)),
    )


def _median_and_worst(errors: Floats) -> tuple[float, float]:
    known = np.abs(errors[np.isfinite(errors)])
    return (float(np.median(known)), float(known.max())) if len(known) else (np.nan, np.nan)


def _spread(errors: Floats) -> float:
    known = np.log1p(errors[np.isfinite(errors)])
    return float(np.sqrt(np.mean(known**2))) if len(known) else np.nan
