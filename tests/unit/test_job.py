"""Which names can be a model's, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pareto.partitions import registry, yolo
from pareto.run.job import may_be_model


@pytest.mark.parametrize("name", sorted({*registry.names(), *yolo.NAMES}))
def test_each_model_may_be_one(name: str) -> None:
    assert may_be_model(name)
    assert may_be_model(name.upper().replace("_", "-"))


@pytest.mark.parametrize("name", ["resnet19", "mobilenet", "", "res net 18 x", "no/such/file.py:build"])
def test_what_no_model_is_called(name: str) -> None:
    assert not may_be_model(name)


def test_a_file_of_ones_own_is_there(tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    assert may_be_model(f"{tmp_path}/net.py")
    assert may_be_model(f"{tmp_path}/net.py:build")
    assert not may_be_model(f"{tmp_path}/other.py:build")


def test_it_does_not_import_torch() -> None:
    code = (
        "import sys; from pareto.run.job import may_be_model; assert may_be_model('alexnet');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
