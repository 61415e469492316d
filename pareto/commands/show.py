"""`show`: pictures of what a run's split model says of images, beside what the uncut model says."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import COMMAND, RESULTS
from pareto.basics import files
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, WHERE, argument, command, option, takes
from pareto.commands.report import run_folders
from pareto.commands.runs import last
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent
from pareto.sweep.dataset_names import SYNTHETIC

if TYPE_CHECKING:
    from pareto.analysis.runs.load import Joined

_FILES = ("model", "weights", "codec", "dataset", "data_path")


@command(CONCLUDE, "show results/night --data-path photos", "show --point 7 --where 'codec == int8'")
@takes(*_FILES, head="Again, where the run had files")
def show(
    run: Path | None = argument("RUN", "A run's folder.  [the last run]", None, cli_help.runs),
    *,
    point: str = option("", "Where the model is cut.  [the run's answer]", kind="POINT"),
    where: str = WHERE,
    most: int = option(8, "How many images.", "--images", kind="N", min=1, max=64),
    out: Path | None = cli_help.out("Where pictures/ goes.  [the run's folder]", None),
    **options: Any,
) -> None:
    """Draw what a run's split model says of its images beside the uncut model: classes, masks or boxes.

    Both are made anew, and run here. --where chooses among models, codecs and engines.
    """
    from pareto.analysis.page.document import SHEET
    from pareto.analysis.runs.load import joined
    from pareto.analysis.runs.points import cuts
    from pareto.basics.console import console
    from pareto.driver.manifest import difference, resumed_sweep
    from pareto.trial.store import read_manifest

    screen = console()
    (folder,) = run_folders(screen, [run], RESULTS) if run else last(screen)
    sweep = resumed_sweep(folder, cli_help.typed(options), "show", _FILES)
    if sweep.dataset == SYNTHETIC or sweep.simulated:
        what = "simulated" if sweep.simulated else "measured on noise"
        raise UserError(f"{folder} was {what}, so there is no picture to draw: measure with --dataset")
    cell = chosen(joined([folder]), point, where)
    name, engine, split = cell["model"], cell["engine"], cuts(cell["point"])
    screen.print(f"making {name} anew, to cut it at point {cell['point']}{cell['why']}", soft_wrap=True)
    from pareto.models import sheet
    from pareto.models.prepare import prepare, recipe
    from pareto.partitions.model import describe
    from pareto.sweep.splits import to_measure

    has_own = any(each.own for each in sweep.coding)  # it is made for all its points at once
    splits = to_measure(name, describe(recipe(name, sweep))[0], sweep, len(split)) if has_own else ()
    made = prepare(name, sweep, splits)
    if words := difference(read_manifest(folder), {name: made.manifest}, {}):
        raise UserError(f"{folder} was made {words}")
    codec, size = {each.text: each for each in sweep.coding}.get(cell["codec"]), int(cell["batch_size"])
    if not (codec and engine in sweep.engines and size in made.data and max(split) <= made.facts.last):
        raise UserError(f"{folder}: a trial of {name} {cell['point']} is none that its manifest asks for")
    pictures, agree, at_work = sheet.drawn(made, split, codec, engine, size, sweep.seed, most)
    title = [
        f"{name} cut at {cell['point']} ({cell['point_name']}), codec {at_work}, engine {engine}",
        f"the top answers agree in {agree.count(1)} of {len(agree)} images"
        + f", at {percent(sum(agree) / len(agree))} of all pixels" * any(0 < each < 1 for each in agree),
        *["the weights are random: what is said of an image means nothing"] * (sweep.weights == "seeded"),
    ]
    content = {SHEET: sheet.sheet(pictures, title)}
    for number, picture in enumerate(pictures):
        content[f"pictures/{number // 2 + 1:02}-{('split', 'uncut')[number % 2]}.png"] = picture
    root = (out or folder).resolve()
    with files.written_into(root):
        former = {each for each in files.made(root) if each.rpartition("/")[0] == "pictures"}
        files.claim(root, *content, instead_of=former)
        for file, picture in content.items():
            sheet.utils.save_image(picture / 255, png := io.BytesIO(), "png")
            files.write(root / file, png.getvalue(), under=root)
    page = [] if out else [f"into the page: {COMMAND} report {folder}"]
    for line in (*title, f"{root / SHEET}; beside it each picture alone", *page):
        screen.print(line, soft_wrap=True)


def chosen(runs: Joined, point: str, where: str) -> dict[str, Any]:
    """The columns of a trial of the cell to draw, and `why` its point where none is named. Raises UserError."""
    from pareto.analysis.advice.ranking import ranking
    from pareto.analysis.advice.workload import workloads
    from pareto.analysis.fronts.where import Where
    from pareto.analysis.naming import levels
    from pareto.analysis.runs.points import order
    from pareto.analysis.runs.standing import competing
    from pareto.analysis.runs.treatments import in_every_codec, work_names

    every = in_every_codec(runs.trials)
    rows = every[Where.parse(where).holds(every) & every["point"].isin([point] if point else every["point"])]
    if rows.empty:
        there = [f"{each}s {', '.join(levels(every[each]))}" for each in ("point", "codec", "engine")]
        asked = " and ".join(filter(None, (point and f"point {point}", where)))
        raise UserError(f"no trial has {asked or 'ended'}: there are {'; '.join(there)}")
    for each in workloads(replace(runs, trials=competing(rows)), over_engines=True, strict=False):
        with suppress(UserError, IndexError):  # it has no valid trial
            netem = str(each.valid["netem"].iloc[0])
            best = ranking(each, each.networks.get(netem), profile=netem).best
            is_best = (rows["point"] == best["point"]) & (rows["codec"] == each.first["codec"])
            is_best &= work_names(rows).eq(best["engine"]) | (best["engine"] == "")
            return {**rows[is_best].iloc[0], "why": f", the answer at {netem}" * (not point)}
    split = rows[(rows["payload_bytes"] > 0) & (rows["point"] != "0")]
    first = (rows if split.empty else split).sort_values("point", key=order, kind="stable").iloc[0]
    return {**first, "why": ", the first measured" * (not point)}
