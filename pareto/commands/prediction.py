"""`advise` without runs: the predicted front among all splits of a model, in a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from pareto import PROFILES
from pareto.analysis.model_profile import ModelProfile, read
from pareto.analysis.prediction.forecast import AUTO, Case
from pareto.analysis.runs.points import NO_CODEC
from pareto.basics import files
from pareto.basics.escaping import say
from pareto.commands.unit_times import make_or_reuse
from pareto.predict import links
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import Networks, links_of, networks_of
from pareto.sweep.sweep import Sweep

PREDICTIONS = "predictions"
"""The folder of the tables, beside those of runs."""


def run(
    console: Console, options: Mapping[str, Any], kept: Path | None, out: Path, *, json: bool = False
) -> None:
    """Predict each case of what options ask for, print it, and write it into `out`/predictions. Raises UserError.

    options: of a sweep, as typed. kept: the folder of a model profile; else they are made or used again in
    `out`/profiles. json: one object on standard output instead of what is printed.
    """
    from pareto.analysis import as_json
    from pareto.analysis.naming import file_stem
    from pareto.analysis.prediction.predicted import predicted, splits_of
    from pareto.analysis.tables.advice import answers, predicted_table, sentences

    known = [] if kept is None else [read(kept)]
    sweep = make_sweep({**_asked(known[0]), **options} if known else options)
    if coded := next((codec.text for codec in sweep.coding if codec.back), None):
        raise UserError(f"--codec {coded}: how small results become on their way back is not predicted")
    made = networks_of(sweep, links_of(sweep))
    known = known or [profile for profile, _ in make_or_reuse(console, sweep, out / PROFILES.name).values()]
    found: list[dict[str, Any]] = []
    console.quiet = json
    tables: dict[str, pd.DataFrame] = {}
    lossy = {codec.text for codec in sweep.coding if not codec.lossless}
    for profile, case in itertools.product(known, list(cases(sweep, made))):
        rows = predicted(profile, sweep.transports, case)
        splits = splits_of(profile, case.hosts)
        lines = [*sentences(rows, splits, case.hosts), *links.doubts(made[case.netem])]
        if case.codec in lossy:
            lines.append(f"What {case.codec} costs in accuracy is not predicted.")
        tables[f"{file_stem('forecast', profile.model, case.netem, *_variants(case))}.csv"] = rows
        found.append({"answers": [*answers(rows), *lines], "splits": rows})
        for answer in answers(rows):
            console.print(answer, style="bold")
        for shown in (predicted_table(rows), *lines, ""):
            console.print(shown)

    with files.written_into(out):
        files.make(out / PREDICTIONS)
        for name, rows in tables.items():
            console.print(str(files.write_table(out / PREDICTIONS / name, rows)), soft_wrap=True)
    if json:
        say(as_json.text({"cases": found}))


def _variants(case: Case) -> list[str]:
    """The parts of a file's name that tell a case from the usual one of its network."""
    told = (("b", case.batch_size, 1), ("", case.codec, NO_CODEC), ("d", case.in_flight, AUTO))
    return [f"{letter}{value}" for letter, value, usual in told if value != usual]


def _asked(profile: ModelProfile) -> dict[str, Any]:
    """The options that would have asked for a profile. Raises UserError."""
    if len(profile.roles) < 2:
        raise UserError(f"the model profile of {profile.model} is of one host: nothing can be split")
    backends = dict.fromkeys(cost.backend for cost in profile.backends)
    hosts, size = len(profile.roles), profile.batch_sizes[0]
    return {"model": profile.model, "hosts": hosts, "backend": ",".join(backends), "batch_size": size}


def cases(sweep: Sweep, named: Networks) -> Iterator[Case]:
    """The cases that a sweep asks of one model, backends aside: each network with each batch size, codec and depth."""
    sizes, ways = sweep.batch_sizes, itertools.product(sweep.coding, sweep.depths)
    for (netem, profiles), size, (codec, depth) in itertools.product(named.items(), sizes, ways):
        yield links.case(netem, profiles, sweep.link_tolerance, size, depth, codec.text)
