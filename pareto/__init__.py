"""Pareto-front sweep benchmarking of split DNN inference over emulated networks."""

from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent
CLONE = (_PACKAGE.parent / "pareto.sh").is_file()
"""Whether this runs from a clone of the repository; otherwise it is installed from a wheel."""
COMMAND = "./pareto.sh" if CLONE else "pareto"
"""How the user starts this program."""
DATA = _PACKAGE.parent if CLONE else _PACKAGE / "data"
"""Where netem_profiles/, sweeps/ and the hosts' requirements are; pyproject.toml puts them into the wheel."""
RESULTS = DATA / "results" if CLONE else Path("results")
"""Where run folders go unless another place is given."""
PROFILES = RESULTS / "profiles"
"""Where model profiles are kept unless another place is given."""
