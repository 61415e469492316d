"""Standard output as the user sees it: a terminal, or a log of 80 columns; tables and numbers, files in words."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import RegexHighlighter
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from pareto.basics.escaping import terminal

LOGGED_S = 10.0
"""How often a log says how far something is that takes long."""


class _Words(RegexHighlighter):
    """The words that a reader must not miss, in colour where there is any (`NO_COLOR` has none)."""

    base_style = "pareto."
    highlights: ClassVar[list[str]] = [
        r"^(?P<attention>attention:)",
        r"\b(?P<bad>invalid|failed)\b",
        r"^(?P<bad>error:)",
    ]


ANSWER = "pareto.answer"
_STYLES = {"pareto.attention": "bold yellow", "pareto.bad": "bold red", ANSWER: "bold green"}


class _Console(Console):
    """A terminal gets no control code from a text, whoever wrote it: a host, a results folder, the name of a file."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(terminal(segment.text), segment.style)


_NO_PICTURES = (".csv", ".txt", ".tex")
_LOOKS: dict[str, dict[str, Any]] = {
    "<": {"no_wrap": True},
    "~": {"overflow": "fold"},
    ">": {"justify": "right", "no_wrap": True},
}


def console(*, aside: bool = False, to: IO[str] | None = None) -> Console:
    """Standard output, `aside` standard error, or a file; a log gets 80 columns and no codes, a terminal only ours."""
    # No emoji: "tcp:b: 2 ms" has one to rich. No markup: "net[/b]" is a name.
    looks: dict[str, Any] = {"highlighter": _Words(), "theme": Theme(_STYLES)}
    out = _Console(file=to, stderr=aside, emoji=False, markup=False, **looks)
    if not out.is_terminal:
        out.width = 80
    return out


class Lines(io.StringIO):
    """A file whose whole lines go to a function."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell, self._begun = tell, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._tell(line)
        return len(text)


def html(*shown: RenderableType) -> str:
    """The HTML of what a terminal of 100 columns shows of these, below each other, for a notebook; text is escaped."""
    out = Console(record=True, file=io.StringIO(), width=100, emoji=False, markup=False, highlight=False)
    for each in shown:
        out.print(each)
    form = '<pre style="line-height: normal; overflow-x: auto; white-space: pre">{code}</pre>'
    return terminal(out.export_html(inline_styles=True, code_format=form))


class Doing:
    """Shows what is done meanwhile: on a terminal in a line that goes away, in a log by a line now and then.

    Without a thread, as a line that moves would need: a process with threads draws its figures one after the other.
    logs: whether a log has a use for it.
    """

    def __init__(self, out: Console, *, logs: bool = True) -> None:
        self._out = out
        self._logs = logs
        self._line: Live | None = None
        self._said_s = -math.inf

    def __enter__(self) -> Doing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self, words: str) -> None:
        if not self._out.is_terminal:
            if self._logs and time.monotonic() - self._said_s >= LOGGED_S:
                self._said_s = time.monotonic()
                self._out.print(words)
            return
        if self._line is None:
            self._line = Live(console=self._out, auto_refresh=False, transient=True)
            self._line.start()
        self._line.update(Text(words), refresh=True)


def files(out: Console, written: Sequence[Path]) -> None:
    """Print which files were made. Figures are counted by folder, and by their captions: each has one."""
    figures: dict[Path, list[str]] = {}
    tables: dict[Path, list[str]] = {}
    for path in written:
        if path.parent.name == "figures":
            figures.setdefault(path.parent, []).append(path.suffix)
        elif path.suffix == ".csv":
            tables.setdefault(path.parent, []).append(path.name)
        else:
            out.print(str(path), soft_wrap=True)
    for folder, names in tables.items():
        out.print(f"{folder}/: {', '.join(names)}", soft_wrap=True)
    for folder, each in figures.items():
        formats = " and ".join(kind[1:].upper() for kind in dict.fromkeys(each) if kind not in _NO_PICTURES)
        words = f"{each.count('.txt')} figures as {formats}, with data and captions; LaTeX tables"
        out.print(f"{folder}/: {words}", soft_wrap=True)


def table(heads: Sequence[str], looks: str, **frame: Any) -> Table:
    """An empty table. looks: of each column, `<` for text in a line, `~` for text that folds, `>` for numbers."""
    made = Table(pad_edge=False, **{"box": box.SIMPLE_HEAD, "padding": 0, **frame})
    for head, look in zip(heads, looks, strict=True):
        made.add_column(head, **_LOOKS[look])
    return made


def digits(value: float, most: float | None = None) -> str:
    """A number, unless it is nothing, with as many decimals as give three digits to it or to the most of its column."""
    if not value and most is None:
        return "0"
    size = value if most is None else most
    return f"{value:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
