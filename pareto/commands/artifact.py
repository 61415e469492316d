"""An artefact of a paper: a folder or zip with runs, what makes them again, and what the paper claims of them.

A run is copied by its known files, none of them through a link. A sweep and a version that a manifest names are
checked, as its maker may be anybody, before they stand in a file that somebody runs.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from rich.console import Console

from pareto import COMMAND, DATA, PROFILES, __version__
from pareto.analysis.comparing.published import ABSENT, beside
from pareto.analysis.methods import methods
from pareto.analysis.runs.load import Joined, joined
from pareto.analysis.runs.manifest import FILE, section, sessions
from pareto.analysis.schema import TABLES
from pareto.analysis.tables.compare import published_table, verdicts
from pareto.basics import files
from pareto.basics.escaping import markdown
from pareto.commands.compare import named, read
from pareto.driver.manifest import elsewhere
from pareto.protocol.errors import UserError, one_line
from pareto.remote.link.units import minutes
from pareto.sweep.checked_sweep import read_file
from pareto.sweep.options import chosen
from pareto.sweep.sweep import parse_sweep
from pareto.trial.store import utc_now

_NAME = re.compile(r"\w[\w.+-]*")
"""Matches a name that needs no quotes in a command, and no escape in SHA256SUMS; also a version."""
_TIMES = "started_at", "ended_at"
_COPIES = "ADD pareto.tar.gz /\nCOPY runs runs\nCOPY sweeps sweeps\nCOPY claims.yaml ./"
_KNOWN = {FILE, PROFILES.name, *(table.file.rstrip("/") for table in TABLES)}


def make(screen: Console, folders: Sequence[Path], claims: Path, out: Path) -> None:
    """Judge the claims, print the verdicts, and make the artefact, whole or not at all. Raises UserError."""
    runs, said, judged = {folder.resolve().name: folder for folder in folders}, read(claims), {}
    if len(runs) < len(folders) or not all(map(_NAME.fullmatch, (*runs, out.name))):
        raise UserError("runs and --out need names of their own, of letters, digits and _ . + -: rename them")
    if others := ", ".join(name for name in said.runs if name not in runs):
        raise UserError(f"{claims} is about {others}: give folders of these names, besides {', '.join(runs)}")
    if files.kind(out):
        raise files.StoreError(f"{out} is there: remove it, or write elsewhere (--out)")
    for name, run in runs.items():
        found = beside([run], said.of(name))
        judged[name] = [*verdicts(found, "")]
        if lacking := [says for says, lines in judged[name] if ABSENT in dict(lines)]:
            why = f"the run {name} has no figure that counts of what it names: unmeasured, not valid or struck off"
            raise UserError(f"{claims}: {lacking[0]!r}: {why}")
        if judged[name]:
            screen.print(published_table(said.of(name), found, named(run), COMMAND))
    if not any(judged.values()):
        raise UserError(f"{claims} claims nothing: write conclusions, or figures with is")
    with files.written_into(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    with files.written_into(out.parent), TemporaryDirectory(dir=out.parent, prefix=".artifact-") as scratch:
        (folder := Path(scratch, out.stem if out.suffix == ".zip" else out.name)).mkdir()
        for name, path in ((name, path) for name, run in runs.items() for path in known_files(run)):
            files.write(folder / "runs" / name / path, files.read(runs[name], *path.parts), under=folder)
        files.write(folder / "claims.yaml", files.text(claims, "claims"))
        source = _fill(folder, {name: joined(run) for name, run in runs.items()}, said.title, judged)
        digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in _names(folder)}
        files.write(folder / "SHA256SUMS", "".join(f"{each}  {name}\n" for name, each in digests.items()))
        if out.suffix == ".zip":
            folder = Path(shutil.make_archive(f"{folder}-packed", "zip", scratch, folder.name))
        folder.rename(out)
    what = (
        f"with the source of commit {source}" if source else "without the source: this is no checkout by git"
    )
    screen.print(f"{out}: {what}; its README.md says what to do with it", soft_wrap=True)


def known_files(run: Path, *below: str) -> Iterator[Path]:
    """Yield the files of a run that are no report's, by their places in its folder. Raises StoreError, OSError."""
    for name, kind in files.listing(run, *below).items():
        if kind == "a folder" and len(below) < 2 and (below or name in _KNOWN):
            yield from known_files(run, *below, name)
        elif name in _KNOWN or (below and re.fullmatch(r"[^\\\n]*\.(parquet|csv|json)", name)):
            yield Path(*below, name)


