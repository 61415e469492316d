"""Break the program on purpose, and see that a test says so: `python -m tests.mutants [-k TEXT]`.

The breaks are the rows of mutants.md. Each is made in a copy of the tree, where the one test that catches it then runs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests import REPOSITORY

TABLE = Path(__file__).with_suffix(".md")
LONGEST_S = 60
"""A break may make a test wait for ever: that is caught, too."""
VERDICTS = {0: "ESCAPED", 1: "caught"}
"""By pytest's exit status; all others say that the test is not there, or that it cannot run."""


class Break(NamedTuple):
    """A row of the table. caught_by: the id of a test, as pytest has it."""

    file: str
    old: str
    new: str
    caught_by: str


def rows(text: str) -> Iterator[Break]:
    """The breaks of a table in Markdown, in which code stands between backticks and `\\|` for `|`."""
    for line in text.splitlines():
        cells = [cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) > len(Break._fields) - 1 and cells[0].endswith(".py"):
            yield Break(*cells[: len(Break._fields)])


def copied(folder: Path) -> Path:
    """A copy of all files that are not ignored, as they are now."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source = REPOSITORY / name
        if source.is_symlink() or source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


def status(tree: Path, tests: Iterable[str], output: int | None = subprocess.DEVNULL) -> int:
    """How pytest ends in this tree."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command += [f"--timeout={LONGEST_S}", *tests]
    return subprocess.run(command, cwd=tree, env=environment, stdout=output, stderr=output).returncode


def verdict(tree: Path, number: int, each: Break) -> str:
    """What becomes of a break: `caught`, or what is wrong."""
    file = tree / each.file
    sound = file.read_text() if file.is_file() else ""
    if (count := sound.count(each.old)) != 1:
        return f"IS THERE {count} TIMES"
    file.write_text(sound.replace(each.old, each.new))
    os.utime(file, (number, number))  # else Python might take what it compiled of the file before
    ended = status(tree, [each.caught_by])
    file.write_text(sound)
    return VERDICTS.get(ended, f"NO TEST (pytest ends with {ended})")


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.mutants")
    options.add_argument("-k", metavar="TEXT", default="", help="only rows in which this stands")
    wanted = options.parse_args().k
    breaks = [each for each in rows(TABLE.read_text()) if any(wanted in cell for cell in each)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied(Path(folder))
        is_sound = status(tree, dict.fromkeys(each.caught_by for each in breaks), None) == 0
        caught = 0
        for number, each in enumerate(breaks, 1):
            said = verdict(tree, number, each)
            caught += said == "caught"
            print(f"{said:7} {each.file}: {each.old} -> {each.new} ({each.caught_by})", flush=True)
    print(f"{caught} of {len(breaks)} breaks are caught")
    if not is_sound:
        print("without any break not all of these tests pass: see above")
    return 0 if breaks and is_sound and caught == len(breaks) else 1


if __name__ == "__main__":
    sys.exit(main())
