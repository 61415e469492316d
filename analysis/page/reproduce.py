"""The command that makes a run again, from the settings in its manifest."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

DEFAULTS: dict[str, Any] = {
    "netems": ["none"],
    "backends": ["tcp", "rpc"],
    "points": ["all"],
    "only": False,
    "granularity": "block",
    "live_tensors": 1,
    "fold": True,
    "hosts": None,
    "input": "auto",
    "dataset": "synthetic",
    "data_path": None,
    "images": None,
    "trials": 6,
    "until": None,
    "budget": None,
    "batch_sizes": [1],
    "depths": ["auto"],
    "congestion": None,
    "initial_window": None,
    "slow_start_after_idle": False,
    "weights": "seeded",
    "seed": 0,
    "testbed": "local",
    "edge_cpu": 1.0,
    "threads": None,
    "sample": 0.2,
    "tolerance": 0.02,
    "rtt_tolerance": 0.01,
    "rtt_floor": 0.0003,
    "slowdown": 1.5,
    "shape_at": "both",
    "restart": "never",
    "quick": False,
}
"""What is not worth saying, by the manifest's keys. The harness has its own, which a test holds against these."""
_OLDER = {"input": "float32", "only": True}
"""How a run was made whose manifest is older than the key; `only` means nothing where all points were asked for."""
QUICK_TRIALS = 1
"""Rounds where nobody said how many and `quick` was asked for."""
_OPTIONS = {
    "models": "--model",
    "netems": "--netem",
    "backends": "--backend",
    "batch_sizes": "--batch-size",
    "depths": "--in-flight",
    "fold": "--no-fold",
}
"""Options that are not called as their keys."""
_DURATIONS = ("sample", "rtt_floor")
_LONG = ("budget",)
_SHARES = ("tolerance", "rtt_tolerance", "until")


def command(sweep: Mapping[str, Any]) -> str:
    """`./pareto.sh --model mobilenet_v2 --netem wifi`: a manifest's `sweep` as one line for a shell.

    Settings that are as they are without saying so are left out. Keys that this version does not know are written
    out too: a newer one does.
    """
    older = _OLDER if sweep.get("points", ["all"]) != ["all"] else _OLDER | {"only": False}
    sweep = older | dict(sweep)
    defaults = DEFAULTS | ({"trials": QUICK_TRIALS} if sweep.get("quick") else {})
    if sweep.get("until") or sweep.get("budget"):
        defaults["trials"] = None  # then it is another number, that of the first rounds: said in any case
    words = ["./pareto.sh"]
    for key in dict.fromkeys(["models", *DEFAULTS, *sweep]):
        value, default = sweep.get(key, defaults.get(key)), defaults.get(key)
        # A switch of a newer version that is off is as if it were not there.
        if value != default and not (key not in defaults and value is False):
            words += _option(key, value)
    return " ".join(map(shlex.quote, words))


def _option(key: str, value: Any) -> Iterator[str]:
    yield _OPTIONS.get(key, f"--{key.replace('_', '-')}")
    if not isinstance(value, bool):
        yield _written(key, value)


def _written(key: str, value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if key in _DURATIONS:
        milliseconds = _decimal(value, 1000)
        # Unless its reader would then find another last bit.
        return f"{milliseconds}ms" if float(milliseconds) / 1000 == value else f"{_decimal(value)}s"
    if key in _LONG:
        return f"{_decimal(value / 60)}min" if value % 60 == 0 else f"{_decimal(value)}s"
    if key in _SHARES:
        percent = _decimal(value, 100)
        return f"{percent}%" if key == "until" or float(percent) / 100 == value else _decimal(value)
    return str(value)


def _decimal(value: float, times: int = 1) -> str:
    """Every digit that the number has, without an exponent."""
    return f"{(Decimal(repr(value)) * times).normalize():f}"
