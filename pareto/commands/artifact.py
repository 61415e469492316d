"""An artefact of a paper: a folder or zip with runs, what makes them again, and what the paper claims of them.

A run is copied by its known files, none of them through a link. What a manifest says is checked before it stands in a
file that somebody runs: a sweep as options are, a version as a version.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from packaging.utils import canonicalize_name
from packaging.version import Version
from rich.console import Console

from pareto import CLONE, COMMAND, DATA, PROFILES, __version__
from pareto.analysis.comparing.published import ABSENT, beside
from pareto.analysis.methods import methods
from pareto.analysis.model_profile import FACTS
from pareto.analysis.naming import SIMULATED
from pareto.analysis.runs.load import Run, joined
from pareto.analysis.runs.manifest import FILE as MANIFEST
from pareto.analysis.runs.manifest import section, sessions
from pareto.analysis.schema import PROFILE_TABLES, TABLES
from pareto.analysis.tables.compare import published_table, verdicts
from pareto.basics import files
from pareto.basics.escaping import markdown, say
from pareto.commands.compare import read
from pareto.driver.manifest import elsewhere
from pareto.protocol.errors import UserError
from pareto.remote.link.units import minutes
from pareto.sweep.checked_sweep import read_file, requested_sweep
from pareto.sweep.options import chosen
from pareto.sweep.sweep import parse_sweep
from pareto.trial.store import utc_now

SOURCE = "pareto.tar.gz"
_NAME = re.compile(r"\w[\w.+=,-]*")
"""Matches a name that needs no quotes in a command, and no escape in SHA256SUMS."""


def make(screen: Console, folders: Sequence[Path], claims: Path, out: Path) -> None:
    """Judge the claims, print the verdicts, and make the artefact, whole or not at all. Raises UserError."""
    runs, said = {folder.resolve().name: folder for folder in folders}, read(claims)
    if len(runs) < len(folders) or not all(map(_NAME.fullmatch, (*runs, claims.name))):
        raise UserError(
            "runs and claims need names of their own, of letters, digits and _ . + -: rename them"
        )
    if others := ", ".join(name for name in said.runs if name not in runs):
        raise UserError(f"{claims} is about {others}: give folders of these names, besides {', '.join(runs)}")
    if files.kind(out):
        raise files.StoreError(f"{out} is there: remove it, or write elsewhere (--out)")
    judged = {}
    for name, run in runs.items():
        found = beside([run], said.of(name))
        judged[name] = [*verdicts(found, "")]
        for says, lines in judged[name]:
            if ABSENT in dict(lines):
                raise UserError(f"{claims}: {says!r}: the run {name} has measured nothing of it")
        screen.print(published_table(said.of(name), found, str(run), COMMAND))
    if not any(judged.values()):
        raise UserError(f"{claims} claims nothing: write conclusions, or figures with is")
    both = joined(folders)
    out.parent.mkdir(parents=True, exist_ok=True)
    with files.written_into(out.parent), TemporaryDirectory(dir=out.parent, prefix=".artifact-") as scratch:
        (folder := Path(scratch, out.stem if out.suffix == ".zip" else out.name)).mkdir()
        for name, run in runs.items():
            for path in known_files(run):
                files.write(folder / "runs" / name / path, files.read(run, *path.parts), under=folder)
        each = [_described(folder, *one) for one in zip(judged.items(), both.runs, strict=True)]
        files.write(folder / claims.name, files.text(claims, "claims"))
        files.write(folder / "requirements.txt", requirements([run.manifest for run in both.runs]))
        facts = {"runs": each, "claims": claims.name, "methods": methods(both), "title": said.title}
        facts |= {"source": _source(folder, claims.name), "made": utc_now()[:10], "version": __version__}
        environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)  # noqa: S701
        environment.filters["markdown"] = markdown
        for name in ("README.md", "ro-crate-metadata.json"):
            template = Path(__file__).with_name(f"artifact-{name}.txt").read_text(encoding="utf-8")
            text = environment.from_string(template).render(facts, files=_files(folder))
            files.write(folder / name, f"{text}\n")
        digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in _files(folder)}
        files.write(folder / "SHA256SUMS", "".join(f"{each}  {name}\n" for name, each in digests.items()))
        if out.suffix == ".zip":
            folder = Path(shutil.make_archive(f"{folder}-packed", "zip", scratch, folder.name))
        folder.rename(out)
    screen.print(f"{out}: README.md says what to do with it", soft_wrap=True)


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def known_files(run: Path) -> Iterator[Path]:
    """Yield the files of a run that are no report's, by their places in its folder. Raises StoreError, OSError."""
    for name in (MANIFEST, *(table.file for table in TABLES if table not in PROFILE_TABLES)):
        if not name.endswith("/"):
            yield from [Path(name)] * bool(files.kind(run / name))
            continue
        for each in files.listing(run, name[:-1]):
            if each.endswith(".parquet") and each.isprintable() and "\\" not in each:
                yield Path(name, each)
    for name in filter(_NAME.fullmatch, files.listing(run, PROFILES.name)):
        for each in (FACTS, *(table.file for table in PROFILE_TABLES)):
            yield from [Path(PROFILES.name, name, each)] * bool(files.kind(run / PROFILES.name / name / each))


