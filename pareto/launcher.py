"""The start of a module of this program: `python .../pareto/launcher.py MODULE ARGUMENTS`.

Unlike `python -m MODULE` it leaves the current folder off Python's path: a `random.py` of the user's project, or of a
stranger's results, would be imported instead of the real one. Python itself has an option for this since 3.11, `-P`.
"""

import sys

if __name__ == "__main__":
    if sys.path[0] == __file__.rpartition("/")[0]:  # it is not there where PYTHONSAFEPATH is set
        del sys.path[0]
    del sys.argv[0]
    import runpy

    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
