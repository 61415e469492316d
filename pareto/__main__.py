"""`python -m pareto`, and the installed command `pareto`."""

from __future__ import annotations

import sys

from pareto import CLONE
from pareto.last_resort import guarded

SWEEP = {
    "cryptography": "paramiko",
    "paramiko": "paramiko",
    "psutil": "psutil",
    "pynvml": "nvidia-ml-py",
    "pyroute2": "pyroute2",
    "safetensors": "safetensors",
    "torch": "torch",
    "torchvision": "torchvision",
}
"""The modules that only the extra `sweep` installs, each with its package."""


def main() -> int:
    """Run the command line; returns the exit code."""
    return guarded(_command)


def _command() -> int:
    try:
        from pareto.cli import main

        return main()
    except ModuleNotFoundError as error:
        package = SWEEP.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        installed = (
            f"this command needs {package}: install the extra `sweep`, in a clone by pip install '.[sweep]'"
        )
        print(
            f"error: {f'.venv lacks {package}: remove it and start again' if CLONE else installed}",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
