"""Pareto-front sweep benchmarking of split DNN inference over emulated networks: `pareto.api` is for Python."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pareto.api import Run, Sweep, advise, compare, load, run
    from pareto.protocol.errors import UserError

__all__ = ["Run", "Sweep", "UserError", "advise", "compare", "load", "run"]

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


def __getattr__(name: str) -> Any:
    """Import what is for Python when it is first used: a command line must start quickly."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pareto import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
