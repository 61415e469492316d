"""Networks that a prediction can be made for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pareto.analysis.prediction.network import Network, networks
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
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
    with pytest.raises(UserError, match="'plain'"):
        networks([{"profiles": {"plain": plain}}, world.manifest({"plain": ELSEWHERE})])
    for wrong in ((-1, 1e6), (0.1, 0), (np.inf, 1e6), (np.nan, 1e6)):
        with pytest.raises(UserError):
            Network(*wrong)


def test_a_real_link_without_emulation_is_what_was_measured_before_the_run():
    bare = {"rtt_s": 0.012, "rate_bps": 40e6 * GOODPUT, "rate_back_bps": None}
    manifest = {
        "profiles": {"none": {}, "slow": {"edge_to_server": {"delay_s": 0.1}}},
        "sessions": [{"bare_links": {"edge-server": bare}}],
    }
    found = networks([manifest])
    assert found["none"].same(Network(0.006, 40e6, 0.006))
    assert found["slow"].same(Network(0.1, math.inf))
    later = {**manifest, "sessions": [{"bare_links": {"edge-server": {**bare, "rtt_s": 0.013}}}]}
    assert networks([manifest, later])["none"] == found["none"]  # the link of another day
    elsewhere = {**manifest, "sessions": [{"bare_links": {"edge-server": {**bare, "rtt_s": 0.05}}}]}
    with pytest.raises(UserError):
        networks([manifest, elsewhere])
    chain = {**manifest, "sessions": [{"bare_links": {"a-b": bare, "b-c": bare}}]}
    assert networks([chain])["none"].same(Network(0.0, math.inf))
