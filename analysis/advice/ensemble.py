"""One workload's predictors: from all its rounds, and from each alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.advice.network import Network
from analysis.advice.observed import Ints, Observed
from analysis.advice.predict import Predictor, as_measured, predictor
from analysis.advice.rounds import medians, together
from analysis.statistics.floor import OF, UNKNOWN, Floor, Floors

Models = tuple[Predictor, Predictor]
"""Central (arrays over cells), by round (rounds x cells)."""


@dataclass(frozen=True)
class Ensemble:
    """`blocks`: the rounds, of very many several together. floor: by column, what identical treatments differ by."""

    observed: Observed
    blocks: Observed
    floor: Floor = UNKNOWN

    @classmethod
    def of(cls, observed: Observed, floors: Floors) -> Ensemble:
        model, setup = (str(observed.cells[name].iloc[0]) for name in OF)
        return cls(observed, together(observed), floors.get((model, setup), UNKNOWN))

    @cached_property
    def predicted(self) -> Models:
        """From all profiles, for any network."""
        return predictor(self.observed), predictor(self.blocks, self._alone)

    def measured(self, profile: str, network: Network | None) -> Models:
        """Those that give at `network`, which is this profile, what was measured there; anywhere, if it is None."""
        selections = ((self.observed, None), (self.blocks, self._alone))
        made = []
        for number, (observed, draws) in enumerate(selections):
            there = observed.at(profile)
            if network is None:
                made.append(as_measured(there, draws))
            else:
                figures = (medians(values, draws) for values in (there.latency_s, there.throughput_ips))
                made.append(self.predicted[number].anchored(network, *figures))
        central, by_round = made
        return central, by_round

    @property
    def _alone(self) -> Ints:
        return np.arange(len(self.blocks.stratum))[:, None]
