"""The command that asks for a run again, held to the command line itself."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from pareto.commands.app import commands
from pareto.hosts.host import TcpSettings
from pareto.remote.link.probe import Tolerance
from pareto.sweep.checked_sweep import make_sweep, requested_sweep
from pareto.sweep.options import FIELDS, OPTIONS, REQUIRED, command
from pareto.sweep.sweep import Sweep


def test_every_field_of_a_sweep_is_an_option_and_the_other_way_round() -> None:
    plain = Sweep.model_validate({"model": "any"})
    assert set(Sweep.model_fields) == set(FIELDS)
    for name, option in OPTIONS.items():
        assert Sweep.model_fields[option.field].alias == name
        assert option.default is REQUIRED or getattr(plain, option.field) == option.default
    assert command(plain.model_dump(mode="json")) == "./pareto.sh --model any"


def test_what_help_says_of_defaults_that_stand_elsewhere() -> None:
    plain = make_sweep({"model": "any"})
    assert plain.link_tolerance == Tolerance()
    assert OPTIONS["initial_window"].shown == str(TcpSettings.initial_window)
    assert f"up to {plain.rounds} rounds" in OPTIONS["trials"].help


@pytest.mark.parametrize(
    "wanted",
    [
        {"model": "resnet18,alexnet", "netem": "wifi+lte,80ms-20mbit", "backend": "tcp:a,tcp:b", "hosts": 3},
        {
            "model": "nets/my net.py:build",
            "points": "0,features.7,9-12",
            "only": True,
            "granularity": "op",
            "live_tensors": 4,
        },
        {
            "model": "a",
            "fold": False,
            "input": "uint8",
            "dataset": "folder",
            "data_path": "/a b/c",
            "images": 3,
        },
        {"model": "a", "trials": "4", "batch_size": "1,8", "in_flight": "auto,4", "congestion": "bbr"},
        {"model": "a", "initial_window": 10, "slow_start_after_idle": True, "weights": "w.pth", "seed": 9},
        {
            "model": "a",
            "edge_cpu": 0.25,
            "threads": 2,
            "sample": "off",
            "tolerance": "7%",
            "rtt_floor": "0.3ms",
            "slowdown": 2.5,
        },
        {"model": "a", "sample": 0.0123, "tolerance": 0.123, "rtt_floor": 1e-5, "shape_at": "edge"},
        {"model": "a", "quick": True, "trials": 1},
        {"model": "a", "quick": True, "trials": 3},
        {"model": "a", "until": "2.5%", "trials": 6},
        {"model": "a", "budget": "20min", "trials": 3},
        {"model": "a", "budget": "95s", "trials": 1, "until": "10%", "quick": True},
    ],
)
def test_command_asks_for_the_same_sweep_again(wanted: dict[str, Any]) -> None:
    sweep = make_sweep(wanted)
    words = shlex.split(command(sweep.model_dump(mode="json")))
    assert words[0] == "./pareto.sh"
    run = commands().commands["run"]
    given = run.make_context("run", words[1:]).params
    options = {
        name: value
        for name, value in given.items()
        if value is not None and name not in ("out", "dry_run", "figures")
    }
    assert requested_sweep(None, options) == sweep
