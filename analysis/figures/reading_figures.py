"""Single readings: how often a request takes long, and whether the link was what was asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from pareto.analysis.costs import bands
from pareto.analysis.figures import layout
from pareto.analysis.figures.drawing import Nothing, Told
from pareto.analysis.figures.layout import On, Printed
from pareto.analysis.figures.style import ALARM, GREY, LEVEL_COLOURS, LINE, SMALL_PT, Scheme
from pareto.analysis.naming import count, place, some, subject
from pareto.analysis.runs.load import ONE_LINK
from pareto.analysis.runs.points import CELL, NO_CODEC, NONE
from pareto.analysis.runs.requests import QUANTILES, latencies_s, request_files
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import AT_WORK, each_once
from pareto.analysis.schema import cell_name
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.errors import UserError
from pareto.sweep.load import NEEDED

ALONE, LOADED = "one in flight", "under load"
STEPS = 200
"""How many corners a line has at most: more are closer together than it is wide."""
LEAST_SHARE = 0.004
"""The lower end of the axis, a little below what the 99th percentile needs."""
MOST_ROWS = 6
"""The profiles and links that fit one figure. For more there are several figures."""
MOST_DOTS = 2000
"""The most dots of a panel: of more probes only one in so many is drawn, but every one that is off."""
FAR = 2.0
"""Readings further off than this many tolerances stand at the panel's edge, so that they do not flatten all others."""
_TAIL = ["phase", "share_slower", "latency_s", "percentile", "requests"]
_QUANTITIES = (
    (("asked_rtt_s", "rtt_least_s", "rtt_most_s", "rtt_s"), "RTT (ms)", 1e3, "RTT|echo"),
    *(
        ([f"{name}_{end}_bps" for end in ("payload", "least", "most")] + [f"{name}_bps"], label, 1e-6, f"rate {way}")
        for name, label, way in (
            ("rate", "out (Mbit/s)", "edge to server"), ("rate_back", "back (Mbit/s)", "server to edge")
        )
    ),
)  # fmt: skip
"""Columns of what was asked, allowed (from, to) and read; the axis' label and factor; a verdict's reason that blames
it."""

log = logging.getLogger(__name__)


