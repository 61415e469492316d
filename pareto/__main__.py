import sys

from pareto.last_resort import guarded


def _main() -> int:
    from pareto.cli import main

    return main()


sys.exit(guarded(_main))
