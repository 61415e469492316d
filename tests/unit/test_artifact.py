"""An artefact of a paper: what is in it, that it makes the same report elsewhere, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pareto import __version__
from pareto.analysis.figures.look import Look
from pareto.analysis.findings import Options
from pareto.analysis.reporting import report
from pareto.commands.app import commands
from pareto.commands.artifact import requirements
from pareto.sweep.checked_sweep import read_file
from pareto.sweep.sweep import parse_sweep
from tests import REPOSITORY
from tests.program import refused, well
from tests.unit.example_run import trials, write

EXAMPLE = REPOSITORY / "results" / "example"
CLAIMS = EXAMPLE / "claims.yaml"
TCP = {"says": "tcp is faster", "where": "point == 4", "better": "backend == tcp", "than": "backend == rpc"}
SESSION = {"started_at": "2026-01-01T00:00:00+00:00", "ended_at": "2026-01-01T00:02:05+00:00"}


def claims(folder: Path, *conclusions: dict[str, Any], **more: Any) -> str:
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump({"title": "A paper", "conclusions": list(conclusions), **more}))
    return str(path)


def run(folder: Path, **manifest: Any) -> Path:
    sweep = {"models": ["mobilenetv2"], "netems": ["200ms-5mbit"], "trials": 6, "until": 0.05, "sample": None}
    rows = trials(rounds=6, noise=0.01, run=folder.name)
    return write(folder, rows, **{"sweep": sweep, "sessions": [SESSION]} | manifest)


def made(tmp_path: Path, *runs: Path, said: tuple[dict[str, Any], ...] = (TCP,)) -> Path:
    well("artifact", *map(str, runs), "--claims", claims(tmp_path, *said), "--out", str(tmp_path / "paper"))
    return tmp_path / "paper"


def commands_of(artefact: Path) -> list[list[str]]:
    """The lines of its page that begin with the program, by words."""
    lines = re.findall(
        r"^    (?:pareto/pareto\.sh|pareto) (.*)$", (artefact / "README.md").read_text(), re.MULTILINE
    )
    return [shlex.split(line, comments=True) for line in lines]


def pages(run: Path, out: Path, figures: str) -> dict[str, str]:
    """The files of a run's report, by name, without the run's place, which the page's command has."""
    report(run, out, Options(figures=figures, look=Look.checked("svg", "auto", "", None, "")))
    return {
        str(path.relative_to(out)): re.sub(r"report \S+/example", "", path.read_text())
        for path in out.rglob("*.*")
    }


@pytest.mark.parametrize("figures", ["none", pytest.param("auto", marks=pytest.mark.deep)])
def test_the_example_unpacked_elsewhere_is_whole_and_makes_the_same_report(
    tmp_path: Path, figures: str
) -> None:
    well("artifact", str(EXAMPLE), "--claims", str(CLAIMS), "--out", str(tmp_path / "paper.zip"))
    shutil.unpack_archive(tmp_path / "paper.zip", tmp_path / "elsewhere")
    (artefact,) = (tmp_path / "elsewhere").iterdir()
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=artefact, check=True)
    summed = {line.split("  ")[1] for line in (artefact / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(artefact)) for path in artefact.rglob("*") if path.is_file()}
    assert there - summed == {"SHA256SUMS"}
    (words,) = (words for words in commands_of(artefact) if words[0] == "report")
    before, after = (
        pages(EXAMPLE, tmp_path / "one", figures),
        pages(artefact / words[1], tmp_path / "two", figures),
    )
    wanted = {"front.csv", "paired.csv", "report.html", "report.md"}
    assert before.keys() >= wanted
    assert any(name.endswith(".svg") for name in before) == (figures == "auto")
    assert before == after


def test_its_commands_parse_and_its_sweeps_are_those_of_the_runs(tmp_path: Path) -> None:
    recorded = json.loads((EXAMPLE / "manifest.json").read_text())["sweep"]
    artefact = made(tmp_path, run(tmp_path / "one"), EXAMPLE, said=({**TCP, "run": "one"},))
    for words in commands_of(artefact):
        if words != ["--version"]:
            words = ["run", *words] if words[0].startswith("-") else words
            commands().commands[words[0]].make_context(words[0], words[1:])
    assert parse_sweep(read_file(artefact / "sweeps/example.yaml")) == parse_sweep(recorded)
    asked = parse_sweep(read_file(artefact / "sweeps/one.yaml"))
    assert (asked.trials, asked.until, asked.sample) == (6, 0.05, None)
    page = (artefact / "README.md").read_text()
    assert "2 min 05 s" in page
    assert "tcp is faster | `pareto/pareto.sh compare runs/one claims.yaml` | **holds**" in page
    assert "compare runs/example" not in page, "it is claimed of the other run"


