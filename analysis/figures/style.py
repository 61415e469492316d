"""The style of all figures: widths, fonts, colours, markers, looks, footnote, and how they are written."""

from __future__ import annotations

import difflib
import functools
import io
import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import pandas as pd
from fontTools import subset
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D

from pareto.analysis.figures.look import USUAL, WIDTHS_IN, Look, chosen, left_out
from pareto.analysis.naming import backends
from pareto.analysis.points import BUT_CODEC, NONE, order
from pareto.analysis.runs.setups import SIMULATED
from pareto.basics import files
from pareto.protocol.errors import UserError

T = TypeVar("T")

# Mostly of the "colorblind" palette of seaborn 0.13, so that its colours do not cost its import. One colour says one
# thing in every figure.
COLOURS = ("#0173b2", "#de8f05", "#56b4e9", "#ca9161", "#949494", "#332288", "#882255", "#999933")
"""Colours of backends: most have two."""
HOST_COLOURS = {"edge": "#029e73", "server": "#cc78bc"}
"""Colours of the first and the last host."""
ALARM = "#d55e00"
"""The colour of what is off, or otherwise than predicted."""
STAGE_COLOURS = ("#ca9161", "#56b4e9", "#ece133", "#fbafe4")
"""Colours of the hosts between them."""
LEVEL_COLOURS = ("#332288", "#882255", "#56b4e9", "#999933", "#661100", "#44aa99", "#949494", "#dd77aa")
"""Colours of codecs, engines, rules and runs: neither a backend's nor a host's. Mostly Paul Tol's "muted"."""
STAGE_HATCHES = ("\\\\\\\\", "oo", "++", "----", "||||", "**")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "*", "h", ">", "d")
LINES: tuple[Any, ...] = (
    *("-", "--", "-.", ":"),
    *((0, dashes) for dashes in ((8, 2), (5, 1, 1, 1, 1, 1), (2, 2), (8, 2, 2, 2))),
)
NEUTRAL, NEUTRAL_COLOUR, NEUTRAL_MARKER = "nothing crosses", "0.3", "<"
"""How points that are of no backend are named and drawn."""

_RC: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same figure on every machine
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,  # dashes show beside a mark
    "hatch.linewidth": 0.4,
    "text.parse_math": False,  # a name may have dollars in it
    "pdf.fonttype": 42,  # TrueType, embedded: publishers refuse type 3
    "ps.fonttype": 42,
    "svg.hashsalt": "pareto",  # the same bytes for the same figure
    "figure.dpi": 100,
    "savefig.dpi": 300,
}
_OURS = {"text.parse_math", "text.usetex", "svg.hashsalt", "savefig.bbox", "figure.figsize", "backend"}
"""The settings that no style file changes: names are no formulas, and a figure is as wide as it is printed."""
_COLUMN_RC: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
}
SMALL_PT = 6.0
"""The smallest letters, as printed: labels at points, the footnote."""


def check_width(width: str) -> None:
    """Raise `UserError` if there is no such width of a figure."""
    if width not in WIDTHS_IN:
        raise UserError(f"no width {width!r} of a figure: one of {', '.join(WIDTHS_IN)}")


def styled(width: str = "page") -> AbstractContextManager[None]:
    """A context with the settings for a figure of that width; the caller's own come back afterwards.

    They are matplotlib's defaults, then ours, then those of the user's style file.
    """
    check_width(width)
    ours = _RC | (_COLUMN_RC if width == "column" else {})
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if name != "backend"}
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
        said: list[str] = []
        listener = logging.Handler()
        listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("matplotlib").addHandler(listener)
        try:
            settings |= matplotlib.rc_params_from_file(
                wanted.style, fail_on_error=True, use_default_template=False
            )
        except (OSError, UnicodeDecodeError, ValueError) as error:
            said.append(str(error))
        finally:
            logging.getLogger("matplotlib").removeHandler(listener)
        if said:
            raise UserError(
                f"--style {wanted.style}: {' '.join(said[0].partition('You probably')[0].split())}"
            )
        if refused := settings.keys() & _OURS:
            raise UserError(
                f"--style {wanted.style}: leave out {', '.join(sorted(refused))}, which a report sets"
            )
    if wanted.font:
        settings["font.family"] = [wanted.font, *_RC["font.family"]]  # for letters that it does not have
    return settings


