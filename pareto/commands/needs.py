"""A command's needs of this machine before anything is installed, by the standard library alone.

`python -m pareto.commands.needs ARGUMENTS`, run by pareto.sh with the arguments that it was given, prints the package
that is missing, if one is; it fails in one line where the command could not run whatever is installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pareto.hosts.local import rights

_BUILDS = {"run": "", "partitions": "--times", "doctor": "--link"}
"""The commands that build a testbed on this machine, unless another is named; and with which option."""
_NOT_RUN = ("--help", "-h", "--version", "--dry-run", "--install-", "--show-")
"""The beginnings of options with which nothing is run."""
_NAMED = re.compile(r"^testbed: *['\"]?([^'\"#\s]+)", re.MULTILINE)


def local_testbed(arguments: Sequence[str]) -> bool:
    """Whether a command line builds the local testbed; False where that cannot be seen from it."""
    words = list(arguments)
    if words and words[0].startswith("-"):
        words.insert(0, "run")
    builds = bool(words) and _BUILDS.get(words[0], "no") in {"", *(word.partition("=")[0] for word in words)}
    if not builds or any(word.startswith(_NOT_RUN) for word in words):
        return False
    return (_value(words, "--testbed") or _saved(words) or "local") == "local"


def _saved(words: Sequence[str]) -> str:
    """The testbed in a sweep's file, or in the folder of a run that goes on; `unknown` where that cannot be read."""
    try:
        if folder := _value(words, "--resume"):
            return str(json.loads(Path(folder, "manifest.json").read_text())["sweep"]["testbed"])
        sweep = next((Path(word) for word in words[1:] if word.endswith((".yaml", ".yml"))), None)
        if sweep is not None and not sweep.is_file():  # what never ends is none
            return "unknown"
        named = _NAMED.search(sweep.read_text()) if sweep is not None else None
        return named[1] if named else ""
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "unknown"  # the command itself says what is wrong with it


def _value(words: Sequence[str], option: str) -> str:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == option:
            return after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def main() -> None:
    if not local_testbed(sys.argv[1:]):
        return
    try:
        rights.find()
    except rights.Forbidden as forbidden:
        print(f"error: {forbidden}", file=sys.stderr)
        sys.exit(2)
    if rights.sshd() is None:
        print("openssh-server")


if __name__ == "__main__":
    main()