def test_a_run_is_copied_without_what_is_not_its_own(tmp_path: Path) -> None:
    folder = run(tmp_path / "one")
    kept = ("stages.csv", "requests/a.parquet", "profiles/net/profile.json")
    for name in (*kept, "notes.txt", "report.html", ".made", "requests/a.parquet.new", "figures/front.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    shutil.copy(EXAMPLE / "stages.csv", folder)
    copy = made(tmp_path, folder) / "runs" / "one"
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert names == {"manifest.json", "trials.csv", *kept}


@pytest.mark.parametrize(
    "name", ["stages.csv", "requests", "requests/one.parquet", "profiles/net/profile.csv"]
)
def test_no_link_is_followed_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").mkdir()
    link = run(tmp_path / "one") / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "secret")
    said, out = claims(tmp_path, TCP), tmp_path / "out"
    one = str(tmp_path / "one")
    assert "a link" in refused("artifact", one, "--claims", said, "--out", str(out / "paper"))
    assert [*out.glob("*"), *out.glob(".*")] == []


def test_a_sweep_that_this_version_cannot_say_and_files_that_are_elsewhere_are_named(tmp_path: Path) -> None:
    own = tmp_path / "net.py"
    sweep = {"models": [f"{own}:build"], "testbed": "lab.yaml"}
    newer = run(tmp_path / "newer", sweep={"models": ["alexnet"], "warp": "9"}, sessions=[])
    artefact = made(tmp_path, newer, run(tmp_path / "own", sweep=sweep))
    page = (artefact / "README.md").read_text()
    assert "The sweep of newer cannot be written for this version:" in page
    assert "warp" in page
    assert "| not recorded | not recorded | not recorded |\n" in page
    assert "warp" in (artefact / "sweeps/newer.yaml").read_text()
    assert "`--testbed` (lab.yaml there)" in page
    assert "--model mobilenetv2 --netem wifi --testbed simulated" in page, "what needs nothing else"
    assert "run sweeps/newer.yaml" not in page


def test_a_simulated_run_is_said_to_be_no_measurement(tmp_path: Path) -> None:
    """Beside a measured one, which no report joins with it."""
    runs = run(tmp_path / "one", simulated=True), EXAMPLE
    said = ("--claims", claims(tmp_path, TCP), "--out", str(tmp_path / "paper"))
    done = well("artifact", *map(str, runs), *said)
    assert " ".join(done.out.split()).count("(simulated: nothing was measured)") == 1
    page = (tmp_path / "paper" / "README.md").read_text()
    assert "**The run one is simulated: nothing of it was measured.**" in page


