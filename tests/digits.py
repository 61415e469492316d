"""The digits of sweeps/digits, trained for seconds: far over chance, and far from what a minute gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests import REPOSITORY

SWEEP = REPOSITORY / "sweeps" / "digits.yaml"
MODEL = REPOSITORY / "sweeps" / "digits" / "digits.py"
BOTTLENECK = MODEL.with_name("bottleneck.py")
TRAIN = MODEL.with_name("train.py")
NEEDED = importlib.util.find_spec("sklearn") is not None
needs_digits = pytest.mark.skipif(not NEEDED, reason="needs requirements-digits.txt")


def script() -> ModuleType:
    """The module train.py."""
    spec = importlib.util.spec_from_file_location("sweeps_digits_train", TRAIN)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(folder: Path) -> float:
    """Train in `folder`, as the command does from there; returns the share of held-out images that is right."""
    right: float = script().make(folder / "results" / "digits", 0, 1, 3, 1)
    return right
