"""`partitions` of several models: a row each, in a table here and in a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table

from pareto import proving
from pareto.inside import float32_bytes, kib, percent, smallest
from partitions import points
from partitions.model import Outline
from partitions.recipe import Cuts

TENSORS = (1, 2, 3)
NOTE = (
    "blocks and points: up to the last, which sends nothing; cuts: those with one tensor crossing, unfolded; points: "
    "with up to 1, 2 and 3 tensors crossing, folded; least: the smallest payload among these, in KiB at batch size 1 "
    "and as a share of the float32 input"
)
NOT_PROVED = "not proved"
BEGIN = "<!-- made by `./pareto.sh partitions all --input float32 --prove --markdown docs/models.md`: do not edit -->"
END = "<!-- end of what is made -->"
_COUNTS = ("blocks", "cuts", *(f"points ≤{tensors}" for tensors in TENSORS))
_HEADERS = ("model", "traced by", *_COUNTS, "least KiB", "%", "after", "proved")


@dataclass(frozen=True)
class Row:
    """What is said of one model, as text. cells: all but the name, in the order of the headers; empty if refused.

    fault: why it cannot be cut, else empty.
    """

    name: str
    cells: tuple[str, ...] = ()
    fault: str = ""

    @property
    def disproved(self) -> bool:
        """Whether a proof was tried and failed."""
        return bool(self.cells) and self.cells[-1].startswith(proving.NO + ":")

    def markdown(self) -> str:
        """A line of a Markdown table."""
        told = self.cells or ("none", *[""] * (len(_HEADERS) - 3), self.fault)
        return f"| {' | '.join((self.name, *told))} |"


def row(outline: Outline, proof: str = NOT_PROVED) -> Row:
    """The facts of a model, and what was found of its proof."""
    traced = outline.traced
    blocks, cuts = points.find(traced, Cuts()), points.find(traced, Cuts("op", fold=False))
    folded = [points.find(traced, Cuts("op", tensors)) for tensors in TENSORS]
    counts = [str(len(found) - 1) for found in (blocks, cuts, *folded)]
    least = smallest(folded[-1])
    share = percent(least.payload_bytes, float32_bytes(outline))
    sent = (kib(least.payload_bytes), share, least.name)
    return Row(outline.name, (outline.traced_by, *counts, *sent, proof))


def table(rows: Sequence[Row]) -> Table:
    """The models that can be cut; it fits 80 columns."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for header in _HEADERS:
        text = header in ("model", "traced by", "after", "proved")
        shown.add_column(
            header.replace(" ", "\n", 1),
            justify="left" if text else "right",
            overflow="fold",
            no_wrap=not text,
        )
    for one in rows:
        if one.cells:
            shown.add_row(one.name, *one.cells)
    return shown


def write(rows: Iterable[Row], document: Path) -> None:
    """Put the rows into the table of a Markdown file, in place of those of the same models; the others stay.

    The table lies between two comments; a file without them gets it at its end.
    """
    text = document.read_text() if document.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    made, _, after = rest.partition(END)
    found = [line for line in made.splitlines() if line.startswith("| ")][1:]
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in found}
    lines.update({one.name: one.markdown() for one in rows})
    head = (f"| {' | '.join(_HEADERS)} |", f"|{'---|' * len(_HEADERS)}")
    body = "\n".join((BEGIN, "", *head, *(lines[name] for name in sorted(lines)), "", END))
    draft = document.with_name(f".{document.name}.part")
    draft.write_text(f"{before if begin else before + chr(10)}{body}{after or chr(10)}")
    draft.replace(document)
