"""What every backend must do, as checks that ship: `pareto backend check`, or `pytest --pyargs pareto.testing`."""
