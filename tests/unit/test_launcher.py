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

from pareto.hosts.setup import packages
from pareto.hosts.ssh import addresses
from tests import REPOSITORY
from tests.unit.example_run import trials, write
from tests.unit.simulated.worlds import MODEL

pytestmark = pytest.mark.long
LAUNCHED = (sys.executable, str(REPOSITORY / "pareto" / "launcher.py"))
RUN = f"run --model {MODEL} --netem lte --points 3 --only --trials 1 --figures none"
COMMANDS = {
    "--help": "Usage",
    "report {run} --out out --figures none": "mobilenetv2 at 200ms-5mbit: ",
    "netem list": "lte",
    "doctor --link lte --testbed no.yaml": "no.yaml",
    "partitions squeezenet1_1 --out out": "features",
    f"{RUN} --testbed simulated --out out": "out/net.small-lte-simulated",
    "doctor --testbed no.yaml": "no.yaml",
    "hosts list --testbed no.yaml": "no.yaml",
    "serve --listen 192.0.2.1": "192.0.2.1",
    "fleet join --scheduler tcp://192.0.2.1:1": "tcp://192.0.2.1",
}
"""What each says, among other things."""
DEEP = {
    f"{RUN.replace('--trials 1', '--trials 2')} --testbed simulated,simulated --out out": "simulated-2",
    "advise {example} --latency 10ms --rate 5mbit": "10 ms",
    "compare {example} {example} --out out": "out",
    "partitions squeezenet1_1 --times --testbed simulated --out out": "out/",
    f"{RUN} --dry-run --engine compile": "estimate",
}
ENDS = "== a command has ended =="
SEVERAL = f"""
import sys
from pareto.__main__ import main
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    main()
    print("{ENDS}", flush=True)
"""


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
        argv, cwd=folder, env={**kept, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=250, check=False,
    )  # fmt: skip
    found = sorted(folder.glob("*.hit"))
    for each in found:
        each.unlink()
    return [each.name for each in found], done.stdout


@pytest.mark.parametrize("commands", [COMMANDS, pytest.param(DEEP, marks=pytest.mark.deep)])
def test_commands_import_nothing_from_there(shadows: Path, tmp_path: Path, commands: dict[str, str]) -> None:
    """One after the other in a program. Python 3.10 does not know PYTHONSAFEPATH: it is not set here."""
    harmed, _ = hits(shadows, sys.executable, "-m", "pareto", PYTHONPATH=str(REPOSITORY))
    assert harmed, "otherwise it does harm"
    (tmp_path / "several.py").write_text(SEVERAL)
    run, example = write(tmp_path / "run", trials(rounds=1)[:2]), REPOSITORY / "results" / "example"
    words = [each.format(run=run, example=example) for each in commands]
    found, said = hits(shadows, *LAUNCHED, "several", *words, PYTHONPATH=f"{REPOSITORY}:{tmp_path}")
    assert found == []
    *texts, _ = said.split(ENDS)
    for (command, says), text in zip(commands.items(), texts, strict=True):
        assert says in text, command


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


def test_nor_what_runs_in_a_home(shadows: Path) -> None:
    modules = ("socket", "hmac")
    for script in (packages._FIND_PYTHON, *(addresses._python(f"import {name}") for name in modules)):
        assert hits(shadows, "sh", "-c", script)[0] == []