def tail(on: On, rows: pd.DataFrame, scheme: Scheme, trials: pd.DataFrame, runs: Sequence[Path]) -> Told:
    """The share of the requests that take longer than a latency, alone and under load: of each backend's points of the
    lowest latency and of the highest throughput. trials: of the same condition, of these runs. Raises `Nothing`.
    """
    try:
        data = tail_data(chosen_points(rows), trials, runs)
    except UserError as error:
        log.warning("no figure of the latency's tail: %s", error)
        raise Nothing(f"tail: {error}") from None
    if data.empty:
        raise Nothing("tail: no request of its points was kept")
    phases, narrow = [each for each in (ALONE, LOADED) if each in set(data["phase"])], layout.is_narrow(on)
    shape = (len(phases), 1, 1.6 * len(phases)) if narrow else (1, len(phases), 2.5)
    panels = layout.panels(on, *shape, sharey=True)
    for axes, phase in zip(panels, phases, strict=True):
        of_phase = data[data["phase"] == phase]
        for look, every in scheme.of_lines(data):
            own = every[every["phase"] == phase]
            marked = list(own["percentile"].ne("").to_numpy().nonzero()[0])
            axes.plot(own["latency_s"] * scheme.per_s, own["share_slower"], markevery=marked, **look)
        axes.grid(True)
        values = of_phase["latency_s"] * scheme.per_s
        layout.fit_axis(axes, "x", values, scheme.logarithmic["latency_s"], room=0.04)
        axes.set(yscale="log", ylim=(LEAST_SHARE, 1.15), xlabel=f"latency, {phase} ({scheme.unit})")
        axes.yaxis.set_major_locator(FixedLocator([1, 0.5, 0.1, 0.05, 0.01]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        if narrow or axes is panels[0]:
            axes.set_ylabel("requests that\ntake longer" if narrow else "requests that take longer")
    words = (
        "Share of requests that take longer, at each backend's quickest point and at that of most images/s",
        "Marks: median, 90th, 95th, 99th percentile",
    )
    return Told(f"The latency's tail: {subject(rows.iloc[0])}", words, data, rows, scheme.testbed)


def chosen_points(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the lowest latency and of the highest throughput of each backend and codec; where nothing crosses,
    a row is of no backend and stands for itself. A cell that stands for several codecs is there once.
    """
    wanted = each_once(rows[rows["on_backend_front"].astype(bool)])
    quickest = wanted.sort_values("latency_s", kind="stable")
    most = wanted.sort_values("throughput_ips", ascending=False, kind="stable")
    best = pd.concat([each.drop_duplicates(LINE[:2]) for each in (quickest, most)])
    keys = {"backend": place, "codec": lambda codec: (codec != NO_CODEC, codec)}
    ordered = best.sort_values(LINE[:2], key=lambda of: of.astype("str").map(keys[of.name]))
    return ordered.drop_duplicates(LINE)


def tail_data(chosen: pd.DataFrame, trials: pd.DataFrame, runs: Sequence[Path]) -> pd.DataFrame:
    """The corners of each line: `share_slower` of the `requests` take longer than `latency_s`; `percentile` is
    named where it is one of `QUANTILES` and can be stated. `phase`: `ALONE` or `LOADED`. Raises UserError.
    """
    files_of, parts = request_files(runs), []
    for cell in chosen.to_dict("records"):
        # A row of the front was made of these; where nothing crosses, of those under every backend.
        by_itself = {"codec"} if cell["backend"] != NONE else {"codec", "backend"}
        same = pd.Series(cell)[[name for name in CELL if name not in by_itself]]
        own = trials[trials[[*same.index]].eq(same).all(axis=1)]
        own = own[own["codec"].isin([cell["codec"], cell[AT_WORK]])]
        for phase, measure in ((ALONE, "latency"), (LOADED, "throughput")):
            found = []
            for trial in own[stands(own, measure)].to_dict("records"):
                file = files_of.get(cell_name(trial), {}).get((trial["run"], trial["round"]))
                if file and (phase == ALONE or trial["in_flight"] > 1):
                    # The first requests of a throughput phase found fewer than all others on their way.
                    fewer = np.nansum([trial["in_flight"], trial.get("prefetch", 0)])
                    found.append(latencies_s(file, measure, int(fewer) if phase == LOADED else 0))
            if found and len(every := np.concatenate(found)):
                keys = {key: cell[key] for key in CELL}
                parts.append(_corners(every).assign(phase=phase, requests=len(every), **keys))
    return pd.concat(parts, ignore_index=True)[[*CELL, *_TAIL]] if parts else pd.DataFrame()


def _corners(latencies: Floats) -> pd.DataFrame:
    """Even steps of the logarithm of the share, and the quantiles that can be stated."""
    shares = np.geomspace(1, max(1 / len(latencies), LEAST_SHARE), min(STEPS, len(latencies)))
    stated = {1 - q: f"p{100 * q:g}" for q in QUANTILES.values() if len(latencies) >= NEEDED[q]}
    every = np.sort(np.unique([*shares, *stated]))[::-1]
    slower = {"share_slower": every, "latency_s": np.quantile(latencies, 1 - every)}
    return pd.DataFrame(slower | {"percentile": [stated.get(share, "") for share in every]})


def parts(
    links: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield the name and the probes of each figure: one a run, or several if it has more than `MOST_ROWS` profiles and
    links. `probe` is their number in the order of the run; the columns of `costs.bands` are added.

    links: of `analysis.runs.load.links`; manifests: by the run's name, for tolerances and jitter.
    """
    for run, probes in links.groupby("run", sort=False) if len(links) else ():
        numbered = probes.assign(probe=range(1, len(probes) + 1))
        data = bands(numbered, manifests.get(str(run), {})).reset_index(drop=True)
        number = data.groupby(["netem", "link"]).ngroup() // MOST_ROWS
        for part, own in data.groupby(number):
            name = [str(run)] if links["run"].nunique() > 1 else []
            yield (*name, *([str(part + 1)] if number.any() else [])), own.reset_index(drop=True)


def link(on: On, probes: pd.DataFrame, testbed: str = "") -> Told:
    """Every probe over what was asked (the line) and allowed (the band): a line of panels for each profile and link,
    for the round trip and both rates of payload. A cross is off, a triangle beyond the panel. probes: of `parts`.
    """
    narrow, lines = layout.is_narrow(on), list(probes.groupby(["netem", "link"]))
    shown = [each for each in _QUANTITIES if each is _QUANTITIES[0] or probes[each[0][0]].notna().any()]
    every = layout.panels(on, len(lines), len(shown), 0.5 + 1.05 * len(lines), sharex=True)
    grid = np.reshape(np.array(every, dtype=object), (len(lines), len(shown)))
    for line, ((netem, name), own) in zip(grid, lines, strict=True):
        for axes, quantity in zip(line, shown, strict=True):
            _probes(axes, own, *quantity, narrow=narrow)
        off = int((own["verdict"] == "off").sum())
        verdict = f"{off} of {count(len(own), 'probe')} off" if off else f"{len(own)} probes, all ok"
        look = {"fontsize": SMALL_PT + 0.5, "fontweight": "bold", "color": ALARM if off else "black"}
        heading = line[0].annotate(
            f"{netem if name == ONE_LINK else f'{netem}, {name}'}: {verdict}",
            *((0, 1), (0, 12), "axes fraction", "offset points"), va="bottom", annotation_clip=False, **look,
        )  # fmt: skip
        # It may be longer than its panel is wide; the titles keep its height free.
        heading.set_in_layout(False)
    for axes in grid[-1]:
        axes.set_xlim(1 - 0.02 * len(probes), 1.02 * len(probes))
        axes.xaxis.set_major_locator(MaxNLocator(2 if narrow else 5, integer=True))
        axes.set_xlabel("probe", fontsize=SMALL_PT)
    bad = int((probes["verdict"] == "off").sum())
    names, verdict = some(sorted(map(str, probes["netem"].unique()))), f"{bad} off" if bad else "all ok"
    lossy = probes[["loss", "asked_loss"]].dropna().mean() * 100
    words = (
        f"Every probe of the link, rates of payload: {count(len(probes), 'probe')} of {names}, {verdict}",
        "Triangles: further off than the panel" if bad else "",
        "Where a trace changes the link, the line is its mean" if probes["position_s"].notna().any() else "",
        "Packets lost: {:.2f} %, requested {:.2f} %".format(*lossy) if lossy.notna().all() else "",
    )
    return Told("The link as requested and as measured", words, probes, testbed=testbed)


def _probes(
    axes: Axes, probes: pd.DataFrame, columns: Sequence[str], label: str, scale: float, blamed: str, *, narrow: bool
) -> None:  # fmt: skip
    """Draw one quantity of the probes of a link."""
    wanted, least, most, read = (probes[column] * scale for column in columns)
    axes.tick_params(labelsize=SMALL_PT)
    if wanted.isna().all():
        axes.set_axis_off()  # it was not asked for; the panels of other lines keep their columns
        return
    axes.set_ylabel(label, fontsize=SMALL_PT)
    at = probes["probe"]
    look: dict[str, Any] = {"color": GREY, "linewidth": 0.9, "zorder": 2, "label": "requested"}
    if wanted.nunique() == 1 and most.notna().all():
        allowed = float(least.min()), float(most.max())
        axes.axhspan(*allowed, color="0.88", linewidth=0, zorder=1, label="tolerance")
        axes.axhline(float(wanted.iloc[0]), **look)
    else:
        axes.plot(at, wanted, **look)
    every = pd.concat([wanted, least, most, read])
    low, high = float(every.min()), float(every.max())
    if (most > least).any():
        far = FAR * max(float((most - wanted).max()), 1e-12)
        low, high = max(low, float(wanted.min()) - far), min(high, float(wanted.max()) + far)
    room = 0.08 * (high - low or abs(high) or 1.0)
    low, high = low - room, high + room
    axes.set_ylim(low, high)
    off = probes["reason"].str.contains(blamed) & (probes["verdict"] == "off")
    fine = read.between(low, high) & ~off
    fine &= fine.cumsum() % max(1, -(-int(fine.sum()) // MOST_DOTS)) == 0
    look = {"color": "0.2", "markersize": 1.6 if len(probes) > 150 else 2.4, "label": "measured"}
    axes.plot(at[fine], read[fine], "o", markeredgewidth=0, zorder=3, **look)
    look = {"color": ALARM, "markersize": 4.5, "clip_on": False, "linestyle": "", "zorder": 4}
    look |= {"markeredgecolor": "white", "markeredgewidth": 0.3}
    for those, marker in ((off & ~(read > high) & ~(read < low), "X"), (read > high, "^"), (read < low, "v")):
        if those.any():
            label = "off" if marker == "X" else "beyond the panel"
            axes.plot(at[those], read[those].fillna(low).clip(low, high), marker, label=label, **look)
    axes.yaxis.set_major_locator(MaxNLocator(3, min_n_ticks=2))
    median, target = float(read.median()), float(wanted.median())
    text = f"median {median:.4g}" if np.isfinite(median) else "not measured"
    if np.isfinite(median) and not narrow:
        percent, by = 100 * (median / target - 1), f"{median - target:+.2g} ms"
        text += f" ({by})" if scale == 1e3 else f" ({percent:+.1f} %)"
        text = text.replace("-0.0 %", "+0.0 %").replace("-", "\N{MINUS SIGN}")
    axes.set_title(f"\n{text}", loc="left", fontsize=SMALL_PT, fontweight="normal", pad=3)


def link_figure(rows: Mapping[str, Sequence[float | None]], title: str) -> Printed:
    """Two panels over `at_s`: `rtt_s` within `asked_rtt_least_s` and `asked_rtt_most_s`; payload rates in both
    directions beside `asked_rate_bps` and `asked_rate_back_bps`. Seconds and bit/s; None where nothing is known.
    """
    known = pd.DataFrame(rows, dtype=float).set_index("at_s")  # None becomes NaN

    def draw(on: Printed) -> Told:
        above, below = layout.panels(on, 2, 1, 3.0, sharex=True)
        least, most, read = (1e3 * known[name] for name in ("asked_rtt_least_s", "asked_rtt_most_s", "rtt_s"))
        above.fill_between(known.index, least, most, color="0.85", linewidth=0)
        above.plot((least + most) / 2, color="0.5", linewidth=1, label="requested")
        above.plot(read, "o", color="0.2", markersize=3, label="measured RTT")
        ways = (("rate_bps", "edge to server", "o"), ("rate_back_bps", "server to edge", "s"))
        for colour, (column, label, marker) in zip(LEVEL_COLOURS, ways, strict=False):
            if np.isfinite(wanted := known[f"asked_{column}"]).any():
                below.plot(wanted / 1e6, linewidth=1, color=colour)
                below.plot(known[column] / 1e6, marker, markersize=3, label=label, color=colour)
        if not below.lines:
            below.text(0.5, 0.5, "no rate was requested", transform=below.transAxes, ha="center", color="0.4")
        above.set_ylabel("round trip (ms)")
        below.set(ylabel="payload (Mbit/s)", xlabel="time (s)")
        for axes in (above, below):
            axes.set_ylim(0, 1.1 * max(axes.dataLim.y1, 1e-3))
            axes.grid(visible=True)
        return Told(title, [], known)

    return layout.printed(draw)[0]
