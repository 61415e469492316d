"""The wheel, installed where there is nothing but what it declares to need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from pareto.__main__ import SWEEP
from tests import REPOSITORY

RUN = REPOSITORY / "results" / "example"


def built(source: Path, folder: Path) -> Path:
    """The wheel that is made of a source tree, in a new folder."""
    argv = ["-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run([sys.executable, *argv], check=True, capture_output=True, timeout=120)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(REPOSITORY, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, and with links to all packages of this environment but the extra's."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(folder)
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        absent = {*SWEEP, "torchgen", "pareto"}
        if entry.name.partition(".")[0] not in absent and not entry.name.endswith(".pth"):
            (folder / entry.name).symlink_to(entry)
    return folder


def pareto(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed command, started as its script starts it, by an interpreter without other packages."""
    code = "import sys; from pareto.__main__ import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "80"}
    argv = [sys.executable, "-S", "-c", code, *arguments]
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.deep
def test_analysis_needs_no_extra(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(RUN, tmp_path / "run", ignore=shutil.ignore_patterns("figures", "devices", "requests"))
    commands = {
        "--version": "pareto 0.",
        "netem list": "200ms-5mbit",
        "report run --figures none": "mobilenet_v2 at 200ms-5mbit: keep everything on the edge",
        "advise run --latency 20ms --rate 30mbit": "mobilenet_v2 at 20 ms and 30 Mbit/s",
        "compare run run": "mobilenet_v2",
        "--help": "Usage: pareto",
    }
    for command, expected in commands.items():
        done = pareto(installed, tmp_path, *command.split())
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout, command
    assert (tmp_path / "run" / "report.html").is_file()


NEED_IT = ["--model mobilenetv2 --netem lte"]


@pytest.mark.parametrize(
    "commands", [NEED_IT, pytest.param(["partitions mobilenetv2", "doctor"], marks=pytest.mark.deep)]
)
def test_a_missing_extra_is_named(installed: Path, tmp_path: Path, commands: list[str]) -> None:
    assert "Usage: pareto" in pareto(installed, tmp_path, "--help").stdout
    for command in commands:
        done = pareto(installed, tmp_path, *command.split())
        assert done.returncode == 2, command
        (line,) = done.stderr.splitlines()
        assert "pip install '.[sweep]'" in line, command


def test_the_wheel_has_what_a_clone_has_and_one_name(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    patterns = [
        "netem_profiles/**/*",
        "sweeps/*",
        *(f"{top}/**/*" for top in ("pareto", "partitions", "analysis")),
    ]
    files = [path for pattern in patterns for path in REPOSITORY.glob(pattern)]
    files = [path.relative_to(REPOSITORY) for path in files if path.is_file() and path.suffix != ".pyc"]
    data, code = Path("pareto", "data"), Path("pareto")
    moved = {
        str(
            (data if path.parts[0] in ("netem_profiles", "sweeps") else code)
            / str(path).removeprefix("pareto/")
        )
        for path in files
    }
    assert moved - names == set()
    assert {f"pareto/data/requirements-{kind}.txt" for kind in ("worker", "onnx")} <= names
    assert "pareto/data/results/README.md" in names, "what the columns mean"
    assert "pareto/data/CITATION.cff" in names, "for artefacts"
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pareto"}


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    argv = ["-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path / "sdist"]
    subprocess.run([sys.executable, *argv], cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (archive,) = (tmp_path / "sdist").iterdir()
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    again = built(source, tmp_path / "wheel")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()
