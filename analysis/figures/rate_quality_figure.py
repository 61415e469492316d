"""The accuracy that bytes buy: that of every codec's points, over the bytes per image that cross the link."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pareto.analysis.figures import heads, style
from pareto.analysis.figures.axes import end_at_all, fit_axis
from pareto.analysis.figures.drawing import Drawing, caption
from pareto.analysis.figures.labels import UP_LEFT, Label, place_labels, settle
from pareto.analysis.figures.style import entry
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.indicators import nondominated
from pareto.analysis.points import AT_WORK, NONE, order
from pareto.analysis.statistics.samples import Floats

MARKER_PT = 4.5
MOST_LABELS = {"column": 12, "page": 40}
_DATA = [
    *("model", "batch_size", "setup", "codec", "point", "point_name", "wire_bytes_per_image", "accuracy"),
    *("accuracy_of", "accuracy_images", "accuracy_low", "accuracy_high", "output_error", "undominated"),
]


def rate_quality_drawing(rows: pd.DataFrame, testbed: str = "") -> Drawing | None:
    """The drawing of one model, batch size and setup; None where fewer than two codecs have both figures.

    `rows`: of `analysis.fronts.front.front`, of all profiles: neither bytes nor accuracy depend on these.
    """
    data = cells(rows)
    if data["codec"].nunique() < 2:
        return None
    text = caption(
        "Accuracy over the bytes per image that cross the link, a line for each codec through its partition points, "
        "whose numbers stand beside them",
        f"Accuracy is {quality.name_of(data)}; bars are 95 % intervals by the number of images",
        "Filled: nothing else reaches as much with as few bytes. Up and left is better",
        "At the lower edge, with its accuracy: what has less than half of the best"
        if _far_below(data).any()
        else "",
        f"Model {data['model'].iloc[0]}, batch size {data['batch_size'].iloc[0]}",
        f"Testbed: {testbed}" if testbed else "",
    )
    return Drawing(
        "rate-quality",
        lambda width: rate_quality_figure(rows, width=width),
        data.reindex(columns=_DATA),
        text,
    )


def cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Each codec's point once, with its bytes and accuracy, and whether another one is better in both."""
    crossing = rows[(rows["backend"] != NONE) & rows["wire_bytes_per_image"].gt(0) & rows["accuracy"].notna()]
    crossing = crossing[crossing["codec"] == crossing[AT_WORK]]
    once = crossing.drop_duplicates(["codec", "point"]).reset_index(drop=True)
    best = nondominated(once["wire_bytes_per_image"].to_numpy(float), once[quality.LEVEL].to_numpy(float))
    return once.assign(undominated=best)


def rate_quality_figure(rows: pd.DataFrame, *, width: str = "page") -> Figure:
    """Draw bytes per image (kB) to the right, accuracy (%) upwards: the best corner is the upper left."""
    data = cells(rows)
    below = _far_below(data)
    kept = 100 * data.loc[~below, ["accuracy", "accuracy_low", "accuracy_high"]].stack()
    least = max(float(kept.min()), 50 * float(data["accuracy"].max()))
    floor = least - (0.12 if below.any() else 0.06) * (float(kept.max()) - least or 10)
    data = data.assign(
        kb=data["wire_bytes_per_image"] / 1e3,
        percent=(100 * data["accuracy"]).where(~below, floor),
        below=below,
    )
    with style.blank(width, 3.2 if width == "page" else 2.4) as figure:
        axes = figure.add_subplot()
        axes.grid(True)
        axes.set_xlabel("bytes per image that cross the link (kB)")
        axes.set_ylabel(f"{quality.WORDS[str(data['accuracy_of'].iloc[0])]} (%)")
        fit_axis(axes, "x", data["kb"])
        # Shares are compared by their differences, so that the axis is linear whatever it spans.
        axes.set_ylim(floor, float(kept.max()) + 0.12 * (float(kept.max()) - floor))
        labels: list[Label] = []
        lines: list[tuple[Floats, Floats]] = []
        entries: list[Line2D] = []
        looks = style.codec_looks(rows)
        for codec in _in_order(data):
            own = data[data["codec"] == codec].sort_values("kb")
            look = looks[codec]
            colour, marker, line = look.colour, look.marker, look.line
            axes.plot(
                own["kb"], own["percent"], linestyle=line, color=colour, linewidth=0.8, alpha=0.6, zorder=2
            )
            lines.append((own["kb"].to_numpy(), own["percent"].to_numpy()))
            sure = own[~own["below"]]
            axes.vlines(
                sure["kb"], 100 * sure["accuracy_low"], 100 * sure["accuracy_high"], color=colour, linewidth=0.6,
                zorder=2,
            )  # fmt: skip
            for best, of_kind in own.groupby("undominated"):
                fill: dict[str, Any] = {} if best else {"markerfacecolor": "white", "alpha": 0.7}
                axes.plot(
                    of_kind["kb"], of_kind["percent"], linestyle="", marker=marker, color=colour,
                    markersize=MARKER_PT, markeredgewidth=0.9, zorder=4 if best else 3, clip_on=False, **fill,
                )  # fmt: skip
            name = quality.codec_name(codec)
            entries.append(entry(name, marker=marker, color=colour, linestyle=line, markersize=MARKER_PT))
            labels += [
                Label(row["kb"], row["percent"], _label(row), colour, UP_LEFT)
                for row in own.sort_values("undominated", ascending=False, kind="stable").to_dict("records")
            ]
        title = f"What bytes buy: {data['model'].iloc[0]}"
        heads.grow(figure, heads.head(axes, title, entries))
        end_at_all(figure, axes.yaxis)
        settle(figure)
        place_labels(
            axes,
            style.evenly(labels, MOST_LABELS[width]),
            markers=data[["kb", "percent"]].to_numpy(dtype=float),
            marker_pt=MARKER_PT,
            lines=lines,
        )
    return figure


def _far_below(data: pd.DataFrame) -> pd.Series:
    """Whether each cell has less than half of the best accuracy: drawn to scale, it would flatten the others."""
    return data["accuracy"] < data["accuracy"].max() / 2


def _label(row: Mapping[Hashable, Any]) -> str:
    return f"{row['point']}: {quality.percent(row['accuracy'])} %" if row["below"] else str(row["point"])


def _in_order(data: pd.DataFrame) -> list[str]:
    """The codecs, none first, then by the bytes of their first point."""
    first = data.sort_values("point", key=order).drop_duplicates("codec").set_index("codec")["kb"]
    plain = [codec for codec in first.index if quality.codec_name(codec) == "no codec"]
    others = first.drop(plain).sort_values(ascending=False, kind="stable")
    return [*plain, *map(str, others.index)]
