"""The command `partitions`: what is inside one model, or a line on each of several."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pareto import inside, overview, prepare, proving
from pareto.errors import UserError
from pareto.sweep import Sweep
from partitions import memory, model, registry
from partitions.graph import UntraceableModel
from partitions.recipe import Recipe

ALL = "all"
"""In place of models' names: every one that there is."""
_REFUSALS = (UserError, UntraceableModel)


def run(
    out: Console, asked: Sweep, folder: Path, *, prove: bool = False, document: Path | None = None
) -> bool:
    """Show the points of the sweep's model, or of several models a row each; whether all that was to be proved is.

    asked: its models and how they are cut. folder: where the figure of a single one goes. document: a Markdown file
    whose table gets the rows, one by one as they are made. Raises UserError.
    """
    names = registry.names() if ALL in asked.models else [registry.canonical(name) for name in asked.models]
    recipes = [prepare.recipe(name, asked) for name in dict.fromkeys(names)]
    try:
        if len(recipes) == 1 and document is None:
            return _one(out, recipes[0], folder, prove=prove)
        return _several(out, recipes, prove=prove, document=document)
    except OSError as error:
        raise UserError(f"cannot write to {document or folder}: {error.strerror or error}") from error


def _one(out: Console, recipe: Recipe, folder: Path, *, prove: bool) -> bool:
    try:
        outline = model.outline(recipe)
    except _REFUSALS as error:
        raise UserError(str(error)) from None
    proofs = proving.each(recipe) if prove else []
    inside.show(out, outline, folder, [proving.word(found) for found in proofs] if prove else None)
    failed = [found for found in proofs if proving.word(found) == proving.NO]
    for found in failed[:1]:
        why = proving.fault(outline.points[found.point], found)
        out.print(f"{len(failed)} of {len(proofs)} points are not proved: {why}", markup=False)
    return not failed


def _several(out: Console, recipes: Sequence[Recipe], *, prove: bool, document: Path | None) -> bool:
    rows = []
    for number, recipe in enumerate(recipes, start=1):
        with out.status(f"{recipe.name}, {number} of {len(recipes)}"):
            rows.append(_row(recipe, prove=prove))
        if document is not None:
            overview.write(rows[-1:], document)
        gc.collect()  # graphs and their modules refer to each other
        memory.give_back_freed()
    out.print(overview.table(rows))
    for one in rows:
        if one.fault:
            out.print(one.fault, markup=False)
    out.print(overview.NOTE, markup=False)
    return not any(one.disproved for one in rows)


def _row(recipe: Recipe, *, prove: bool) -> overview.Row:
    try:
        outline = model.outline(recipe)
    except _REFUSALS as error:
        return overview.Row(recipe.name, fault=str(error))
    return overview.row(outline, proving.all_at_once(recipe) if prove else overview.NOT_PROVED)
