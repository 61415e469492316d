"""The style of all figures: widths, fonts, colours, looks of backends, and how pictures are written."""

from __future__ import annotations

import difflib
import functools
import io
import itertools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from fontTools import subset
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D

from pareto.analysis.figures.look import PAGE, WIDTHS_IN, Look, chosen
from pareto.analysis.naming import backends, levels
from pareto.analysis.runs.points import BUT_CODEC, NONE, order
from pareto.basics import files
from pareto.protocol.errors import UserError

T = TypeVar("T")

# Mostly of seaborn's "colorblind" palette, whose import would take a second. One colour says one thing in all figures.
COLOURS = ("#0173b2", "#de8f05", "#56b4e9", "#ca9161", "#949494", "#332288", "#882255", "#999933")
"""Colours of backends."""
LEVEL_COLOURS = ("#332288", "#882255", "#56b4e9", "#999933", "#661100", "#44aa99", "#949494", "#dd77aa")
"""Colours of codecs, engines and pairs: neither a backend's nor a host's. Mostly Paul Tol's "muted"."""
STAGES = {"edge": ("#029e73", ""), "server": ("#cc78bc", "....")}
BETWEEN = (("#ca9161", "\\\\\\\\"), ("#56b4e9", "oo"), ("#ece133", "++"), ("#fbafe4", "----"))
"""Colours and hatches of hosts: the first and the last, and those between them."""
ALARM, GREY = "#d55e00", "0.35"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "*", "h", ">", "d")
LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2)), (0, (5, 1, 1, 1, 1, 1)), (0, (2, 2)))
SMALL_PT = 6.0
"""The smallest letters, as printed."""
WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.3}
"""The ground of a text that stands on lines or marks."""

_OURS = {"text.parse_math", "text.usetex", "svg.hashsalt", "savefig.bbox", "figure.figsize", "backend"}
"""The settings that no style file changes: names are no formulas, and a figure is as wide as it is printed."""
_WRITTEN: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"pil_kwargs": {"compress_level": 3}},  # a quarter larger, in 70 % of the time
}


def styled(width: str = PAGE) -> AbstractContextManager[None]:
    """A context with matplotlib's defaults, our settings, and the user's; the caller's own come back afterwards."""
    if width not in WIDTHS_IN:
        raise UserError(f"no width {width!r} of a figure: one of {', '.join(WIDTHS_IN)}")
    ours = [Path(__file__).with_name(f"{name}.mplstyle") for name in dict.fromkeys((PAGE, width))]
    return matplotlib.style.context([*map(_settings, ours), _of_user(chosen())], after_reset=True)


def check_look(wanted: Look) -> None:
    """Raise `UserError` if there is no such font, or file of settings."""
    if wanted.font and wanted.font not in (names := {font.name for font in fontManager.ttflist}):
        near = ", ".join(difflib.get_close_matches(wanted.font, names, 3) or sorted(names)[:5])
        raise UserError(f"--font {wanted.font}: no such font is installed; there is {near}")
    _of_user(wanted)


@functools.cache
def _of_user(wanted: Look) -> dict[str, Any]:
    """The settings of a user's font and style file. Raises `UserError`."""
    settings: dict[str, Any] = {}
    if wanted.style is not None:
        if wanted.style.exists() and not wanted.style.is_file():  # a device may have no end
            raise UserError(f"--style {wanted.style}: not a file")
        try:
            settings |= _settings(wanted.style)
        except (OSError, ValueError) as error:
            raise UserError(f"--style {wanted.style}: {' '.join(str(error).split())}") from None
        if refused := settings.keys() & _OURS:
            raise UserError(
                f"--style {wanted.style}: leave out {', '.join(sorted(refused))}, which a report sets"
            )
    if wanted.font:
        settings["font.family"] = [wanted.font, "sans-serif"]  # for letters that it does not have
    return settings


@functools.cache
def _settings(file: Path) -> dict[str, Any]:
    """The settings of a style file. Raises OSError, and ValueError also for what matplotlib would only log."""
    lines = [line.partition("#")[0].partition(":")[0].strip() for line in file.read_text().splitlines()]
    names = list(filter(None, lines))
    for name in names:
        if name not in matplotlib.rcParams or names.count(name) > 1:
            raise ValueError(f"no setting of matplotlib, or there twice: {name}")
    found: Any = matplotlib.rc_params_from_file(file, fail_on_error=True, use_default_template=False)
    return dict(found)


