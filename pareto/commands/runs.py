"""`runs`: the runs in a folder, the last first, each with its answer; and those that a command takes by itself."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import COMMAND, RESULTS
from pareto.basics import files
from pareto.basics.escaping import say
from pareto.commands.help import CONCLUDE, JSON, argument, command, option
from pareto.protocol.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

MOST = 20
"""The runs that are listed, unless all are wanted."""
ANSWERS = "answers.csv"
"""The table of a report from which answers are taken."""


@command(CONCLUDE, "runs", "runs results/night --json")
def runs(
    folder: Path = argument("FOLDER", "A folder of runs.  [results]", RESULTS),
    every: bool = option(False, "List all, not the last 20 alone.", "--all"),
    json: bool = JSON,
) -> None:
    """List runs, the last first: when they began, how many trials they have, and where to cut."""
    from pareto.basics.console import console

    screen, found = console(aside=json), dated(folder)
    if not found:
        raise UserError(f"{folder} has no run: {COMMAND} --model mobilenetv2 --netem wifi --quick makes one")
    listed = [_record(*each) for each in (found if every else found[:MOST])]
    if json:
        from pareto.analysis import as_json

        say(as_json.text({"runs": listed}))
        return
    for each in listed:
        screen.print(f"{each['run']}  {each['began']}  {each['trials']}", style="bold", soft_wrap=True)
        for line in each["answers"] or [f"{each['what']}: no report yet"]:
            screen.print(f"  {line}", no_wrap=True, overflow="ellipsis")
    if left := len(found) - len(listed):
        screen.print(f"and {left} more: --all lists them")


def dated(results: Path) -> list[tuple[Path, datetime, Mapping[str, Any]]]:
    """The run folders in a folder, each with when it began and its manifest, the last first."""
    from pareto.analysis.runs.manifest import manifest

    found = []
    for path in results.glob("*/trials.csv"):
        known = manifest(path.parent)
        try:
            began = datetime.fromisoformat(str(known.get("created_at")).replace("Z", "+00:00"))
        except ValueError:  # its manifest is lost
            began = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
        found.append((path.parent, began if began.tzinfo else began.astimezone(), known))
    return sorted(found, key=lambda each: (each[1], each[0].name), reverse=True)


def last(console: Console, number: int = 1) -> list[Path]:
    """The last runs in `results`, the latest last, and a line that says so. Raises UserError if there are fewer."""
    folders = [folder for folder, *_ in dated(RESULTS)[:number]][::-1]
    if len(folders) < number:
        there = "no run" if not folders else "only one run"
        raise UserError(f"there is {there} in {RESULTS.name}: name a run's folder, or measure first")
    names = ", ".join(f"{RESULTS.name}/{folder.name}" for folder in folders)
    console.print(f"the last {'run' if number == 1 else f'{number} runs'}: {names}")
    return folders


def _record(folder: Path, began: datetime, manifest: Mapping[str, Any]) -> dict[str, Any]:
    from pareto.analysis.runs import reading
    from pareto.analysis.runs.manifest import within
    from pareto.analysis.runs.standing import status_words
    from pareto.analysis.schema import TRIALS

    try:
        trials = status_words(reading.read(folder, TRIALS)[0].select(["status"]).to_pandas())
    except UserError as error:
        trials = str(error)
    models, netems = (
        ", ".join(map(str, within(manifest, "sweep", name) or ["?"])) for name in ("models", "netems")
    )
    return {
        "run": folder.name,
        "folder": folder,
        "began": f"{began.astimezone():%Y-%m-%d %H:%M}",
        "what": f"{models} at {netems}",
        "trials": trials,
        "answers": list(_answers(folder)),
    }


def _answers(folder: Path) -> Iterator[str]:
    """The answers of a run's report; none where there is no report."""
    with suppress(OSError, files.StoreError, UnicodeDecodeError, csv.Error):
        text = files.read(folder, ANSWERS).decode()
        rows: Sequence[Mapping[str, str]] = list(csv.DictReader(io.StringIO(text)))
        yield from dict.fromkeys(row.get("answer") or "" for row in rows)
