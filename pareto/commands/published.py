"""Published results on the screen: read from a file in sweeps/published/, and set beside a run."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from pareto import COMMAND, DATA
from pareto.analysis.comparing.published import Published, beside
from pareto.analysis.runs.manifest import manifest
from pareto.analysis.runs.setups import SIMULATED
from pareto.analysis.tables.published import published_table, write
from pareto.basics.console import files
from pareto.basics.yaml_file import YamlFile
from pareto.trial.store import StoreError

SUFFIXES = (".yaml", ".yml")
"""Endings that tell a file of published results from a run's folder."""


def read(path: Path) -> Published:
    """The content of the file; `sweeps/published/...` is found from every folder. Raises UserError, which names the
    line.
    """
    shipped = DATA / path
    there = shipped if shipped.is_file() and not path.exists() else path
    return YamlFile(there, "published results").read(
        Published, "a title, a link, a sweep and conclusions, as in sweeps/published/neurosurgeon.yaml"
    )


def compare(console: Console, run: Path, path: Path, out: Path) -> None:
    """Print a run beside published results, and write the tables to `out`/compare-<run>-<name>. Raises UserError."""
    published = read(path)
    found = beside([run], published)
    name = f"{run} (simulated: nothing was measured)" if manifest(run).get(SIMULATED) else str(run)
    console.print(published_table(published, found, name, COMMAND))
    folder = out / f"compare-{run.resolve().name}-{path.stem}"
    try:
        files(console, write(found, folder))
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror} (choose another --out)") from None
