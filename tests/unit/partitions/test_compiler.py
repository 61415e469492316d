from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.forked import forked

TRACING = """
import sys
from pareto.partitions import model
from pareto.partitions.recipe import Recipe

parts = "torch._dynamo.eval_frame", "torch._dynamo.utils"
model.outline(Recipe("mobilenet_v2"))
print(parts[0] in sys.modules)
"""
COMPILING = """
import torch
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).tolist())
import torch._dynamo.utils
print(parts[0] in sys.modules, torch._dynamo is sys.modules["torch._dynamo"], torch._dynamo.__file__ is not None)
print(torch._dynamo.utils.is_compile_supported("cpu"), torch._dynamo.utils is sys.modules[parts[1]])
outline = model.outline(Recipe("mobilenet_v2"))
print(len(outline.points))
"""


def printed(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[-400:]) == (0, "")
    return done.stdout.splitlines()


def test_tracing_does_not_import_torchs_compiler() -> None:
    """In a process forked from one that has imported torch and this program."""
    _, said = forked(exec, TRACING)
    with said:
        assert said.makefile().read() == "False\n"


@pytest.mark.deep
def test_who_compiles_after_tracing_has_it() -> None:
    assert printed(TRACING + COMPILING) == ["False", "[2.0, 2.0]", "True True True", "True True", "22"]


@pytest.mark.deep
def test_what_is_taken_from_it_after_torchvision_asked_is_its_own() -> None:
    script = """
import pareto.partitions.compiler, sys, torch
partitions.compiler.put_off()
from torch._dynamo.utils import is_compile_supported
print("torch._dynamo.eval_frame" in sys.modules, hasattr(torch._dynamo, "__file__"))
marked = torch._dynamo.disable(lambda: 3)
print(marked(), "torch._dynamo.eval_frame" in sys.modules)
print(is_compile_supported("cpu"), "torch._dynamo.eval_frame" in sys.modules, marked())
from torch._dynamo.eval_frame import OptimizedModule
print(OptimizedModule.__name__)
partitions.compiler.put_off()
print(torch._dynamo.is_compiling())
"""
    assert printed(script) == ["False False", "3 False", "True True 3", "OptimizedModule", "False"]
