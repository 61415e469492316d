"""The columns that say what a row is about: the same in every frame of this package."""

from __future__ import annotations

CONDITION = ["model", "netem", "batch_size", "codec", "in_flight_asked", "setup"]
"""What is the same for all points that are compared. `setup` tells runs apart that were made with other settings or on
another testbed; it is empty where all runs are alike."""
CELL = [*CONDITION, "backend", "point"]
TRIAL = ["run", *CELL, "round"]
