"""Checks of what every backend must do: `pareto backend check`, or `pytest --pyargs pareto.testing`."""
