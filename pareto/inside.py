"""`partitions`: what is inside a model. Each point: what crosses there, and what computes on either side of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from pareto.splits import fold_note
from partitions.costs import Cost, before_points
from partitions.model import Outline
from partitions.points import Point

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def show(out: Console, outline: Outline, folder: Path, proofs: Sequence[str] | None = None) -> None:
    """Print the points of a model, and draw them to partitions-<model>.pdf and .png in `folder`.

    proofs: for each point a word on its proof, for a column of its own.
    """
    running = before_points(outline)
    about = headline(outline, running[-1])
    out.print(about, markup=False)
    out.print(points_table(outline, running, proofs))
    for note in _notes(outline):
        out.print(note, markup=False)
    for path in draw(outline, running, folder, about):
        out.print(str(path), soft_wrap=True, markup=False)


def points_table(outline: Outline, running: Sequence[Cost], proofs: Sequence[str] | None = None) -> Table:
    """One row a point, and under point 0 the image in the other dtype that it could be sent in."""
    sides = [
        (_scaled(getattr(running[-1], what)), title, [getattr(cost, what) for cost in running])
        for what, title in (("flops", "FLOP"), ("parameters", "par."))
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("point", overflow="fold")
    table.add_column("sends", no_wrap=True)
    headers = ["KiB ", "% of\nin"]
    for (prefix, _), title, _ in sides:
        headers += [f"{prefix}{title}\nedge", "\nserver", "\n%"]
    for header in (*headers, *(["proof"] if proofs is not None else [])):
        table.add_column(header, justify="right", no_wrap=True)
    image, least = float32_bytes(outline), smallest(outline.points)
    for point in outline.points:
        mark = "*" if point is least else " "
        sent = [kib(point.payload_bytes) + mark, percent(point.payload_bytes, image)]
        cells = [str(point.index), point.name, _tensors(point), *(sent if point.payload else ["- ", ""])]
        for (_, write), _, figures in sides:
            edge, total = figures[point.index], figures[-1]
            cells += [write(edge), write(total - edge), percent(edge, total)]
        table.add_row(*cells, *([proofs[point.index]] if proofs is not None else []))
        if not point.index:
            dtype, nbytes = ("uint8", image // 4) if _dtype(outline) == "float32" else ("float32", image)
            table.add_row("", f"as {dtype}", "", kib(nbytes) + " ", percent(nbytes, image))
    return table


def draw(outline: Outline, running: Sequence[Cost], folder: Path, caption: str) -> list[Path]:
    """Write the figure as PDF and PNG; returns their paths."""
    from analysis.figures.payload_figure import partitions_figure
    from analysis.figures.style import save
    from analysis.naming import file_stem

    folder.mkdir(parents=True, exist_ok=True)
    figure = partitions_figure(figure_rows(outline, running), float32_bytes(outline), caption)
    return save(figure, folder / file_stem("partitions", outline.name))


def figure_rows(outline: Outline, running: Sequence[Cost]) -> pd.DataFrame:
    """A row for each point, as the figure wants them."""
    return pd.DataFrame(
        {
            "model": outline.name,
            "point": point.index,
            "point_name": point.name,
            "tensors": len(point.payload),
            "payload_bytes": point.payload_bytes,
            "edge_flops": cost.flops,
            "edge_parameters": cost.parameters,
        }
        for point, cost in zip(outline.points, running, strict=True)
    )


def smallest(points: Sequence[Point]) -> Point:
    """The first of those that send the least; the last point, which sends nothing, is none of them."""
    return min(points[:-1], key=lambda point: point.payload_bytes)


def float32_bytes(outline: Outline) -> int:
    """Size of one image in float32: what payloads are compared with, whatever dtype it is sent in."""
    return 4 * math.prod(outline.input_shape)


def headline(outline: Outline, whole: Cost) -> str:
    """What the model is, in a line."""
    (giga, flops), (mega, parameters) = _scaled(whole.flops), _scaled(whole.parameters)
    return (
        f"{outline.name}, traced by {outline.traced_by}: input {_shape(outline.input_shape)} {_dtype(outline)}, "
        f"{flops(whole.flops)} {giga}FLOP, {parameters(whole.parameters)} {mega + ' ' * bool(mega)}parameters "
        f"({whole.parameter_bytes / 2**20:.1f} MiB), batch size 1."
    )


def _notes(outline: Outline) -> list[str]:
    points, image, least = outline.points, float32_bytes(outline), smallest(outline.points)
    share = percent(least.payload_bytes, image)
    notes = [
        f"* smallest payload: point {least.index} ({least.name}), {kib(least.payload_bytes)} KiB, {share} % of the "
        "float32 input"
    ]
    sizes = [point.payload_bytes for point in points[1:-1]]
    fewer, fewest = (sum(size < limit for size in sizes) for limit in (image, image // 4))
    notes.append(
        f"{fewer} of the {len(sizes)} points between the ends send less than the float32 input, {fewest} "
        "less than the uint8 input"
    )
    notes.extend(filter(None, [fold_note(points)]))
    return notes


def _dtype(outline: Outline) -> str:
    return outline.points[0].payload[0].dtype


def _tensors(point: Point) -> str:
    """`32x112x112`, without the batch dimension; one line a tensor."""
    return "\n+ ".join(
        _shape(spec.shape[1:]) + ("" if spec.dtype == "float32" else f" {spec.dtype}")
        for spec in point.payload
    )


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def kib(nbytes: int) -> str:
    """Three digits or more."""
    return _rounded(nbytes / 1024)


def percent(part: float, whole: float) -> str:
    """Whole percent, with a decimal where it is less than ten."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f}" if 0 < share < 9.95 else f"{share:.0f}"


def _scaled(total: float) -> tuple[str, Callable[[float], str]]:
    """A prefix in which `total` reads well, and what writes figures up to `total` under it."""
    factor, prefix = next((it for it in _PREFIXES if total >= it[0]), _PREFIXES[-1])
    decimals = _decimals(total / factor)
    return prefix, lambda value: f"{value / factor:.{decimals}f}"


def _rounded(value: float) -> str:
    return f"{value:.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    """How many make three digits of it."""
    return 0 if value >= 99.95 else 1 if value >= 9.995 else 2
