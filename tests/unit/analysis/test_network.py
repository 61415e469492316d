"""Networks that a prediction can be made for."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.advice.network import Network, networks
from analysis.errors import AnalysisError
from tests.unit import simulated_network as world

ELSEWHERE = Network(0.02, 20e6)


def test_profiles_that_change_or_lose_are_not_networks():
    plain = {"edge_to_server": {"delay_s": 0.1, "rate_bps": 1e6}, "server_to_edge": {}}
    profiles = {
        "plain": plain,
        "none": {"edge_to_server": {}, "server_to_edge": {}, "bucket": None},
        "lossy": {"edge_to_server": {"delay_s": 0.1, "loss": 0.01}, "server_to_edge": {}},
        "moving": {"edge_to_server": {}, "server_to_edge": {"trace": {"name": "drive", "steps": 3}}},
        "bucket": plain | {"bucket": {"burst_bytes": 32768}},
        "short": {"edge_to_server": {"rate_bps": 1e6, "limit_bytes": 30000}, "server_to_edge": {}},
        "broken": None,
    }
    found = networks([{"profiles": profiles}, {}, {"profiles": "?"}])
    assert found == {"plain": Network(0.1, 1e6), "none": Network(0.0, np.inf)}
    with pytest.raises(AnalysisError, match="'plain'"):
        networks([{"profiles": {"plain": plain}}, world.manifest({"plain": ELSEWHERE})])
    for wrong in ((-1, 1e6), (0.1, 0), (np.inf, 1e6), (np.nan, 1e6)):
        with pytest.raises(AnalysisError):
            Network(*wrong)
