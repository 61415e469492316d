"""A folder with a module of each name that the program imports: whatever runs there imports none of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from pareto.hosts import addresses, packages
from tests import REPOSITORY

pytestmark = pytest.mark.long
PARETO = (sys.executable, str(REPOSITORY / "pareto" / "launcher.py"), "pareto")
RUN = "run --model squeezenet1_1 --netem lte --points 3 --only --trials 1 --figures none"


@pytest.fixture(scope="module")
def shadows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shadows")
    names = {*sys.stdlib_module_names, *metadata.packages_distributions(), "pareto", "partitions", "analysis"}
    for name in names | {"sitecustomize", "usercustomize"}:
        (folder / f"{name}.py").write_text("open(__file__ + '.hit', 'w')\nraise SystemExit(__file__)\n")
    (folder / "matplotlibrc").write_bytes(b"text.usetex: true\n\xff")
    return folder


def hits(folder: Path, *argv: str, **environment: str) -> tuple[list[str], str]:
    """Which of the modules were imported by a program that runs there, and all that it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    found = sorted(folder.glob("*.hit"))
    for each in found:
        each.unlink()
    return [each.name for each in found], done.stdout + done.stderr


def test_the_folder_does_harm(shadows: Path) -> None:
    found, _ = hits(shadows, sys.executable, "-m", "pareto", PYTHONPATH=str(REPOSITORY))
    assert found


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("--help", "Usage"),
        ("report {example} --out out --figures none", "keep everything"),
        ("netem list", "lte"),
        ("netem check lte --testbed no.yaml", "no.yaml"),
        ("partitions squeezenet1_1 --out out", "features"),
        (f"{RUN} --testbed simulated --out out", "out/squeezenet1_1-lte-simulated"),
        pytest.param(
            f"{RUN.replace('--trials 1', '--trials 2')} --testbed simulated,simulated --out out",
            "simulated-2",
            marks=pytest.mark.deep,
        ),
        ("doctor --testbed no.yaml", "no.yaml"),
        ("hosts list --testbed no.yaml", "no.yaml"),
        ("serve --listen 192.0.2.1 --token-file out/token", "192.0.2.1"),
        ("fleet certificates out/keys", "out/keys"),
        pytest.param("advise {example} --latency 10ms --rate 5mbit", "10 ms", marks=pytest.mark.deep),
        pytest.param("compare {example} {example} --out out", "out", marks=pytest.mark.deep),
        pytest.param("profile squeezenet1_1 --testbed simulated --out out", "out/", marks=pytest.mark.deep),
        pytest.param(f"{RUN} --dry-run --engine compile", "estimate", marks=pytest.mark.deep),
    ],
)
def test_no_command_imports_from_the_current_folder(shadows: Path, command: str, says: str) -> None:
    """Python 3.10 does not know PYTHONSAFEPATH: it is not set here."""
    words = command.format(example=REPOSITORY / "results" / "example").split()
    found, said = hits(shadows, *PARETO, *words, PYTHONPATH=str(REPOSITORY))
    assert found == []
    assert says in said


def test_nor_does_the_entry_of_a_clone(shadows: Path, tmp_path: Path) -> None:
    """Also where PYTHONPATH has empty and relative parts, which are that folder."""
    for name in ("pareto", "partitions", "analysis", "netem_profiles", "sweeps"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    texts = []
    for file in (*sorted(REPOSITORY.glob("requirements-[dowy]*.txt")), REPOSITORY / "requirements.txt"):
        shutil.copy(file, tmp_path)
        texts.append(file.read_bytes())
    shutil.copy(REPOSITORY / "pareto.sh", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    digest = hashlib.sha256(b"".join(texts)).hexdigest()
    (tmp_path / ".venv" / ".requirements").write_text(f"{digest}  -\n")
    for path in ("", ":", ".::relative:/nowhere"):
        found, said = hits(shadows, str(tmp_path / "pareto.sh"), "netem", "list", PYTHONPATH=path)
        assert found == []
        assert "lte" in said


@pytest.mark.parametrize(
    "script", [packages._FIND_PYTHON, addresses._python("import socket"), addresses._python("import hmac")]
)
def test_nor_what_runs_in_a_home(shadows: Path, script: str) -> None:
    assert hits(shadows, "sh", "-c", script)[0] == []
