"""Pareto-front sweep benchmarking of split DNN inference over emulated networks."""

from pathlib import Path

__version__ = "0.1.0"
RESULTS = Path(__file__).resolve().parents[1] / "results"
"""Where run folders go unless another place is given."""