class Printed(Figure):
    """A figure of a width, and with the settings of that width also when a notebook saves it."""

    def __init__(self, width: str = PAGE) -> None:
        with styled(width):
            super().__init__(figsize=(WIDTHS_IN[width], 3), layout="constrained")
        self.width = width

    def settle(self) -> None:
        """Make the layout final: labels are placed in it, and with one each format would be drawn twice."""
        if engine := self.get_layout_engine():
            engine.execute(self)
            self.set_layout_engine(None)

    def savefig(self, fname: Any, **options: Any) -> None:
        with styled(self.width):
            super().savefig(fname, **options)


def save(figure: Printed, stem: Path, formats: Sequence[str]) -> list[Path]:
    """The paths of `<stem>.<format>`, which are written: the same bytes for the same figure, in one layout."""
    written, load = [], subset.load_font

    def plain(*args: Any, **options: Any) -> Any:
        """A font without ligatures and kerning, which a PDF has no use for and which take long to embed."""
        font = load(*args, **options)
        for table in {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys()):
            del font[table]
        return font

    with styled(figure.width):
        figure.settle()
    subset.load_font = plain
    try:
        for name in formats:
            made = io.BytesIO()
            figure.savefig(made, format=name, **_WRITTEN.get(name, {}))
            written.append(files.write(stem.with_name(f"{stem.name}.{name}"), made.getvalue()))
    finally:
        subset.load_font = load
    return written


@dataclass(frozen=True)
class Series:
    """How the points of a backend (and codec, if there are several) are drawn."""

    label: str
    colour: str
    marker: str
    line: Any = "-"
    backend: str = NONE
    codec: str = ""

    def mark(self, size_pt: float, **more: Any) -> dict[str, Any]:
        """The look of its marks, with no line between them."""
        own = {"marker": self.marker, "color": self.colour, "markeredgewidth": 0.9, "markersize": size_pt}
        return {"linestyle": "", **own, **more}

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Its rows; where nothing crosses, a point is a row of each codec, and drawn once: if one is on a front, it."""
        own = rows[rows["backend"] == self.backend]
        if self.backend != NONE:
            own = own[own["codec"] == self.codec]
        elif "on_backend_front" in own:
            own = own.sort_values("on_backend_front", ascending=False, kind="stable")
            own = own.drop_duplicates([*own.columns.intersection(BUT_CODEC), "point"])
        return own.sort_values("point", key=order)


NEUTRAL = Series("nothing crosses", "0.3", "<")


def every_series(rows: pd.DataFrame) -> tuple[Series, ...]:
    """Each backend of some rows, tcp first, codec by codec: in its colour, or the codec's where there are several."""
    crossing = rows[rows["backend"] != NONE].fillna({"codec": ""})
    there, codecs = set(zip(crossing["backend"], crossing["codec"], strict=True)), levels(crossing["codec"])
    made = []
    for at, (backend, codec) in enumerate(itertools.product(backends(crossing), codecs)):
        label, colour = backend, _around(COLOURS, at // len(codecs))
        if len(codecs) > 1:
            label, colour = f"{backend} {codec}", _around(LEVEL_COLOURS, at % len(codecs))
        if (backend, codec) in there:
            made.append(Series(label, colour, _around(MARKERS, at), _around(LINES, at), backend, codec))
    return tuple(made)


def level(label: str, colour: int, marker: int) -> Series:
    """The look of a codec, an engine or a pair, by its numbers."""
    return Series(label, _around(LEVEL_COLOURS, colour), _around(MARKERS, marker), _around(LINES, marker))


def _around(among: Sequence[T], number: int) -> T:
    return among[number % len(among)]


def stage_look(role: str) -> tuple[str, str]:
    """Colour and hatch of a host's stage, the same in every figure."""
    return STAGES.get(role) or _around(BETWEEN, int(role.removeprefix("middle") or 1) - 1)


def entry(label: str, **look: Any) -> Line2D:
    """An entry of a legend. It is a mark without a line unless its look has a linestyle."""
    return Line2D([], [], label=label, **{"linestyle": "", **look})


def evenly(among: Iterable[T], most: int) -> list[T]:
    """At most so many items, in order: the first, the last, and others at even distances."""
    every = list(among)
    return [every[at] for at in np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int)]


def faded(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white; `share`: of the colour."""
    return tuple(1 - share * (1 - part) for part in to_rgb(colour))
