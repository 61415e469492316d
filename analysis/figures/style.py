"""The style of all figures: widths, fonts, colours, looks of backends, and how pictures are written."""

from __future__ import annotations

import difflib
import functools
import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import pandas as pd
from fontTools import subset
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D

from pareto.analysis.figures.look import WIDTHS_IN, Look, chosen
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

_OURS = {"text.parse_math", "text.usetex", "svg.hashsalt", "savefig.bbox", "figure.figsize", "backend"}
"""The settings that no style file changes: names are no formulas, and a figure is as wide as it is printed."""
_WRITTEN: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None}},
    "svg": {"metadata": {"Date": None}},
    "png": {"pil_kwargs": {"compress_level": 3}},  # a quarter larger, in 70 % of the time
}


def check_width(width: str) -> None:
    """Raise `UserError` if there is no such width of a figure."""
    if width not in WIDTHS_IN:
        raise UserError(f"no width {width!r} of a figure: one of {', '.join(WIDTHS_IN)}")


def styled(width: str = "page") -> AbstractContextManager[None]:
    """A context with matplotlib's defaults, our settings, and the user's; the caller's own come back afterwards."""
    check_width(width)
    here, defaults = Path(__file__).parent, dict(matplotlib.rcParamsDefault)
    ours = _settings(here / "page.mplstyle") | (
        _settings(here / "column.mplstyle") if width == "column" else {}
    )
    del defaults["backend"]
    return matplotlib.rc_context(defaults | ours | _of_user(chosen()))


def check_look(wanted: Look) -> None:
    """Raise `UserError` if there is no such font, or file of settings."""
    if wanted.font and wanted.font not in (names := {font.name for font in fontManager.ttflist}):
        near = ", ".join(difflib.get_close_matches(wanted.font, names, 3) or sorted(names)[:5])
        raise UserError(f"--font {wanted.font}: no such font is installed; there is {near}")
    _of_user(wanted)


@functools.cache
def _of_user(wanted: Look) -> dict[Any, Any]:
    """The settings of a user's font and style file. Raises `UserError`."""
    settings: dict[Any, Any] = {}
    if wanted.style is not None:
        if wanted.style.exists() and not wanted.style.is_file():  # a device may have no end
            raise UserError(f"--style {wanted.style}: not a file")
        settings |= _settings(wanted.style)
        if refused := settings.keys() & _OURS:
            raise UserError(
                f"--style {wanted.style}: leave out {', '.join(sorted(refused))}, which a report sets"
            )
    if wanted.font:
        settings["font.family"] = [wanted.font, "sans-serif"]  # for letters that it does not have
    return settings


@functools.cache
def _settings(file: Path) -> dict[Any, Any]:
    """The settings of a style file. Raises `UserError` for all that matplotlib would only log."""
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("matplotlib").addHandler(listener)
    settings: dict[Any, Any] = {}
    try:
        settings |= matplotlib.rc_params_from_file(file, fail_on_error=True, use_default_template=False)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        said.append(str(error))
    finally:
        logging.getLogger("matplotlib").removeHandler(listener)
    if said:
        raise UserError(f"--style {file}: {' '.join(said[0].partition('You probably')[0].split())}")
    return settings


class Printed(Figure):
    """A figure of a width, and with the settings of that width also when a notebook saves it."""

    def __init__(self, width: str = "page") -> None:
        with styled(width):
            super().__init__(figsize=(WIDTHS_IN[width], 3), layout="constrained")
        self.width = width
        self._is_final = False

    def settle(self) -> None:
        """Make the layout final: labels are placed in it."""
        if not self._is_final and (engine := self.get_layout_engine()):
            engine.execute(self)
        self.set_layout_engine(None)  # with one, each format would be drawn twice
        self._is_final = True

    def draw_without_rendering(self) -> None:
        if not self._is_final:  # else it would find out what is known, which takes as long as a picture
            super().draw_without_rendering()

    def savefig(self, fname: Any, **options: Any) -> None:
        with styled(self.width):
            super().savefig(fname, **options)


@contextmanager
def _plain_fonts() -> Iterator[None]:
    """Embed fonts without their tables of ligatures and kerning, which a PDF has no use for and which take long."""
    load = subset.load_font

    def plain(*args: Any, **options: Any) -> Any:
        font = load(*args, **options)
        for table in {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys()):
            del font[table]
        return font

    subset.load_font = plain
    try:
        yield
    finally:
        subset.load_font = load


def save(figure: Printed, stem: Path, formats: Sequence[str]) -> list[Path]:
    """The paths of `<stem>.<format>`, which are written: the same bytes for the same figure, in one layout."""
    written = []
    with styled(figure.width):
        figure.settle()
    for name in formats:
        made = io.BytesIO()
        with _plain_fonts():
            figure.savefig(made, format=name, **_WRITTEN.get(name, {}))
        written.append(files.write(stem.with_name(f"{stem.name}.{name}"), made.getvalue()))
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
        """Its rows; where nothing crosses, a point is a row of each codec, and drawn once: on the front of any is on
        one.
        """
        own = rows[rows["backend"] == self.backend]
        if self.backend != NONE:
            own = own[own["codec"].fillna("") == self.codec]
        elif "on_backend_front" in own:
            own = own.sort_values("on_backend_front", ascending=False, kind="stable")
            own = own.drop_duplicates([*own.columns.intersection(BUT_CODEC), "point"])
        return own.sort_values("point", key=order)


NEUTRAL = Series("nothing crosses", "0.3", "<")


def every_series(rows: pd.DataFrame) -> tuple[Series, ...]:
    """Each backend of some rows, tcp first, codec by codec: in the backend's colour, or the codec's where there are
    several; markers and lines tell them apart, too.
    """
    crossing = rows[rows["backend"] != NONE].fillna({"codec": ""})
    codecs, made = levels(crossing["codec"]), []
    for place, backend in enumerate(backends(crossing)):
        for number, codec in enumerate(codecs):
            if ((crossing["backend"] == backend) & (crossing["codec"] == codec)).any():
                at = number + place * len(codecs)
                label, colour = backend, COLOURS[place % len(COLOURS)]
                if len(codecs) > 1:
                    label, colour = f"{backend} {codec}", LEVEL_COLOURS[number % len(LEVEL_COLOURS)]
                look = MARKERS[at % len(MARKERS)], LINES[at % len(LINES)]
                made.append(Series(label, colour, *look, backend, codec))
    return tuple(made)


def stage_look(role: str) -> tuple[str, str]:
    """Colour and hatch of a host's stage, the same in every figure."""
    return STAGES.get(role) or BETWEEN[(int(role.removeprefix("middle") or 1) - 1) % len(BETWEEN)]


def entry(label: str, **look: Any) -> Line2D:
    """An entry of a legend. It is a mark without a line unless its look has a linestyle."""
    return Line2D([], [], label=label, **{"linestyle": "", **look})


def evenly(among: Sequence[T], most: int) -> list[T]:
    """At most so many items, in order: the first, the last, and others at even distances."""
    if len(among) <= most:
        return list(among)
    return [among[round(place * (len(among) - 1) / max(most - 1, 1))] for place in range(most)]


def faded(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white; `share`: of the colour."""
    return tuple(1 - share * (1 - part) for part in to_rgb(colour))
