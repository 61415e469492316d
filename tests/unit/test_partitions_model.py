"""Whole models: a split computes what the whole does, and each stage holds its own weights and no others."""

import math

import pytest
import torch
from torch import nn

from partitions import model as partitions_model
from partitions import proof, registry, weights
from partitions.seeded import seeded

# Small images where the model takes any size: what is cut does not depend on it.
SIZES = {"mobilenet_v2": 64, "resnet18": 64, "alexnet": 96}
SAMPLED = {
    "densenet121": 64,
    "efficientnet_b0": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "mnasnet0_5": 64,
    "regnet_y_400mf": 64,
    "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "swin_t": 224,
}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    loaded = {}

    def cached(name):
        if name not in loaded:
            file = weights.make(name, "seeded", 7, tmp_path_factory.mktemp("weights"))
            loaded[name] = partitions_model.load(name, file.path)
        return loaded[name]

    return cached


def images(size, batch=2):
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(3))


def assert_split_equals_whole(model, inputs, indices):
    expected = proof.reference(model, inputs)
    last = len(model.points) - 1
    for index in indices:
        kept = inputs.clone()
        with torch.inference_mode():
            crossing = model.stage(0, index)((inputs,))
            sent = [tensor.clone() for tensor in crossing]
            (result,) = model.stage(index, last)(crossing)
        at = f"{model.name} at point {index}, {model.points[index].name}"
        assert torch.equal(result, expected), at
        assert torch.equal(inputs, kept), at
        assert all(torch.equal(a, b) for a, b in zip(crossing, sent, strict=True)), at
        assert all(tensor.is_contiguous() for tensor in crossing), at
    return expected


@pytest.mark.parametrize("name", SIZES)
def test_every_split_equals_the_whole_bit_for_bit(name, load):
    model = load(name)
    expected = assert_split_equals_whole(model, images(SIZES[name]), range(len(model.points)))
    assert expected.shape == (2, 1000)
    assert proof.max_abs_error(expected[0], expected[1]) > 100 * proof.tolerance(expected)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_splits_of_other_families(name, load):
    model = load(name)
    last = len(model.points) - 1
    expected = assert_split_equals_whole(
        model, images(SAMPLED[name]), [1, last // 3, 2 * last // 3, last - 1]
    )
    assert proof.max_abs_error(expected[0], expected[1]) > 10 * proof.tolerance(expected)


@pytest.mark.parametrize("name", ["mobilenet_v2", "swin_t", "mnasnet0_5"])
def test_the_graph_computes_what_the_module_computes(name, load):
    """Also: weights survive the file, and computed buffers are right."""
    inputs = images((SIZES | SAMPLED)[name])
    with torch.inference_mode():
        expected = seeded(name, 7)(inputs.clone())
    assert torch.equal(proof.reference(load(name), inputs), expected)


@pytest.mark.parametrize("name", [*SIZES, "swin_t"])
def test_stages_part_the_parameters_and_buffers(name, load):
    model = load(name)
    last = len(model.points) - 1
    total = {tensor.data_ptr() for tensor in model.state.values()}
    for index in (0, 1, last // 2, last - 1, last):
        first, second = model.stage(0, index), model.stage(index, last)
        halves = [{t.data_ptr() for t in (*s.parameters(), *s.buffers())} for s in (first, second)]
        assert halves[0] | halves[1] == total
        assert not halves[0] & halves[1]
        size = sum(parameter.numel() for stage in (first, second) for parameter in stage.parameters())
        assert size == sum(parameter.numel() for parameter in registry.build_structure(name).parameters())


def test_payloads_are_as_announced(load):
    model = load("mobilenet_v2")
    inputs = images(model.input_shape[-1], batch=1)
    with torch.inference_mode():
        for point in model.points[:-1]:
            crossing = model.stage(0, point.index)((inputs,))
            assert [tuple(tensor.shape) for tensor in crossing] == [spec.shape for spec in point.payload]
            assert sum(tensor.nbytes for tensor in crossing) == point.payload_bytes


def test_three_stages_make_a_whole(load):
    model = load("resnet18")
    inputs = images(64)
    payload = (inputs,)
    with torch.inference_mode():
        for start, end in ((0, 3), (3, 8), (8, len(model.points) - 1)):
            payload = model.stage(start, end)(payload)
    assert torch.equal(payload[0], proof.reference(model, inputs))


def test_op_granularity_splits_equal_the_whole(tmp_path):
    file = weights.make("squeezenet1_1", "seeded", 0, tmp_path)
    model = partitions_model.load("squeezenet1_1", file.path, granularity="op")
    assert len(model.points) > 30
    assert_split_equals_whole(model, images(64), range(len(model.points)))


def test_describe_and_load_agree(load):
    model = load("alexnet")
    assert (model.points, model.input_shape, model.graph_digest) == partitions_model.describe("AlexNet")
    assert model.name == "alexnet"
    assert not any(tensor.is_meta or tensor.requires_grad for tensor in model.state.values())


def test_loaded_tensors_lie_at_aligned_addresses(load):
    assert {tensor.data_ptr() % 64 for tensor in load("mobilenet_v2").state.values()} == {0}


@pytest.mark.parametrize(("start", "end"), [(3, 2), (-1, 2), (0, 99)])
def test_impossible_stages_are_refused(start, end, load):
    with pytest.raises(ValueError, match="its points are 0 to 15"):
        load("alexnet").stage(start, end)


def test_buffers_that_no_file_holds_come_from_the_constructor(monkeypatch, tmp_path):
    class Positional(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 2, 1)
            self.register_buffer("offset", torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), persistent=False)
            self.head = nn.Conv2d(2, 2, 1)

        def forward(self, x):
            return self.head(self.layer(x) + self.offset)

    monkeypatch.setattr(registry, "build", lambda _name: Positional().eval().requires_grad_(False))
    built = Positional()
    torch.save(built.state_dict(), tmp_path / "own.pt")
    file = weights.make("alexnet", str(tmp_path / "own.pt"), 0, tmp_path)
    inputs = images(8)
    result = proof.reference(partitions_model.load("alexnet", file.path), inputs)
    assert torch.equal(result, built(inputs))


def test_error_measures():
    one = torch.tensor([1.0, -2.0])
    assert proof.max_abs_error(one, one) == 0
    assert proof.max_abs_error(one, torch.tensor([1.0, -2.5])) == 0.5
    assert proof.max_abs_error(one, torch.tensor([1.0])) == math.inf
    assert proof.max_abs_error(one, one.double()) == math.inf
    for bad in (math.nan, math.inf):
        broken = torch.tensor([1.0, bad])
        assert proof.max_abs_error(one, broken) == math.inf
        assert proof.max_abs_error(broken, one) == math.inf
        assert proof.max_abs_error(broken, broken) == math.inf
    assert proof.tolerance(torch.tensor([0.1])) == 1e-4
    assert proof.tolerance(torch.tensor([0.1, -50.0])) == pytest.approx(5e-3)
