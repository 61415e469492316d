"""Pareto-front sweep benchmarking of split DNN inference over emulated networks."""

__version__ = "0.1.0"