class Printed(Figure):
    """A figure that keeps the settings of its width when a notebook saves it: fonts embedded as TrueType, 300 dpi."""

    def __init__(self, width: str, height_in: float) -> None:
        super().__init__(figsize=(WIDTHS_IN[width], height_in), layout="constrained")
        self._width = width

    def savefig(self, fname: Any, **options: Any) -> None:
        with styled(self._width):
            super().savefig(fname, **options)


@contextmanager
def blank(width: str, height_in: float, rows: pd.DataFrame | None = None) -> Iterator[Figure]:
    """Give an empty figure, to be drawn on in this context, as it is `styled`; with the footnote of these rows."""
    with styled(width):
        figure = Printed(width, height_in)
        if rows is not None:
            _footnote(figure, rows)
        yield figure


@dataclass(frozen=True)
class Series:
    """The points of one backend (and codec, if there are several), and how they are drawn."""

    label: str
    rows: pd.DataFrame
    colour: str
    marker: str
    line: Any
    backend: str = NONE
    codec: str = ""

    def mark(self, size_pt: float, **look: Any) -> dict[str, Any]:
        """The look of its marks, with no line between them."""
        own = {"marker": self.marker, "color": self.colour, "markeredgewidth": 0.9, "markersize": size_pt}
        return {"linestyle": "", **own, **look}


def series(rows: pd.DataFrame, among: pd.DataFrame | None = None) -> Iterator[Series]:
    """Yield each backend's rows, codec by codec, told apart by colour as well as by marker and line.

    A backend has a colour of its own; where there are several codecs, a codec has (`codec_looks`), and the first
    backend's marks are the codec's. Each has the points where nothing crosses, too, which are of no backend:
    `on_backend_front` says of them whether they are on this one's. `among`: all rows of the figure, where `rows` are of
    one of its panels, so that a backend looks the same in each.
    """
    every = (rows if among is None else among).fillna({"codec": ""})
    looks = codec_looks(every)
    for place, backend in enumerate([name for name in backends(every) if name] or [NONE]):
        for codec, look in looks.items():
            group = rows[rows["backend"].isin([backend, NONE]) & (rows["codec"].fillna("") == codec)]
            if (group["backend"] == backend).any():
                name = backend or NEUTRAL
                number = look.place + place * len(looks)
                yield Series(
                    f"{name} {codec}".strip() if len(looks) > 1 else name,
                    _on_its_front(group, backend).sort_values("point", key=order),
                    look.colour if len(looks) > 1 else COLOURS[place % len(COLOURS)],
                    MARKERS[number % len(MARKERS)],
                    LINES[number % len(LINES)],
                    backend,
                    codec,
                )


@dataclass(frozen=True)
class CodecLook:
    """How a codec, or engine, is drawn where its backend does not matter; `place`: its number among the figure's."""

    place: int

    @property
    def colour(self) -> str:
        return LEVEL_COLOURS[self.place % len(LEVEL_COLOURS)]

    @property
    def marker(self) -> str:
        return MARKERS[self.place % len(MARKERS)]

    @property
    def line(self) -> Any:
        return LINES[self.place % len(LINES)]


def codec_looks(rows: pd.DataFrame) -> dict[str, CodecLook]:
    """Each codec of some rows, none first, then by name, with its look: the same in every figure of a run."""
    return looks(rows["codec"].fillna("").astype("str").unique(), ("", "none"))


def looks(levels: Iterable[str], base: Container[str]) -> dict[str, CodecLook]:
    """Each level of a factor, that of the base first, then by name, with its look."""
    ordered = sorted(levels, key=lambda level: (level not in base, level))
    return {level: CodecLook(place) for place, level in enumerate(ordered)}


