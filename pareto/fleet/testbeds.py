"""Which testbeds a fleet has, what each is called in the rows, and what each does now."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.runs.manifest import testbed_name
from pareto.hosts import inventory
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE

if TYPE_CHECKING:
    from distributed import Future

    from pareto.fleet.tasks import Group, Task

MOST_TESTBEDS = 256
MACHINE_MARKS = (Path("/proc/device-tree/serial-number"), Path("/etc/machine-id"))
"""What a machine alone has: a Pi's serial number, for cards are copied; else what its system was installed with."""
_TIMES = re.compile(r"(.+)\*([1-9][0-9]{0,5})")


def spelled_out(text: str) -> str:
    """What `--testbed` says, with each testbed of a file that has several: `labs.yaml#lab1,labs.yaml#lab2`."""
    parts = [text] if Path(text).is_file() else text.split(",")
    return ",".join(
        ",".join(f"{part.strip()}#{name}" for name in inventory.names(Path(part.strip()))) or part
        for part in parts
    )


def several(text: str) -> tuple[str, ...]:
    """The testbeds that `--testbed` names: `a.yaml,local`, or `simulated:w.yaml*32` for as many of a kind.

    Raises ValueError.
    """
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
        taken.append(free(name, taken))
    return taken


def free(name: str, taken: Container[str]) -> str:
    """The name, or the first with a number that is not taken."""
    return next(each for each in with_numbers(name) if each not in taken)


def with_numbers(name: str) -> Iterator[str]:
    """`local`, `local-2`, and so on."""
    return (name if number == 1 else f"{name}-{number}" for number in count(1))


def in_words(names: Sequence[str]) -> str:
    """`local, lab1 and 3 more`."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def member_name(testbed: str, host: str) -> str:
    """What a member by hand is called at the scheduler: `local@host/3f2a91`, `lab1@host/3f2a91:/home/me/lab1.yaml`.

    With the machine and the file, for members that are started in another order must not swap their names.
    """
    file = testbed.removeprefix(f"{SIMULATED}:")
    where = "" if file in (THIS_MACHINE, SIMULATED) else f":{Path(file).resolve()}"
    return f"{testbed_name(testbed)}@{host}{where}"


def this_host(marks: Sequence[Path] = MACHINE_MARKS) -> str:
    """This machine's name, with what tells it from another of that name, where it knows: many a Pi is `raspberrypi`."""
    for mark in marks:
        with suppress(OSError):
            if text := mark.read_bytes().strip(b"\0\n "):
                return f"{platform.node()}/{hashlib.sha256(b'pareto ' + text).hexdigest()[:6]}"
    return platform.node()


def called(member: str) -> str:
    """What rows call the testbed of a member by hand: `lab1` of `lab1@host:/home/me/lab1.yaml`."""
    return member.partition("@")[0]


@dataclass
class Testbed:
    """A testbed of the fleet. name: in the rows. member: its worker's name at the scheduler."""

    name: str
    member: str
    address: str = ""
    """Its worker's; empty while it is lost."""
    task: Task | None = None
    future: Future | None = None
    seen: Counter[Group] = field(default_factory=Counter)
    losses: int = 0
    trials: int = 0
    out: str = ""
    """Why it is in the fleet no more."""
    is_lost: bool = False
    """Whether it was there before."""

    __test__ = False

    @property
    def is_here(self) -> bool:
        """Whether it can be given a task, or has one."""
        return bool(self.address) and not self.out