def _fill(folder: Path, known: Mapping[str, Joined], title: str, judged: Mapping[str, Any]) -> str:
    """Write all that is said of the runs, for readers by templates beside this module; returns what the source is."""
    runs = [_described(folder, *each) for each in known.items()]
    files.write(folder / "requirements.txt", requirements([run["manifest"] for run in runs]))
    facts = {"runs": runs, "title": title, "judged": judged}
    facts |= {"source": (source := _source(folder)), "made": utc_now()[:10], "version": __version__}
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701
    environment.filters["markdown"] = markdown
    for name in ("README.md", "ro-crate-metadata.json"):
        template = Path(__file__).with_name(f"artifact-{name}.txt").read_text(encoding="utf-8")
        files.write(folder / name, environment.from_string(template).render(facts, files=_names(folder)))
    return source


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _described(folder: Path, name: str, known: Joined) -> dict[str, Any]:
    """A run as the templates know it. Its sweep is written, or else why it cannot be."""
    manifest, path = known.runs[0].manifest, folder / "sweeps" / f"{name}.yaml"
    run = {"name": name, "manifest": manifest, "takes": "", "methods": methods(known)}
    with suppress(KeyError, TypeError, ValueError):
        times = [[datetime.fromisoformat(each[at]) for at in _TIMES] for each in sessions(manifest)]
        run["takes"] = minutes(sum((end - begin).total_seconds() for begin, end in times)) if times else ""
    try:
        asked = parse_sweep(section(manifest, "sweep"), f"runs/{name}")
        listed = {of.key: of.written(value) if of.unit else value for of, value in chosen(manifest["sweep"])}
        files.write(path, yaml.safe_dump(listed, sort_keys=False), under=folder)
        if parse_sweep(read_file(path)) != asked:
            raise UserError("a file cannot say what its manifest says")
        return {**run, "fault": "", "outside": elsewhere(asked)}
    except UserError as error:
        fault = one_line(error)
        files.write(path, f"# not for pareto {__version__}: {fault}\n", under=folder)
        return {**run, "fault": fault, "outside": {}}


def requirements(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The packages that runs recorded, in the last one's versions, and all others that are installed here, for pip."""
    recorded = [section(each, "driver", "packages") for manifest in manifests for each in sessions(manifest)]
    every: dict[str, list[str]] = {}
    for packages in ({each.name: each.version for each in distributions()}, *recorded):
        for name, version in packages.items():
            if _NAME.fullmatch(str(name)) and _NAME.fullmatch(str(version)) and name != "pareto-split":
                every.setdefault(re.sub("[-_.]+", "-", name).lower(), []).append(str(version))
    lines = ["# Recorded by the runs, or else installed where this was made."]
    for name, versions in sorted(every.items()):
        pin, others = versions[-1].partition("+")[0], sorted({*versions})
        lines.append(f"{name}=={pin}" + f"  # {', '.join(others)}" * (others != [pin]))
    return "\n".join([*lines, ""])


def _source(folder: Path) -> str:
    """The commit that is written into the folder, in words, with its Dockerfile; empty where this is no checkout. The
    citation has what is known of it."""
    cited, source = (DATA / "CITATION.cff").read_text(encoding="utf-8"), ""
    if _git("rev-parse", "--show-toplevel") == str(DATA):
        source = _git("rev-parse", "HEAD")
        with files.written(packed := (folder / "pareto.tar.gz").absolute()):
            _git("archive", "--prefix=pareto/", f"--output={packed}", "HEAD")
            packed.stat()
        recipe = (DATA / "Dockerfile").read_text(encoding="utf-8")
        files.write(folder / "Dockerfile", recipe.replace("COPY . .", _COPIES))
        cited += f"commit: {source}\n"
        origin = _git("remote", "get-url", "origin")
        if re.fullmatch(r"https://[\w./-]+", origin):  # without a password
            cited += f"repository-code: {origin}\n"
        if _git("tag", "--points-at", "HEAD", "-l", f"v{__version__}"):
            cited += f"date-released: {_git('log', '-1', '--format=%cs')}\n"
        source += ", without changes that its clone has" if _git("status", "--porcelain", "-uno") else ""
    files.write(folder / "CITATION.cff", cited)
    return source


def _git(*words: str) -> str:
    """The answer of git in this program's own clone; empty where there is none."""
    with suppress(OSError, subprocess.CalledProcessError):
        argv = ["git", "-C", str(DATA), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    return ""
