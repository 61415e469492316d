"""Models that defy tracing, as chains of their submodules; models whose answer depends on more than their inputs."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from pareto.partitions import graph, model, proof, registry, tracing
from pareto.partitions.graph import Input, UntraceableModel
from pareto.partitions.purity import UnrepeatableModel
from pareto.partitions.recipe import Cuts, Handmade
from tests.unit.forked import forked
from tests.unit.partitions.builders import Made, load_own, names, recipe_of
from tests.unit.refusals import refusal

pytestmark = pytest.mark.usefixtures("none_adopted")

# A gate lets easy images past the expensive block, and repeats a step until the signal is small: no static graph.
ADAPTIVE = """
from torch import nn
from pareto.partitions.registry import register
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Conv2d(8, 8, 3, padding=1)
    def forward(self, x):
        while x.abs().mean() > 0.25:
            x = x / 2
        if x.mean() > 0:
            return self.block(x).relu()
        return x
class Adaptive(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.gates = nn.Sequential(Gate(), Gate())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    def forward(self, x):
        return self.head(self.gates(self.stem(x)))
@register(input_shape=(3, 16, 16))
def build():
    return Adaptive()
"""
CHAIN = ("stem", "gates.0", "gates.1", "head")


@pytest.fixture
def adaptive(tmp_path):
    file = tmp_path / "adaptive.py"
    file.write_text(ADAPTIVE)
    return file


def test_it_cannot_be_cut_without_a_chain_or_with_one_of_others(adaptive, snapshot):
    by_fx, _, by_export = refusal(UntraceableModel, model.outline, recipe_of(adaptive, Cuts())).partition(
        "; "
    )
    assert "Adaptive" in by_fx  # and why, in the words of torch
    assert by_export == snapshot
    structure = registry.build_structure(recipe_of(adaptive, Cuts()).name)
    shape, chain = (Input((3, 16, 16)),), ("stem", "gate", "head")
    assert refusal(UntraceableModel, tracing.trace, structure, shape, chain) == snapshot


def test_a_chain_is_cut_between_its_submodules_and_computes_what_the_model_computes(adaptive, tmp_path):
    made = load_own(adaptive, tmp_path, Cuts(), Handmade(chain=CHAIN))
    assert made.traced_by == "chain"
    assert names(made.points) == ["input", *CHAIN[:-1], "output"]
    shapes = [spec.shape for point in made.points for spec in point.payload]
    assert shapes == [(1, 3, 16, 16), *[(1, 8, 14, 14)] * 3]
    for sign in (1, -1):  # on either side of the branch
        images = sign * torch.rand(2, 3, 16, 16)
        assert all(it.bitwise and it.parted for it in proof.prove(made, images))


def net_of(work):
    def over_all(net, x):
        return net.last(work(net, net.first(x)).mean((2, 3)))

    parts = {"first": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "last": nn.Linear(4, 2)}
    return Made(over_all, **parts, seen=torch.zeros(())).eval()


def assigns(net, x):
    net.seen = net.seen + 1
    return x


def branches(net, x):
    net.seen.add_(1)
    return torch.cat([*x.split(2, 1)], 1)


def trains(net, x):
    net.norm.train()
    return net.norm(x)


def remembers(net, x):
    net.feature = x
    return x


def attends(net, x):
    rows = x.flatten(2)
    return functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.1).view_as(x)


CHANGES, DRAWS = "changes its own buffer seen when it runs", "draws random numbers in eval mode"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        pytest.param(assigns, CHANGES, id="assigns"),
        pytest.param(lambda net, x: x + net.seen.add_(1), CHANGES, id="in place"),
        pytest.param(branches, CHANGES, id="by torch.export"),
        pytest.param(trains, "puts norm in training mode", id="trains"),
        pytest.param(lambda _, x: functional.dropout(x), DRAWS, id="dropout"),
        pytest.param(lambda _, x: x + torch.randn_like(x), DRAWS, id="noise"),
        pytest.param(attends, DRAWS, id="attention"),
    ],
)
def test_a_model_that_changes_itself_or_draws_is_refused(work, said):
    net = net_of(work)
    with pytest.raises(UnrepeatableModel, match=said):
        tracing.trace(net, (Input((3, 8, 8)),))
    assert not any(module.training for module in net.modules())
    assert isinstance(net.seen, torch.Tensor)


def test_what_it_merely_remembers_is_as_before() -> None:
    net = net_of(remembers)
    assert tracing.trace(net, (Input((3, 8, 8)),)).traced_by == "torch.fx"
    assert not hasattr(net, "feature")
    # A value that decides a branch may be on the meta device.
    with graph.AnyBranch():
        unknown = torch.empty(3, device="meta").sum()
        assert (bool(unknown > 1), float(unknown), int(unknown.long())) == (False, 0.0, 0)
        assert float(torch.tensor(2.5)) == 2.5


@pytest.mark.parametrize(
    "work",
    ["self.calls += 1; x = x * self.calls", "x = x * random.random()", "x, self.last = x + self.last, x"],
    ids=["counts", "Python's own chance", "the request before"],
)
def test_two_runs_that_differ_are_seen_by_the_proof(work, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "import random\nfrom torch import nn\ninput_shape = (3, 8, 8)\n"
        "class Net(nn.Sequential):\n    calls = last = 0\n"
        f"    def forward(self, x):\n        {work}\n        return super().forward(x)\n"
        "def build():\n    return Net(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    made = load_own(f"{file}:build", tmp_path, Cuts("op"))
    with pytest.raises(UnrepeatableModel, match="two runs differ"):
        next(proof.prove(made, torch.rand(1, 3, 8, 8)))


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
ASKED_BY_TORCHVISION = """
from pareto.partitions import compiler
import sys, torch
compiler.put_off()
from torch._dynamo.utils import is_compile_supported
print("torch._dynamo.eval_frame" in sys.modules, hasattr(torch._dynamo, "__file__"))
marked = torch._dynamo.disable(lambda: 3)
print(marked(), "torch._dynamo.eval_frame" in sys.modules)
print(is_compile_supported("cpu"), "torch._dynamo.eval_frame" in sys.modules, marked())
from torch._dynamo.eval_frame import OptimizedModule
print(OptimizedModule.__name__)
compiler.put_off()
print(torch._dynamo.is_compiling())
"""


def test_tracing_does_not_import_torchs_compiler():
    """In a process forked from one that has imported torch and this program."""
    _, said = forked(exec, TRACING)
    with said:
        assert said.makefile().read() == "False\n"


@pytest.mark.deep
@pytest.mark.parametrize(
    ("script", "printed"),
    [
        (TRACING + COMPILING, ["False", "[2.0, 2.0]", "True True True", "True True", "22"]),
        (ASKED_BY_TORCHVISION, ["False False", "3 False", "True True 3", "OptimizedModule", "False"]),
    ],
    ids=["after tracing", "after torchvision asked"],
)
def test_who_compiles_has_torchs_own_compiler(script, printed):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[-400:], done.stdout.splitlines()) == (0, "", printed)
