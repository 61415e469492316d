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


def test_one_profile_is_told():
    only = {"middle": world.PROFILES["middle"]}
    said = " ".join(shown(asked(Network(0.02, 20e6), profiles=only)).split())
    assert "predicted, beyond what was measured" in said
    assert "This network is beyond what was measured (middle)" in said
    assert "from middle alone; of itself they were off by" in said
    assert "How they do elsewhere is not known" in said


def test_the_table_says_it_all():
    said = " ".join(shown(asked(Network(0.006, 20e6))).split())
    assert said.startswith("net at 6 ms and 20 Mbit/s: keep all on the edge: ")
    assert "Best for latency" in said
    assert "4 all on the edge -" in said
    assert "0 all on the server tcp" in said
    assert "At 6 ms, 3 over tcp is better from 2" in said
    assert "Mbit/s)" in said
    assert "Predictions are from slow, middle, fast; of each from the others they were off by" in said
    assert "at 24 points" in said
