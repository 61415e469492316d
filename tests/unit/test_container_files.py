"""The files that a container is made by: what they name is there, and what they ask for is what the testbed needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pareto.hosts.local.rights import CAPABILITIES
from tests import REPOSITORY

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
DEVCONTAINER = json.loads((REPOSITORY / ".devcontainer/devcontainer.json").read_text())


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def test_both_ask_for_the_capabilities_that_the_testbed_needs() -> None:
    assert DEVCONTAINER["capAdd"] == list(CAPABILITIES)
    assert re.findall(r"--cap-add (\w+)", DOCKERFILE) == list(CAPABILITIES)


def test_the_development_container_is_a_stage_of_the_image() -> None:
    folder = REPOSITORY / ".devcontainer"
    assert (folder / DEVCONTAINER["build"]["dockerfile"]).resolve() == REPOSITORY / "Dockerfile"
    assert DEVCONTAINER["build"]["target"] in re.findall(
        r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE
    )


def test_what_they_run_is_there() -> None:
    assert {name for name, _ in instructions()} == {"FROM", "RUN", "WORKDIR", "COPY", "ENTRYPOINT", "CMD"}
    told = dict(instructions())
    commands = [
        json.loads(told["ENTRYPOINT"])[0],
        told["RUN"].split()[1],
        DEVCONTAINER["postCreateCommand"].split()[0],
    ]
    for command in commands:
        assert (REPOSITORY / command).stat().st_mode & 0o100, command


def test_its_python_is_one_that_the_program_runs_on() -> None:
    (version,) = re.findall(r"^FROM python:(\d+\.\d+)-", DOCKERFILE, flags=re.MULTILINE)
    assert tuple(map(int, version.split("."))) >= (3, 10)


def test_the_image_brings_the_testbed_s_programs() -> None:
    """Nothing of the main job is left to be installed when it is started, perhaps without a network."""
    installed = next(rest for name, rest in instructions() if name == "RUN").split()
    assert {"openssh-server", "openssh-client", "util-linux", "mount"} <= set(installed)


LEFT = ("lab.yaml", "lab/member-key.pem", "member-key.pem", "net.pth", "units.json", "members.sh")
"""What commands of the documents put into a clone."""


def test_git_ignores_what_commands_put_into_a_clone(tmp_path: Path) -> None:
    """By the file alone, in a clone of its own; and nothing that is kept is ignored."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    shutil.copy(REPOSITORY / ".gitignore", tmp_path)
    kept = ("mkdocs.yml", "sweeps/paper.yaml", "netem_profiles/lte.yaml", "docs/images/one.png", "README.md")
    argv = ["git", "check-ignore", *LEFT, *kept]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == list(LEFT)


@pytest.mark.parametrize("name", LEFT)
def test_an_image_has_none_of_it(name: str) -> None:
    patterns = (REPOSITORY / ".dockerignore").read_text().split()
    assert any(fnmatch(name, each) or fnmatch(f"/{name}", each.removeprefix("**")) for each in patterns)
