"""A host on this machine that is set up in a moment: its environment is copied, with a stand-in for pip in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from pareto.hosts.setup import packages
from tests.unit.example_host import ExampleHost, example_host

STAND_IN = Path(__file__).with_name("stand_in_pip.py")


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the stand-in for pip, and nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages_of,) = folder.glob("lib/python*/site-packages")
    pip = packages_of / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    shutil.copy(STAND_IN, pip / "__main__.py")
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, venv: Path) -> ExampleHost:
    monkeypatch.setattr(packages, "_QUIET_S", inf)
    return hastened(example_host(tmp_path, monkeypatch, venv))


def hastened(host: ExampleHost) -> ExampleHost:
    """What is watched for a second at a time is watched for a moment."""
    host.program("sleep", f"exec {shutil.which('sleep')} 0.02")
    return host
