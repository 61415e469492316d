"""Graphs by torch.fx, by torch.export, or of a chain of submodules; answers that depend on more than inputs."""

import functools
import logging
import logging.handlers
import re
import subprocess
import sys

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

from pareto.partitions import graph, model, proof, registry, tracing
from pareto.partitions.exported import export
from pareto.partitions.graph import Input, UntraceableModel, tensors_in
from pareto.partitions.purity import UnrepeatableModel
from pareto.partitions.recipe import Cuts, Handmade
from pareto.partitions.torchvision_models import models
from tests.unit.forked import forked
from tests.unit.gating import gating
from tests.unit.partitions.builders import Made, load_own, named, names, recipe_of
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
    assert made.traced.traced_by == "chain"
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


SHAPE = (3, 32, 32)


def halves_parts():
    block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    return {"stem": nn.Conv2d(3, 8, 3, padding=1), "block": block, "head": nn.Linear(8, 5)}


def halved(net, x):
    """In-place work on a part of a list that torch.fx cannot know the length of; the same block runs twice."""
    halves = list(net.stem(x).chunk(2, 1))
    halves[1] = net.block(net.block(halves[1]))
    whole = torch.cat(halves, 1)
    whole[:, :2] += 1
    torch.sigmoid_(whole)
    return {"logits": net.head(whole.mean((2, 3))), "maps": [whole, None]}


Halves = named("Halves", halved, halves_parts)


class Constants(nn.Module):
    """Tensors that no state dict has: an attribute, a literal, a grid, and sizes that depend on the batch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.gain = torch.tensor([0.5, 1.0, 2.0, 4.0]).view(4, 1, 1)
        self.register_buffer("offset", torch.arange(4.0).view(4, 1, 1), persistent=False)

    def forward(self, x):
        rows, columns = torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")
        x = self.conv(x) * self.gain + self.offset + torch.tensor([3.0])
        x = x + (rows - columns).type_as(x) + x.new_ones(4, 1, 1)
        return x + torch.zeros(x.shape[0], 4, 1, 1, device=x.device)


def counts(net, x):
    net.seen += 1
    return net.conv(x) * net.seen


def chooses(net, x):
    return torch.cond(x.sum() > 0, lambda y: net.conv(y), lambda y: net.conv(y) * 2, (x,))


def parts():
    return {"conv": nn.Conv2d(3, 4, 1), "seen": torch.zeros(())}


REFUSED = [
    named("Branching", lambda _, x: x if x.mean() > 0 else -x),
    named("PerImage", lambda _, x: torch.stack([image - image.mean() for image in x])),
    named("Counting", counts, parts),
    named("Choosing", chooses, parts),
    named("Numpy", lambda _, x: torch.from_numpy(x.numpy() + 1)),
]


def swin():
    return models.SwinTransformer([4, 4], 16, [2], [2], [4, 4], num_classes=5)


def vit():
    model = models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=5)
    nn.init.normal_(model.heads.head.weight)  # else zero
    return model


def exported_of(module):
    return export(module.eval(), (Input(SHAPE),))


@functools.cache
def exported(build):
    """A module with random weights, and its graph on them; exported from a structure without any."""
    torch.manual_seed(0)
    module = build().eval().requires_grad_(False)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.random.fork_rng():
        run = fx.GraphModule(*exported_of(build().to("meta")))
    for path, tensor in [*run.named_parameters(), *run.named_buffers()]:
        if tensor.is_meta:
            owner, _, name = path.rpartition(".")
            setattr(run.get_submodule(owner), name, tensors[path])
    return module, run


def operators(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


def attributes(graph):
    return {node.target for node in graph.nodes if node.op == "get_attr"}


@pytest.fixture
def plain_attention():
    """torch has a second implementation of attention, which rounds otherwise and which it cannot export."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.usefixtures("plain_attention")
@pytest.mark.parametrize("build", gating([Halves, Constants, swin, vit], Halves, Constants, vit))
def test_the_graph_computes_what_the_module_computes_for_any_batch_size_and_writes_to_no_input(build):
    module, run = exported(build)
    for batch in (1, 3):
        images = torch.randn(batch, *SHAPE)
        expected = tensors_in(module(images.clone()))
        outputs = tensors_in(run(images))
        assert len(outputs) == len(expected)
        assert all(torch.equal(*pair) for pair in zip(outputs, expected, strict=True))
        assert expected[0].std() > 0.01
    schemas = [target._schema for target in operators(run.graph) if hasattr(target, "_schema")]
    assert len(schemas) > 3
    assert not any(schema.is_mutable for schema in schemas)


def test_parameters_and_scopes_have_the_names_that_the_module_has_and_operators_stay_whole() -> None:
    module, run = exported(Halves)
    without_counters = {path for path in module.state_dict() if not path.endswith("num_batches_tracked")}
    assert attributes(run.graph) == without_counters
    convolutions = [node for node in run.graph.nodes if node.target is torch.ops.aten.conv2d.default]
    scopes = [[path for path, _ in node.meta["nn_module_stack"].values()] for node in convolutions]
    assert scopes == [["stem"], ["block", "block.0"], ["block", "block.0"]]
    # Activations in place are no reason to take them apart.
    block = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).to("meta")
    _, graph = exported_of(block)
    assert torch.ops.aten.batch_norm.default in operators(graph)
    assert block[2].inplace

    # Buffers may have values and weights need no memory.
    def widened(net, x):
        return next(net.wide(part) * net.scale for part in x.mean((2, 3)).split(3, 1))

    wide = nn.Linear(3, 1 << 40, device="meta")  # 13 TB
    _, graph = exported_of(named("Wide", widened, lambda: {"wide": wide, "scale": torch.full((1,), 2.0)})())
    assert operators(graph)[-2:] == [torch.ops.aten.linear.default, torch.ops.aten.mul.Tensor]


def test_what_depends_on_no_image_is_kept_beside_the_weights_and_has_a_value(snapshot):
    structure = Constants().to("meta")
    holder, graph = exported_of(structure)
    kept = {path: buffer for path, buffer in holder.named_buffers() if path != "offset"}
    assert not any(buffer.is_meta for buffer in kept.values())
    assert {tuple(buffer.shape) for buffer in kept.values()} >= {(4, 1, 1), (1,), (32, 32)}
    assert holder.state_dict().keys() == structure.state_dict().keys()
    assert [path for path, _ in structure.named_buffers()] == ["offset"]
    calls = {str(target) for target in operators(graph)}
    assert not [call for call in calls if "arange" in call or "meshgrid" in call or "new_ones" in call]
    assert attributes(graph) == {*kept, "offset", "conv.weight", "conv.bias"}
    structure = Constants().to("meta")
    structure.gain = structure.gain.to("meta")
    assert refusal(UntraceableModel, exported_of, structure) == snapshot


@pytest.mark.parametrize("build", REFUSED)
def test_a_model_without_a_static_graph_is_refused_in_one_line_and_in_silence(build, capfd, snapshot):
    logged = logging.handlers.BufferingHandler(1000)
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    log.addHandler(logged)
    said = refusal(UntraceableModel, exported_of, build().to("meta"))
    log.removeHandler(logged)
    said = re.sub(r"\.py:\d+\)$", ".py:LINE)", said)
    assert re.sub(r"\.numpy\(.* \(", "TORCH'S REASON (", said) == snapshot
    assert capfd.readouterr() == ("", "")
    assert not [record for record in logged.buffer if record.levelno >= logging.WARNING]
