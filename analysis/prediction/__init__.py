"""Predictions of any split over any chain of hosts: arithmetic, forecasts from a model profile, best splits."""
