"""Labels beside points, such that none covers another label or a marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pareto.analysis.figures.style import SMALL_PT, ink
from pareto.analysis.statistics.samples import Floats

# Gaps between a point and its label in points of print, and the directions tried at each.
_GAPS_PT = np.array([3, 5, 8, 12, 17, 23, 30, 38, 48, 60, 75, 95, 120])
_ANGLES = np.linspace(0, 2 * np.pi, 24, endpoint=False)

# What a candidate costs, in points of distance from its point.
_TURNED_AWAY_PT = 2.5
_ON_A_LINE_PT = 8.0
_CROSSED_LEADER_PT = 12.0
_LEADER_FROM_PT = 7.0
_DOUBTFUL_PT = 4.0
_NEARER = 1.5
"""A label needs a leader where another marker is not this many times as far from it as its own."""

_MARGIN_PT = 0.8
_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.3}


UP_LEFT, DOWN_RIGHT, DOWN_LEFT, UP_RIGHT = 0.75 * np.pi, -0.25 * np.pi, -0.75 * np.pi, 0.25 * np.pi
"""Directions of a label."""


class Label(NamedTuple):
    """A text for a point (data units), in its backend's colour, and the direction (radians) where it would best go."""

    x: float
    y: float
    text: str
    colour: str
    direction: float


def settle(figure: Figure) -> None:
    """Make the layout final: labels are placed in it, so that it must be known and stay."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def place_labels(
    axes: Axes,
    labels: Sequence[Label],
    *,
    markers: Floats,
    marker_pt: float | Floats,
    lines: Sequence[tuple[Floats, Floats]] = (),
    size_pt: float = SMALL_PT,
    zorder: float = 2.5,
) -> None:
    """Write each label at the cheapest free place around its point; near is cheap.

    markers: centres (n x 2, data units) of markers of `marker_pt` points (one size, or one each), which are never
    covered, nor is a label once placed; lines: staircases (data units), which are avoided. A thin leader joins a label
    to its point where they are apart, or where it could be another point's. A label without a free place is left out,
    as an illegible one would tell nothing.
    Call it last, with limits and layout final (`settle`; a caller's figure is only drawn, as its layout stays his own).
    Greedy and deterministic: the same input, the same figure.
    zorder: by default over the staircases and under the markers.
    """
    to_pixels, pt = axes.transData, axes.figure.dpi / 72
    sizes = np.broadcast_to(np.asarray(marker_pt, dtype=float), len(markers)) * pt
    every = to_pixels.transform(markers)
    taken = _around(every, sizes[:, None])
    edges = [_edges(to_pixels.transform(np.column_stack(line))) for line in lines]
    avoided = np.concatenate([np.empty((0, 4)), *edges])
    inside = np.array(axes.bbox.extents)
    leaders = np.empty((0, 2))
    gap, angle = (grid.ravel() for grid in np.meshgrid(_GAPS_PT * pt, _ANGLES, indexing="ij"))
    towards = np.column_stack([np.cos(angle), np.sin(angle)])
    for x, y, words, colour, direction in labels:
        text = axes.text(x, y, words, fontsize=size_pt, color=ink(colour), zorder=zorder, bbox=_BOX)
        size = np.array(text.get_window_extent().size) + 2 * _MARGIN_PT * pt
        point = to_pixels.transform((x, y))
        # The label's nearest edge, not its middle, is to be `gap` away: half its size is added.
        centres = point + towards * gap[:, None] + np.clip(towards * 1.5, -1, 1) * size / 2
        boxes = _around(centres, size)
        free = ~_overlaps(boxes, taken).any(axis=1) & (boxes[:, :2] >= inside[:2]).all(axis=1)
        free &= (boxes[:, 2:] <= inside[2:]).all(axis=1)
        if not free.any():
            text.remove()
            continue
        cost = gap / pt + _TURNED_AWAY_PT * (1 - np.cos(angle - direction))
        cost += _ON_A_LINE_PT * _overlaps(boxes, avoided).sum(axis=1).clip(max=2)
        cost += _CROSSED_LEADER_PT * _overlaps(boxes, np.hstack([leaders, leaders])).any(axis=1)
        others = every[np.hypot(*(every - point).T) > 0.5]
        own_pt, other_pt = (
            _distance(boxes, of).min(axis=1, initial=np.inf) / pt for of in (point[None], others)
        )
        doubtful = other_pt < _NEARER * own_pt
        cost += _DOUBTFUL_PT * doubtful
        best = int(np.argmin(np.where(free, cost, np.inf)))
        taken = np.vstack([taken, boxes[best]])
        text.set(ha="center", va="center_baseline", position=to_pixels.inverted().transform(centres[best]))
        if gap[best] >= _LEADER_FROM_PT * pt or doubtful[best]:
            end = np.clip(point, boxes[best, :2], boxes[best, 2:])
            axes.plot(
                *to_pixels.inverted().transform([point, end]).T, color="0.45", linewidth=0.4, zorder=2.2
            )
            leaders = np.vstack([leaders, np.linspace(point, end, 12)])


def _around(centres: Floats, size: Floats) -> Floats:
    """Boxes (left, bottom, right, top) around centres."""
    return np.hstack([centres - size / 2, centres + size / 2])


def _distance(boxes: Floats, points: Floats) -> Floats:
    """The distance of each point (columns) from each box (rows); 0 within it."""
    beyond = np.maximum(boxes[:, None, :2] - points, points - boxes[:, None, 2:])
    far: Floats = np.hypot(*np.moveaxis(beyond.clip(min=0), -1, 0))
    return far


def _edges(vertices: Floats) -> Floats:
    """The edges of a staircase, as boxes without area."""
    return np.hstack([np.minimum(vertices[:-1], vertices[1:]), np.maximum(vertices[:-1], vertices[1:])])


def _overlaps(boxes: Floats, others: Floats) -> npt.NDArray[np.bool_]:
    """A mask of `boxes` (rows) that touch `others` (columns)."""
    one, other = boxes[:, None], others[None]
    touching: npt.NDArray[np.bool_] = (one[..., :2] <= other[..., 2:]) & (one[..., 2:] >= other[..., :2])
    return touching[..., 0] & touching[..., 1]
