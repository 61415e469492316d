"""The looks that all figures share: settings, colours, marks of backends, and one unit and kind of scale for a run."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.font_manager import fontManager

from pareto.analysis.figures.look import PAGE, WIDTHS_IN, Look, chosen, is_logarithmic
from pareto.analysis.naming import backends, levels, time_unit
from pareto.analysis.runs.points import BUT_CODEC, NONE, order
from pareto.protocol.errors import UserError

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
FIGURES = ["latency_s", "throughput_ips"]
LINE = ["backend", "codec", "point"]
"""The columns of what is a line in figures over something else than points."""

_OURS = {"text.parse_math", "text.usetex", "svg.hashsalt", "savefig.bbox", "figure.figsize", "backend"}
"""The settings that no style file changes: names are no formulas, and a figure is as wide as it is printed."""


def styled(width: str = PAGE) -> AbstractContextManager[None]:
    """A context with matplotlib's defaults, our settings, and the user's; the caller's own come back afterwards."""
    if width not in WIDTHS_IN:
        raise UserError(f"no width {width!r} of a figure: one of {', '.join(WIDTHS_IN)}")
    ours = [Path(__file__).with_name(f"{name}.mplstyle") for name in dict.fromkeys((PAGE, width))]
    return matplotlib.style.context([*map(_settings, ours), check_look(chosen())], after_reset=True)


@functools.cache
def check_look(wanted: Look) -> dict[str, Any]:
    """The settings of a user's font and style file. Raises `UserError` if there is none, or not such settings."""
    settings: dict[str, Any] = {}
    if wanted.style is not None:
        try:
            if wanted.style.exists() and not wanted.style.is_file():  # a device may have no end
                raise ValueError("not a file")
            settings |= _settings(wanted.style)
            if refused := settings.keys() & _OURS:
                raise ValueError(f"leave out {', '.join(sorted(refused))}, which a report sets")
        except (OSError, ValueError) as error:
            raise UserError(f"--style {wanted.style}: {' '.join(str(error).split())}") from None
    if wanted.font:
        if wanted.font not in (names := {font.name for font in fontManager.ttflist}):
            near = ", ".join(difflib.get_close_matches(wanted.font, names, 3) or sorted(names)[:5])
            raise UserError(f"--font {wanted.font}: no such font is installed; there is {near}")
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


NEUTRAL = Series("nothing crosses", "0.3", "<")


def level(label: str, colour: int, mark: int, colours: tuple[str, ...] = LEVEL_COLOURS, **of: str) -> Series:
    """The look of a codec, an engine or a pair, by its numbers."""
    looks = ((colours, colour), (MARKERS, mark), (LINES, mark))
    return Series(label, *(among[number % len(among)] for among, number in looks), **of)


def every_series(rows: pd.DataFrame) -> tuple[Series, ...]:
    """Each backend of some rows, tcp first, codec by codec: in its colour, or the codec's where there are several."""
    crossing = rows[rows["backend"] != NONE].fillna({"codec": ""})
    there, codecs = set(zip(crossing["backend"], crossing["codec"], strict=True)), levels(crossing["codec"])
    several = len(codecs) > 1
    return tuple(
        level(f"{backend} {codec}", at % len(codecs), at, backend=backend, codec=codec)
        if several
        else level(backend, at, at, COLOURS, backend=backend, codec=codec)
        for at, (backend, codec) in enumerate(itertools.product(backends(crossing), codecs))
        if (backend, codec) in there
    )


@dataclass(frozen=True)
class Scheme:
    """One choice for all figures of a run: the unit of times and how many make a second, which axes are logarithmic,
    how backends look, what is shown of uncertainty (`look.UNCERTAINTIES`), and the testbed for captions.
    """

    unit: str
    per_s: float
    logarithmic: Mapping[str, bool]
    series: tuple[Series, ...]
    uncertainty: str = "box"
    testbed: str = ""

    @classmethod
    def of(cls, front: pd.DataFrame, uncertainty: str = "box", testbed: str = "") -> Scheme:
        """The scheme of a front: seconds only where every condition has them; logarithmic what any condition needs."""
        known = front.dropna(subset=FIGURES)
        by = known.groupby([name for name in BUT_CODEC if name in known], dropna=False)
        spans = by[FIGURES].agg(["min", "max"])
        unit = time_unit(float(spans["latency_s", "max"].min()) if len(known) else 0.0)
        bent = {name: any(map(is_logarithmic, spans[name, "min"], spans[name, "max"])) for name in FIGURES}
        return cls(*unit, bent, every_series(front), uncertainty, testbed)

    def scale(self, name: str) -> float:
        """The factor of a figure on its axis."""
        return self.per_s if name == "latency_s" else 1.0

    def label(self, name: str) -> str:
        """The label of a figure's axis."""
        return f"latency ({self.unit})" if name == "latency_s" else "throughput (images/s)"

    def of_lines(self, rows: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
        """Yield the look of the line of each backend, codec and point, in the order of the rows, and its rows."""
        series, several = {(one.backend, one.codec): one for one in self.series}, Counter[tuple[str, str]]()
        for (backend, codec, point), own in rows.groupby(LINE, sort=False, observed=True):
            one, line = series.get((backend, codec), NEUTRAL), LINES[several[backend, codec] % len(LINES)]
            several[backend, codec] += 1
            yield one.mark(4, linestyle=line, linewidth=1.2, label=f"{one.label}, point {point}"), own

    def of_each(self, rows: pd.DataFrame) -> Iterator[tuple[Series, pd.DataFrame]]:
        """Yield each series that some rows have, and what it has of them; at last where nothing crosses: a point is
        there a row of each codec, and drawn once: if one is on a front, it."""
        nothing = rows[rows["backend"] == NONE]
        if "on_backend_front" in rows:
            nothing = nothing.sort_values("on_backend_front", ascending=False, kind="stable")
            nothing = nothing.drop_duplicates([*rows.columns.intersection(BUT_CODEC), "point"])
        for one in (*self.series, NEUTRAL):
            own = rows[(rows["backend"] == one.backend) & (rows["codec"] == one.codec)]
            if len(own := nothing if one is NEUTRAL else own):
                yield one, own.sort_values("point", key=order)


def stage_look(role: str) -> tuple[str, str]:
    """Colour and hatch of a host's stage, the same in every figure."""
    return STAGES.get(role) or BETWEEN[(int(role.removeprefix("middle") or 1) - 1) % len(BETWEEN)]


def faded(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white; `share`: of the colour."""
    return tuple(1 - share * (1 - part) for part in to_rgb(colour))
