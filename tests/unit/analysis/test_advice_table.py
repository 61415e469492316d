"""Advice on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console

from analysis.advice.advise import Advice, advise
from analysis.advice.network import Network
from analysis.tables.advice import advice_table
from tests.unit import simulated_network as world


def asked(
    network: Network,
    rows: pd.DataFrame | None = None,
    profiles: Mapping[str, Network] = world.PROFILES,
    **options: Any,
) -> Advice:
    rows = world.trials(profiles) if rows is None else rows
    return advise(rows, world.stages(rows), [world.manifest(profiles)], network, resamples=300, **options)


def shown(advice: Advice) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as said:
        console.print(advice_table(advice))
    text = said.get()
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


def test_one_profile_is_told(snapshot):
    only = {"middle": world.PROFILES["middle"]}
    assert shown(asked(Network(0.02, 20e6), profiles=only)) == snapshot


def test_the_table_says_it_all(snapshot):
    assert shown(asked(Network(0.006, 20e6))) == snapshot