def test_a_strangers_manifest_puts_nothing_into_a_command_or_the_page(tmp_path: Path) -> None:
    evil = "2.0 --index-url https://example.org"
    session = {
        "driver": {"packages": {"torch": evil, "x\ny": "1", "numpy": "2.4+cpu", "list": [1]}},
        **SESSION,
    }
    testbed = "local |\n# Take <b>this</b>"
    artefact = made(tmp_path, run(tmp_path / "one", sessions=[session], testbed=testbed))
    lines = (artefact / "requirements.txt").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.!]+(  # .*)?", line) for line in lines)
    assert "numpy==2.4  # " in "\n".join(lines)
    assert "example.org" not in "\n".join(lines)
    page = (artefact / "README.md").read_text()
    assert "\n# Take" not in page
    assert "<b>" not in page


def test_the_last_run_decides_a_version() -> None:
    runs = [{"sessions": [{"driver": {"packages": {"Some_Thing": version}}}]} for version in ("1.0", "2.0")]
    assert "\nsome-thing==2.0  # 1.0, 2.0\n" in requirements(runs)


def test_the_metadata_names_every_file_and_nothing_else(tmp_path: Path) -> None:
    """RO-Crate 1.1: its descriptor, the root with name, description and date, and each file within its parts."""
    artefact = made(tmp_path, run(tmp_path / "one"), EXAMPLE)
    crate = json.loads((artefact / "ro-crate-metadata.json").read_text())
    assert crate["@context"] == "https://w3id.org/ro/crate/1.1/context"
    things = {each["@id"]: each for each in crate["@graph"]}
    assert len(things) == len(crate["@graph"])
    descriptor, root = things["ro-crate-metadata.json"], things["./"]
    assert descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert root["name"] == "A paper"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", root["datePublished"])
    waiting, parts = [*root["hasPart"]], set()
    while waiting:
        part = things[waiting.pop()["@id"]]
        parts.add(part["@id"])
        waiting += part.get("hasPart", [])
        assert (artefact / part["@id"]).is_dir() == (part["@type"] == "Dataset")
    files = {str(path.relative_to(artefact)) for path in artefact.rglob("*") if path.is_file()}
    assert {part for part in parts if part[-1] != "/"} == files - {"SHA256SUMS", "ro-crate-metadata.json"}
    referred = re.findall(r'{"@id": "([^"]*)"}', (artefact / "ro-crate-metadata.json").read_text())
    assert {each for each in referred if not each.startswith("https:")} <= {*things}


def test_its_source_is_that_of_the_commit_and_cited_so(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no checkout")
    artefact = made(tmp_path, run(tmp_path / "one"))
    argv = ["git", "-C", str(REPOSITORY), "rev-parse", "HEAD"]
    commit = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    cited = yaml.safe_load((artefact / "CITATION.cff").read_text())
    assert (cited["commit"], cited["version"]) == (commit, __version__)
    assert commit in (artefact / "README.md").read_text()
    shutil.unpack_archive(artefact / "pareto.tar.gz", tmp_path / "source")
    assert (tmp_path / "source/pareto/pareto.sh").stat().st_mode & 0o100
    recipe = (artefact / "Dockerfile").read_text()
    assert "COPY . ." not in recipe
    for source in re.findall(r"^(?:ADD|COPY) (\S+) ", recipe, re.MULTILINE):
        assert (artefact / source).exists()


def test_without_git_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    artefact = made(tmp_path, run(tmp_path / "one"))
    names = {path.name for path in artefact.iterdir()}
    assert not {"pareto.tar.gz", "Dockerfile"} & names
    assert "CITATION.cff" in names
    page = (artefact / "README.md").read_text()
    assert f"install pareto {__version__}" in page
    assert "pareto.sh" not in page


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({**TCP, "wrong": "1"}, "wrong"),
        ({**TCP, "run": "another"}, "another"),
        ({**TCP, "than": "backend == pigeon"}, "tcp is faster"),
        ({**TCP, "better": "__import__('os')"}, "__import__"),
        ({**TCP, "within": "5"}, "within"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_one_line_and_nothing_is_written(
    tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    folder, out = run(tmp_path / "one"), tmp_path / "paper"
    line = refused("artifact", str(folder), "--claims", claims(tmp_path, said), "--out", str(out))
    assert words in line
    assert "c.yaml" in line
    assert not out.exists()


def test_claims_without_a_verdict_names_that_are_shared_and_a_folder_that_is_there_are_refused(
    tmp_path: Path,
) -> None:
    one, other = run(tmp_path / "one"), run(tmp_path / "other" / "one")
    figure = {"says": "f", "where": "point == 4", "column": "latency_s", "value": 1}
    out = ("--out", str(tmp_path / "paper"))
    none = claims(tmp_path, figures=[figure])
    assert "claims nothing" in refused("artifact", str(one), "--claims", none, *out)
    said = ("--claims", claims(tmp_path, TCP))
    assert "names of their own" in refused("artifact", str(one), str(other), *said, *out)
    (tmp_path / "paper").mkdir()
    assert "is there" in refused("artifact", str(one), *said, *out)
    (tmp_path / "file").touch()
    assert "cannot write" in refused("artifact", str(one), *said, "--out", str(tmp_path / "file" / "paper"))
    assert "Missing option" in refused("artifact", str(one)) or "--claims" in refused("artifact", str(one))
    assert "nowhere.yaml" in refused("artifact", str(one), "--claims", "nowhere.yaml", *out)
