"""The testbeds that `--testbed` names, and what each of them is called in the rows."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from pareto.hosts import inventory
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE

MOST_TESTBEDS = 256
_TIMES = re.compile(r"(.+)\*([1-9][0-9]{0,5})")


def spelled_out(text: str) -> str:
    """The value of `--testbed`, with each testbed of a file that has several: `labs.yaml#lab1,labs.yaml#lab2`."""
    parts = [text] if Path(text).is_file() else text.split(",")
    return ",".join(
        ",".join(f"{part.strip()}#{name}" for name in inventory.names(Path(part.strip()))) or part
        for part in parts
    )


def several(text: str) -> tuple[str, ...]:
    """The testbeds that `--testbed` names: `a.yaml,local`, or `simulated:w.yaml*32` for as many of a kind. Raises
    ValueError."""
    if not re.search(r"[,*]", text) or Path(text).is_file():
        return (text,)
    testbeds: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        times = _TIMES.fullmatch(part)
        if times and not Path(part).is_file():
            testbeds += [times[1]] * min(int(times[2]), MOST_TESTBEDS + 1)
        else:
            testbeds.append(part)
    if not testbeds:
        raise ValueError("name at least one testbed")
    if len(testbeds) > MOST_TESTBEDS:
        raise ValueError(f"{MOST_TESTBEDS} testbeds at the most")
    files = [part for part in testbeds if part.partition(":")[0] not in (THIS_MACHINE, SIMULATED)]
    each = Counter(map(os.path.realpath, files))
    if twice := next((part for part in files if each[os.path.realpath(part)] > 1), None):
        raise ValueError(f"{twice} is there twice, and its hosts are held by one at a time: name each once")
    return tuple(testbeds)


def numbered(names: Iterable[str]) -> list[str]:
    """The names, each with a number where another has it: `local`, `local-2`."""
    taken: list[str] = []
    for name in names:
        others = (name if number == 1 else f"{name}-{number}" for number in count(1))
        taken.append(next(other for other in others if other not in taken))
    return taken
