"""One workload's predictors: from all its rounds, from draws of them, and from each alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.advice.network import Network
from analysis.advice.observed import Ints, Observed
from analysis.advice.predict import Predictor, as_measured, predictor
from analysis.advice.rounds import drawn, medians, together

Models = tuple[Predictor, Predictor, Predictor]
"""Central (arrays over cells), drawn (resamples x cells), by round (rounds x cells)."""


@dataclass(frozen=True)
class Ensemble:
    """`blocks` are the rounds that are drawn, `draws` which of them each resample has."""

    observed: Observed
    blocks: Observed
    draws: Ints

    @classmethod
    def of(cls, observed: Observed, resamples: int = 1000, seed: int = 0) -> Ensemble:
        blocks = together(observed)
        return cls(observed, blocks, drawn(blocks, resamples, seed))

    @cached_property
    def predicted(self) -> Models:
        """From all profiles, for any network."""
        return (
            predictor(self.observed),
            predictor(self.blocks, self.draws),
            predictor(self.blocks, self._alone),
        )

    def measured(self, profile: str, network: Network | None) -> Models:
        """Those that give at `network`, which is this profile, what was measured there; anywhere, if it is None."""
        selections = ((self.observed, None), (self.blocks, self.draws), (self.blocks, self._alone))
        made = []
        for number, (observed, draws) in enumerate(selections):
            there = observed.at(profile)
            if network is None:
                made.append(as_measured(there, draws))
            else:
                figures = (medians(values, draws) for values in (there.latency_s, there.throughput_ips))
                made.append(self.predicted[number].anchored(network, *figures))
        central, resampled, by_round = made
        return central, resampled, by_round

    @property
    def _alone(self) -> Ints:
        return np.arange(len(self.blocks.stratum))[:, None]
