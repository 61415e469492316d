"""The command `partitions`: each point of one model in a table and a figure, or a row for each of several models."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from pareto.analysis import as_json
from pareto.basics import files
from pareto.basics.console import digits, table
from pareto.basics.escaping import say
from pareto.models import prepare
from pareto.partitions import allocator, model, proof, registry
from pareto.partitions.costs import Cost, before_points
from pareto.partitions.inputs import Images
from pareto.partitions.model import Outline
from pareto.partitions.points import Point, find, hindered
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from pareto.sweep.splits import fold_note
from pareto.sweep.sweep import Sweep

ALL = "all"
"""In place of models' names: every one that there is."""
TENSORS = (1, 2, 3)
NOTE = (
    "blocks and points: up to the last, which sends nothing; cuts: those with one tensor crossing, unfolded; points: "
    "with up to 1, 2 and 3 tensors crossing, folded; least: the smallest payload among these, in KiB at batch size 1 "
    "and as a share of the float32 input"
)
BEGIN = "<!-- made by `./pareto.sh partitions all --input float32 --prove --markdown docs/models.md`: do not edit -->"
END = "<!-- end of what is made -->"

_HEADS = (
    *("model", "traced by", "blocks", "cuts"),
    *(f"points ≤{tensors}" for tensors in TENSORS),
    *("least KiB", "%", "after", "proved"),
)
UNTRACED = "none"
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def run(out: Console, sweep: Sweep, folder: Path, *, prove: bool, document: Path | None, json: bool) -> bool:
    """Print the points of the sweep's model, or a row for each of its models; False if a proof fails.

    folder: where the figure of a single model goes. document: a Markdown file whose table gets the rows, one by one as
    they are made. json: one object on standard output instead, of one model. Raises UserError.
    """
    names = registry.names() if ALL in sweep.models else prepare.full_names(sweep)
    recipes = [prepare.recipe(name, sweep) for name in dict.fromkeys(names)]
    with files.written(document or folder, "write to"):
        if len(recipes) == 1 and document is None:
            return _one(out, recipes[0], folder, prove=prove, json=json)
        if json:
            raise UserError("--json is for one model: name one, without --markdown")
        return _several(out, recipes, prove=prove, document=document)


def _one(out: Console, recipe: Recipe, folder: Path, *, prove: bool, json: bool) -> bool:
    outline = model.outline(recipe)
    proofs = proof.each(recipe) if prove else []
    words = [proof.word(each) for each in proofs]
    running = before_points(outline)
    if json:
        say(as_json.text(as_object(outline, running, words)))
        return proof.NO not in words
    about = headline(outline, running[-1])
    for shown in (about, points_table(outline, running, words), *_notes(outline)):
        out.print(shown)
    for path in draw(outline, running, folder, about):
        out.print(str(path), soft_wrap=True)
    failed = [each for each, word in zip(proofs, words, strict=True) if word == proof.NO]
    if failed:
        why = proof.fault(outline.points[failed[0].point], failed[0])
        out.print(f"{len(failed)} of {len(proofs)} points are not proved: {why}")
    return not failed


def as_object(outline: Outline, running: Sequence[Cost], proofs: Sequence[str] = ()) -> dict[str, Any]:
    """The facts known of a model, for `--json`: a row for each point, and the points that send the least."""
    rows = figure_rows(outline, running)
    rows["server_flops"] = running[-1].flops - rows["edge_flops"]
    rows["server_parameters"] = running[-1].parameters - rows["edge_parameters"]
    rows["sends"] = [
        [{"shape": spec.shape, "dtype": spec.dtype} for spec in point.payload] for point in outline.points
    ]
    if proofs:
        rows["proof"] = list(proofs)
    return {
        "model": outline.name,
        "traced_by": outline.traced.traced_by,
        "input_bytes": outline.takes.nbytes,
        "smallest": smallest(outline.points).index,
        "points": rows.drop(columns="model"),
        "notes": _notes(outline),
    }


