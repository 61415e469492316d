"""Advice on the screen."""

from __future__ import annotations

from pareto.analysis.prediction.network import Network
from tests.unit import simulated_network as world
from tests.unit.analysis.test_advise import asked, shown


def test_one_profile_is_told(snapshot):
    only = {"middle": world.PROFILES["middle"]}
    assert shown(asked(Network(0.02, 20e6), profiles=only)) == snapshot


def test_the_table_says_it_all(snapshot):
    assert shown(asked(Network(0.006, 20e6))) == snapshot
