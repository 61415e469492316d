"""Which folders are meant: a run's, one that holds runs, or a pattern of several."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from analysis import files
from analysis.schema import TRIALS
from pareto.errors import UserError

Runs = str | Path | Iterable[str | Path]
"""A path, a text, a pattern such as `results/*`, or several of them."""


def folders(runs: Runs) -> list[Path]:
    """The run folders that are meant, in the order asked for; those of a pattern, or inside a folder, by name.

    A run is a folder with a `trials.csv`; a folder without one stands for the runs directly in it. Of a pattern
    whatever is no run is passed over. Raises `UserError` for what is not there, holds no run, or names one twice.
    """
    asked = [runs] if isinstance(runs, str | Path) else list(runs)
    found = [folder for one in asked for folder in _meant(one)]
    seen: dict[Path, Path] = {}
    for folder in found:
        first = seen.setdefault(folder.resolve(), folder)
        if first is not folder:
            also = "" if str(first) == str(folder) else f", also as {first}"
            raise UserError(f"{folder} is given twice{also}: give each run once")
    return found


def _meant(asked: str | Path) -> list[Path]:
    path = Path(asked).expanduser()
    if not path.exists() and glob.has_magic(str(path)):
        names = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
        matches = [folder for name in sorted(names) for folder in _runs_in(name)]
        if not matches:
            raise UserError(f"{asked}: no run's folder is called so")
        return matches
    if not path.is_dir():
        raise UserError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
    if not (held := _runs_in(path)):
        raise UserError(f"{path}: not a run, nor a folder of runs: there is no {TRIALS.file}")
    return held


def _runs_in(path: Path) -> list[Path]:
    if is_run(path):
        return [path]
    # A link in a folder of runs leads to where its maker wants; one that is named itself to where the user does.
    return (
        sorted(child for child in path.iterdir() if is_run(child) and not child.is_symlink())
        if path.is_dir()
        else []
    )


def is_run(path: Path) -> bool:
    """Whether a folder has a `trials.csv`; whether that is a plain file shows when it is read."""
    return files.kind(path / TRIALS.file) in ("a file", "a link")