def requirements(manifests: Iterable[Mapping[str, Any]]) -> str:
    """The packages that runs recorded, in the last one's versions, and all others that are installed here, for pip."""
    recorded: dict[str, list[str]] = {}
    for session in (each for manifest in manifests for each in sessions(manifest)):
        for name, version in section(session, "driver", "packages").items():
            with suppress(ValueError, TypeError):  # anybody may have written it
                recorded.setdefault(canonicalize_name(name, validate=True), []).append(str(Version(version)))
    here: dict[str, str] = {canonicalize_name(each.name): each.version for each in distributions()}
    lines = ["# Recorded by the runs, or else installed where this artefact was made."]
    for name in sorted({*recorded, *here} - {"pareto-split"}):
        every = [*dict.fromkeys([*recorded.get(name, []), *filter(None, [here.get(name)])])]
        pinned = recorded.get(name, every)[-1]
        note = f"  # {', '.join(every)}" if len(every) > 1 or "+" in pinned else ""
        lines.append(f"{name}=={Version(pinned).public}{note}")
    return "\n".join(lines) + "\n"


def _git(*words: str) -> str:
    """The answer of git in this program's own clone; empty where there is none."""
    argv = ["git", "-C", str(DATA), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if not done.returncode else ""


def _source(folder: Path, claims: str) -> str:
    """The commit whose files were written into the folder, with its Dockerfile; empty where this is no checkout. The
    citation has what is known of it."""
    cited = (DATA / "CITATION.cff").read_text(encoding="utf-8")
    commit = ""
    if CLONE and shutil.which("git") and _git("rev-parse", "--show-toplevel") == str(DATA):
        commit = _git("rev-parse", "HEAD")
        _git(
            "archive",
            "--prefix=pareto/",
            "--format=tar.gz",
            f"--output={(folder / SOURCE).absolute()}",
            "HEAD",
        )
        recipe = (DATA / "Dockerfile").read_text(encoding="utf-8")
        added = f"ADD {SOURCE} /\nCOPY runs runs\nCOPY sweeps sweeps\nCOPY {claims} ./"
        files.write(folder / "Dockerfile", recipe.replace("COPY . .", added))
        cited += f"commit: {commit}\n"
        if re.fullmatch(
            r"https://[\w./-]+", origin := _git("remote", "get-url", "origin")
        ):  # without a password
            cited += f"repository-code: {origin}\n"
        if _git("tag", "--points-at", "HEAD", "--list", f"v{__version__}"):
            cited += f"date-released: {_git('log', '-1', '--format=%cs')}\n"
        if _git("status", "--porcelain", "--untracked-files=no"):
            say(
                f"attention: this clone has changes that commit {commit[:12]}, which is in the artefact, lacks"
            )
    files.write(folder / "CITATION.cff", cited)
    return commit


def _described(folder: Path, judged: tuple[str, Any], run: Run) -> dict[str, Any]:
    """A run as the templates know it. Its sweep is written, or else why it cannot be."""
    name, path = judged[0], folder / "sweeps" / f"{judged[0]}.yaml"
    known = {
        "name": name,
        "verdicts": judged[1],
        "manifest": run.manifest,
        "sessions": sessions(run.manifest),
    }
    known |= {"takes": "not recorded", "times": {}, "fault": "", "tyres": False, "outside": {}}
    with suppress(KeyError, TypeError, ValueError, IndexError):
        spans = [(each["started_at"], each["ended_at"]) for each in known["sessions"]]
        spent = (datetime.fromisoformat(end) - datetime.fromisoformat(begin) for begin, end in spans)
        known["takes"] = minutes(sum(each.total_seconds() for each in spent))
        known["times"] = {"startTime": spans[0][0], "endTime": spans[-1][1]}
    try:
        asked = parse_sweep(section(run.manifest, "sweep"), f"runs/{name}")
        listed = [
            (each.key, each.written(value) if each.unit else value)
            for each, value in chosen(run.manifest["sweep"])
        ]
        files.write(path, yaml.safe_dump(dict(listed), sort_keys=False), under=folder)
        if parse_sweep(read_file(path)) != asked:
            raise UserError("a file cannot say what its manifest says")
        known["outside"] = elsewhere(asked)
        with suppress(UserError):
            known["tyres"] = bool(requested_sweep(path, {"testbed": SIMULATED, "quick": True}))
    except UserError as error:
        known["fault"] = " ".join(str(error).split())
        files.write(path, f"# not for pareto {__version__}: {known['fault']}\n", under=folder)
    return known