def scattered(rows: pd.DataFrame, among: pd.DataFrame | None = None) -> Iterator[Series]:
    """Yield the same for a plane, each point once: points where nothing crosses are a series of their own."""
    of_none = rows["backend"] == NONE
    for one in series(rows, among):
        if len(own := one.rows[one.rows["backend"] != NONE]):
            yield replace(one, rows=own)
    if of_none.any():
        # Such a point is a row of each codec: on the front of any is on a front.
        own = rows[of_none]
        own = own.sort_values("on_backend_front", ascending=False, kind="stable")
        own = own.drop_duplicates([*own.columns.intersection(BUT_CODEC), "point"])
        yield Series(NEUTRAL, own.sort_values("point", key=order), NEUTRAL_COLOUR, NEUTRAL_MARKER, "-")


def _on_its_front(rows: pd.DataFrame, backend: str) -> pd.DataFrame:
    """The rows, where those without a backend say whether they are on this backend's front."""
    if backend == NONE:
        return rows
    is_on = rows["on_fronts_of"].str.split("; ").map(lambda names: backend in names)
    return rows.assign(on_backend_front=rows["on_backend_front"].where(rows["backend"] != NONE, is_on))


def stage_look(role: str) -> tuple[str, str]:
    """Colour and hatch of a host's stage, the same in every figure."""
    if role in ("edge", "server"):
        return HOST_COLOURS[role], "" if role == "edge" else "...."
    number = int(role.removeprefix("middle") or 1) - 1
    return STAGE_COLOURS[number % len(STAGE_COLOURS)], STAGE_HATCHES[number % len(STAGE_HATCHES)]


def entry(label: str, **look: Any) -> Line2D:
    """An entry of a legend. It is a mark without a line unless its look has a linestyle."""
    return Line2D([], [], label=label, **{"linestyle": "", **look})


def evenly(among: Sequence[T], most: int) -> list[T]:
    """At most so many items, in order: the first, the last, and others at even distances."""
    if len(among) <= most:
        return list(among)
    return [among[round(place * (len(among) - 1) / max(most - 1, 1))] for place in range(most)]


def ink(colour: str) -> tuple[float, ...]:
    """A darker shade of a colour, for small text on white."""
    return tuple(0.7 * part for part in to_rgb(colour))


def faded(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white; `share`: of the colour."""
    return tuple(1 - share * (1 - part) for part in to_rgb(colour))


def _footnote(figure: Figure, rows: pd.DataFrame) -> None:
    """Write under the figure that trials are simulated or left out: a picture may be shown without its caption."""
    is_simulated = rows["setup"].astype(str).str.startswith(SIMULATED).any()
    simulated = "Simulated: nothing was measured" if is_simulated else ""
    if text := ". ".join(filter(None, (simulated, left_out(rows)))):
        figure.supxlabel(f"{text}.", x=0.01, ha="left", fontsize=SMALL_PT, color="0.35")


def root(axes: Axes) -> Figure:
    """The whole figure, also where the axes are in a part of it."""
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("axes of no figure")
    return figure


@contextmanager
def _plain_fonts() -> Iterator[None]:
    """Embed fonts without their tables of ligatures and kerning: a PDF places each glyph by itself, and reading these
    tables takes a third of the time of a report.
    """
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


def save(figure: Figure, stem: Path, formats: Sequence[str] = USUAL.formats) -> list[Path]:
    """The paths of `<stem>.<format>`, which are written: the same bytes for the same figure, in one layout."""
    written = []
    for name in formats:
        with styled(), _plain_fonts():
            made = _saved(figure, name)
        figure.set_layout_engine(None)
        written.append(files.write(stem.with_name(f"{stem.name}.{name}"), made))
    return written


def _saved(figure: Figure, name: str) -> bytes:
    options: dict[str, dict[str, Any]] = {
        "pdf": {"metadata": {"CreationDate": None}},
        "svg": {"metadata": {"Date": None}},
        "png": {"pil_kwargs": {"compress_level": 3}},  # a quarter larger, in 70 % of the time
    }
    made = io.BytesIO()
    figure.savefig(made, format=name, **options.get(name, {}))
    return made.getvalue()
