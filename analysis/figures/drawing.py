"""A figure as it is published: drawn at several widths, with its data and its caption in files beside it.

matplotlib is imported when a figure is drawn, and not with this: a report's tables and answer do not wait for it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from pareto.analysis import methods
from pareto.analysis.figures.look import PAGE, WIDTHS_IN, chosen
from pareto.analysis.naming import IN_WORDS, SIMULATED, USUAL, digest, file_stem, levels, some
from pareto.analysis.runs.points import CELL
from pareto.analysis.runs.standing import struck_off
from pareto.basics import files
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError

POINT = [*CELL, "point_name", "rounds", "excluded"]
"""The columns that the data of most figures begin with."""
MOST_PROCESSES = 8
MOST_WORDS = 60
"""The most words of a figure's caption; what marks mean in general is in docs/figures.md."""
_NAMED, _TESTBED_WORDS = 4, 12


class Nothing(UserError):
    """A figure that has nothing to show, and why."""


@dataclass(frozen=True)
class Told:
    """Words and data of the marks on a figure's axes: `layout.finish` writes them.

    words: of the caption: what is shown, then what marks mean. data: what is drawn, units in the columns' names. rows:
    those of the front that are counted. labels: arguments of `layout.place_labels`.
    """

    title: str
    words: Sequence[str]
    data: pd.DataFrame
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    testbed: str = ""
    labels: Sequence[tuple[Any, ...]] = ()
    note: str = ""

    def caption(self) -> str:
        """The sentences on what it shows and what marks mean, as many as fit `MOST_WORDS`; the last ones go first."""
        words, most = self.testbed.split(), _TESTBED_WORDS if len(self.rows) else MOST_WORDS
        where = " ".join(words[:most]) + (" …" if len(words) > most else "")
        what, *marks = self.words
        *facts, out = _facts(self.rows) if len(self.rows) else [""]
        kept: list[str] = []
        for sentence in (what, *facts, *marks, f"Testbed: {where}" if where else "", out):
            if len(" ".join((*kept, sentence)).split()) <= MOST_WORDS:
                kept.append(sentence)
        return caption(*kept)

    def footnote(self) -> str:
        """The line beneath the figure: whether it is simulated, and how many trials were left out."""
        if self.rows.empty:
            return self.note
        is_simulated = self.rows["setup"].astype(str).str.startswith(SIMULATED).any()
        return caption("Simulated: nothing was measured" if is_simulated else "", left_out(self.rows))


@dataclass(frozen=True)
class Drawing:
    """A figure that `save` writes. kind: what it shows (`front`). name: of what (`mobilenet_v2`, `wifi`). draw: at
    a width, as `layout.printed`."""

    kind: str
    draw: Callable[[str], tuple[Any, Told]]
    name: tuple[str, ...] = ()

    def paths(self, folder: Path, widths: Sequence[str]) -> list[Path]:
        """The files that `save` writes, in its order."""
        pictures = [f"{self.stem(width)}.{name}" for width in widths for name in chosen().formats]
        return [folder / name for name in (*pictures, f"{self.stem()}.csv", f"{self.stem()}.txt")]

    def stem(self, width: str = PAGE) -> str:
        """The beginning of the names of its files."""
        return stem(self.kind, self.name, width)

    def drawn(self, width: str = PAGE) -> tuple[Any, str, pd.DataFrame]:
        """The figure at this width, its caption and its data. Raises `Nothing`."""
        figure, told = self.draw(width)
        return figure, told.caption(), told.data


def stem(kind: str, name: Sequence[str], width: str = PAGE) -> str:
    """The beginning of the names of a figure's or table's files; a width that is not a page's is added."""
    return file_stem(kind, *name) + ("" if width == PAGE else f"-{width}")


def told_apart(drawings: Sequence[Drawing]) -> list[Drawing]:
    """The drawings, those that would share a file with a digest of their name after it."""
    stems = Counter(each.stem(width) for each in drawings for width in WIDTHS_IN)
    return [
        replace(each, name=(*each.name, digest(*each.name)))
        if any(stems[each.stem(width)] > 1 for width in WIDTHS_IN)
        else each
        for each in drawings
    ]


def save(drawing: Drawing, folder: Path, widths: Sequence[str] = (PAGE,)) -> list[Path]:
    """The paths of the pictures in the formats of the chosen look, of the data and of the caption, which are written.
    Raises `Nothing`."""
    *_, data, text = paths = drawing.paths(folder, widths)
    for width in widths:
        figure, words, frame = drawing.drawn(width)
        files.make(folder)
        figure.save(folder / drawing.stem(width), chosen().formats)
    files.write_table(data, frame)
    files.write(text, f"{words}\n")
    return paths


