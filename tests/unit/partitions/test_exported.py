"""Graphs by torch.export: they compute what the module computes, to the last bit, and read its tensors by name."""

import functools
import logging
import logging.handlers
import re

import pytest
import torch
from torch import fx, nn

from pareto.partitions.exported import export
from pareto.partitions.graph import Input, UntraceableModel, tensors_in
from pareto.partitions.torchvision_models import models
from tests.unit.gating import gating
from tests.unit.partitions.builders import named
from tests.unit.refusals import refusal

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
