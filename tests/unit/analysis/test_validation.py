"""Predictions held against profiles that were left out."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.advice.observed import Observed, observe
from analysis.advice.predict import validate
from tests.unit import simulated_network as world


def observed(**asked: Any) -> Observed:
    rows = world.trials(**asked)
    return observe(rows, world.stages(rows), asked.get("profiles") or world.PROFILES)


def test_left_out_profiles_are_predicted_and_compared():
    sure = validate(observed(noise=0.0))
    assert sure.held_out
    assert (sure.profiles, sure.cells) == (3, 24)
    assert sure.latency_worst == pytest.approx(0, abs=1e-9)
    noisy = validate(observed(noise=0.05))
    assert 0.001 < noisy.latency_median < 0.05
    assert noisy.latency_median < noisy.latency_worst


def test_a_link_that_is_not_what_it_says_shows_in_the_validation():
    rows = world.trials(noise=0.0)
    late = (rows["netem"] == "fast") & (rows["payload_bytes"] > 0)
    rows.loc[late, ["network_s", "latency_s"]] += 0.050
    assert validate(observe(rows, world.stages(rows), world.PROFILES)).latency_worst > 0.3


def test_one_profile_is_compared_with_itself_only():
    only = {"middle": world.PROFILES["middle"]}
    found = validate(observed(profiles=only))
    assert not found.held_out
    assert found.cells == 8
    assert found.latency_worst < 0.05