_waiting: Sequence[Drawing] = ()
"""The drawings of `save_all`, for the processes that it forks: they hold functions, which only a fork takes along."""


def save_all(
    drawings: Iterable[Drawing],
    folder: Path,
    widths: Sequence[str] = (PAGE,),
    say: Callable[[str], None] = lambda line: None,
    step: Callable[[str], None] = lambda words: None,
) -> list[Path]:
    """`save` each that has something to show, on as many cores as there are. Returns all paths, in the same order.

    say: gets a line for each figure that cannot be drawn, whose files are then missing. step: gets what is done next;
    it may have no thread. Raises OSError, UserError.
    """
    global _waiting
    _waiting = list(drawings)
    # A fork copies no thread but its own.
    alone = threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods()
    workers = min(len(_waiting), MOST_PROCESSES, (os.cpu_count() or 1) if alone else 1)
    fork = multiprocessing.get_context("fork") if workers > 1 else None
    paths: list[Path] = []
    with ProcessPoolExecutor(workers, fork, _take) if fork else nullcontext() as pool:
        numbers = range(1, len(_waiting) + 1)
        each = (pool.map if pool else map)(functools.partial(_save_one, folder, widths), numbers)
        try:
            for number in numbers:
                step(f"drawing {number} of {len(numbers)} figures")
                made = next(each)
                say(made) if isinstance(made, str) else paths.extend(made)
        except BrokenProcessPool:
            say("some figures are missing: a process that drew them was killed: out of memory?")
    return paths


def _take() -> None:
    # A terminal sends Ctrl-C to all; a process that draws would end by a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _save_one(folder: Path, widths: Sequence[str], number: int) -> list[Path] | str:
    """The paths of `save`, or the reason why the figure cannot be drawn."""
    drawing = _waiting[number - 1]
    try:
        return save(drawing, folder, widths)
    except Nothing:
        return []
    except (OSError, UserError):
        raise
    except Exception as error:
        return f"the figure {drawing.stem()} cannot be drawn: {type(error).__name__}: {short(str(error))}"


def caption(*sentences: str) -> str:
    """The sentences that are not empty as one text, each with its full stop."""
    return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)


def testbeds(manifests: Iterable[Mapping[str, Any]]) -> str:
    """The testbeds of all runs, each once."""
    return "; ".join(dict.fromkeys(filter(None, (str(each.get("testbed") or "") for each in manifests))))


def origin(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The testbeds of all runs and, as a sentence, what made the runs."""
    made = methods.made(manifests)
    return testbeds(manifests) + (f". Made by {made}" if made else "")


def conditions(rows: pd.DataFrame, testbed: str = "") -> str:
    """The facts that a reader must know to judge a table of the front's rows, if they are the same in all of them."""
    *facts, out = _facts(rows)
    return caption(*facts, f"Testbed: {testbed}" if testbed else "", out)


def _facts(rows: pd.DataFrame) -> list[str]:
    of = {"Model": "model", "profile": "netem", "batch size": "batch_size", "setup": "setup"}
    models, profiles, sizes, setups = (_several(name, rows[column].unique()) for name, column in of.items())
    factors = [
        IN_WORDS[name].format(", ".join(levels(rows[name], (usual,))))
        for name, usual in USUAL.items()
        if not set(rows[name]) <= {"", usual}
    ]
    off = struck_off(rows)
    counts = sorted({int(count) for count in rows.loc[~off, "rounds"] if count}) or [0]
    span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    struck = f"{off.sum()} of {len(rows)} points were struck off by a search, with fewer rounds or none"
    partly = (rows["excluded"] > rows["left_out"]).any()
    return [
        ", ".join(filter(None, (f"{models} at {profiles}", sizes, *factors, setups))),
        f"Medians over {span} rounds" if span != "1" else "One round: nothing is known of its spread",
        struck if off.any() else "",
        f"{left_out(rows) or 'No trial was left out'}"
        f"{', but some count for latency or throughput alone' if partly else ''}",
    ]


def _several(what: str, among: Iterable[Any]) -> str:
    """`profile wifi` or `profiles lte, wifi`; empty text without a value."""
    values = sorted(filter(None, among))
    return f"{what}{'s' * (len(values) > 1)} {some([*map(str, values)], _NAMED)}" if values else ""


def left_out(rows: pd.DataFrame) -> str:
    """`5 of 60 trials left out (invalid or failed)`; empty text if all of the front's trials counted."""
    number, trials = (int(rows[column].sum()) for column in ("left_out", "trials"))
    return f"{number} of {trials} trials left out (invalid or failed)" if number else ""