def points_table(outline: Outline, running: Sequence[Cost], proofs: Sequence[str] = ()) -> Table:
    """A row for each point, and under point 0 the image in the other dtype that it could be sent in. running: the cost
    of all that runs before each point. proofs: for each point a word on its proof, for a column."""
    sides = [
        (_scaled(getattr(running[-1], what)), title, [getattr(cost, what) for cost in running])
        for what, title in (("flops", "FLOP"), ("parameters", "par."))
    ]
    heads = ["", "point", "sends", "KiB ", "% of\nin"]
    for (prefix, _), title, _ in sides:
        heads += [f"{prefix}{title}\nedge", "\nserver", "\n%"]
    heads += ["proof"] if proofs else []
    made = table(heads, ">~<" + ">" * (len(heads) - 3))
    image, least = outline.takes.nbytes, smallest(outline.points)
    for point in outline.points:
        mark = "*" if point is least else " "
        sent = [_kib(point.payload_bytes) + mark, _percent(point.payload_bytes, image)]
        cells = [str(point.index), point.name, _tensors(point), *(sent if point.payload else ["- ", ""])]
        for (_, write), _, figures in sides:
            edge, total = figures[point.index], figures[-1]
            cells += [write(edge), write(total - edge), _percent(edge, total)]
        made.add_row(*cells, *proofs[point.index : point.index + 1])
        if not point.index and isinstance(outline.takes, Images):
            is_float = point.payload[0].dtype == "float32"
            dtype, nbytes = ("uint8", image // 4) if is_float else ("float32", image)
            made.add_row("", f"as {dtype}", "", _kib(nbytes) + " ", _percent(nbytes, image))
    return made


def draw(outline: Outline, running: Sequence[Cost], folder: Path, caption: str) -> list[Path]:
    """Write the figure to partitions-<model>.pdf and .png in `folder`; returns their paths."""
    from pareto.analysis.figures.look import USUAL
    from pareto.analysis.figures.point_figures import partitions_figure
    from pareto.analysis.naming import file_stem

    stem = file_stem("partitions", outline.name)
    files.claim(folder, *(f"{stem}.{kind}" for kind in USUAL.formats))
    figure = partitions_figure(figure_rows(outline, running), outline.takes.nbytes, caption)
    return figure.save(folder / stem, USUAL.formats)


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
    """The first point that sends the least; the last point, which sends nothing, does not count."""
    return min(points[:-1], key=lambda point: point.payload_bytes)


def headline(outline: Outline, whole: Cost) -> str:
    """The model in a line: its input, operations and parameters."""
    (giga, flops), (mega, parameters) = _scaled(whole.flops), _scaled(whole.parameters)
    return (
        f"{outline.name}, traced by {outline.traced.traced_by}: input {_input(outline)}, "
        f"{flops(whole.flops)} {giga}FLOP, {parameters(whole.parameters)} {mega + ' ' * bool(mega)}parameters "
        f"({whole.parameter_bytes / 2**20:.1f} MiB), batch size 1."
    )


def _notes(outline: Outline) -> list[str]:
    points, image, least = outline.points, outline.takes.nbytes, smallest(outline.points)
    what = outline.takes.words
    sizes = [point.payload_bytes for point in points[1:-1]]
    fewer, fewest = (sum(size < limit for size in sizes) for limit in (image, image // 4))
    notes = [
        f"* smallest payload: point {least.index} ({least.name}), {_kib(least.payload_bytes)} KiB, "
        f"{_percent(least.payload_bytes, image)} % of the {what}",
        f"{fewer} of the {len(sizes)} points between the ends send less than the {what}"
        + (f", {fewest} less than the uint8 input" if isinstance(outline.takes, Images) else ""),
        fold_note(points, outline.cuts),
        *hindered(outline.traced),
        outline.unsendable,
    ]
    return [note for note in notes if note]


def _several(out: Console, recipes: Sequence[Recipe], *, prove: bool, document: Path | None) -> bool:
    rows = []
    for number, recipe in enumerate(recipes, start=1):
        with out.status(f"{recipe.name}, {number} of {len(recipes)}"):
            rows.append(_row(recipe, prove=prove))
        if document is not None:
            write(rows[-1:], document)
        gc.collect()  # graphs and their modules refer to each other
        allocator.give_back_freed()
    made = table([head.replace(" ", "\n", 1) for head in _HEADS], "~~>>>>>>>~~")
    for row in rows:
        if row[1] != UNTRACED:
            made.add_row(*row)
    for shown in (made, *(row[-1] for row in rows if row[1] == UNTRACED), NOTE):
        out.print(shown)
    return not any(row[-1].startswith(f"{proof.NO}:") for row in rows)


def _row(recipe: Recipe, *, prove: bool) -> tuple[str, ...]:
    """The cells of a model's row. One that cannot be cut is `UNTRACED`, and the last cell says why."""
    try:
        outline = model.outline(recipe)
    except UserError as error:
        return (recipe.name, UNTRACED, *[""] * (len(_HEADS) - 3), str(error))
    own = find(outline.traced, Cuts(), is_own=bool(recipe.file))
    unfolded = find(outline.traced, Cuts("op", fold=False))
    folded = [find(outline.traced, Cuts("op", tensors)) for tensors in TENSORS]
    counts = [str(len(points) - 1) for points in (own, unfolded, *folded)]
    least = smallest(folded[-1])
    sent = (_kib(least.payload_bytes), _percent(least.payload_bytes, outline.takes.nbytes), least.name)
    proved = proof.all_at_once(recipe) if prove else "not proved"
    return (outline.name, outline.traced.traced_by, *counts, *sent, proved)


def write(rows: Iterable[Sequence[str]], document: Path) -> None:
    """Put the rows into the table of a Markdown file, in place of those of the same models; other rows stay. The table
    lies between two comments; a file without them gets it at its end."""
    text = files.text(document, "document") if document.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    made, _, after = rest.partition(END)
    present = [line for line in made.splitlines() if line.startswith("| ")][1:]
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in present}
    lines.update({row[0]: f"| {' | '.join(row)} |" for row in rows})
    head = (f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}")
    body = "\n".join((BEGIN, "", *head, *(lines[name] for name in sorted(lines)), "", END))
    files.write(document.resolve(), f"{before if begin else before + chr(10)}{body}{after or chr(10)}")


def _input(outline: Outline) -> str:
    """`3x224x224 uint8`; of several inputs each with its name: `ids 128 int64, keep 128 bool`."""
    specs = zip(outline.inputs, outline.points[0].payload, strict=True)
    return ", ".join(f"{one.name} {_shape(one.shape)} {spec.dtype}".strip() for one, spec in specs)


def _tensors(point: Point) -> str:
    """`32x112x112`, without the batch dimension; one line for each tensor."""
    return "\n+ ".join(
        _shape(spec.shape[1:]) + ("" if spec.dtype == "float32" else f" {spec.dtype}")
        for spec in point.payload
    )


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "1"


def _kib(nbytes: int) -> str:
    return digits(nbytes / 1024)


def _percent(part: float, whole: float) -> str:
    """Whole percent, with a decimal where it is less than ten."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f}" if 0 < share < 9.95 else f"{share:.0f}"


def _scaled(total: float) -> tuple[str, Callable[[float], str]]:
    """A prefix in which `total` reads well, and a function that writes figures up to `total` under it."""
    factor, prefix = next((scale for scale in _PREFIXES if total >= scale[0]), (1.0, ""))
    return prefix, lambda value: digits(value / factor, total / factor)
