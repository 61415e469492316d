"""What the driver expects of codecs before a run: results cut and coded in one process, and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from pareto import coding
from pareto.backends.base import layout
from pareto.codecs.registry import parse
from partitions import model as partitioned
from partitions import registry, weights
from partitions.model import PartitionedModel
from partitions.proof import max_abs_error
from partitions.recipe import Cuts, Recipe

MODULE = """
from torch import nn
from partitions import registry

@registry.register(input_shape=(4, 9, 9))
def net():
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(125, 7))
"""
CODECS = [parse(text) for text in ("none", "int8", "int8+zstd", "fp16", "zstd")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PartitionedModel:
    file = tmp_path_factory.mktemp("model") / "model_of_test_coding.py"
    file.write_text(MODULE)
    name = registry.canonical(f"{file}:net")
    path, attribute = registry.source(name)
    made = weights.make(name, "seeded", 0, tmp_path_factory.mktemp("weights"))
    return partitioned.load(Recipe(name, Cuts("op", 1, False), path, attribute, None, "float32"), made.path)


@pytest.fixture(scope="module")
def inputs() -> Tensor:
    return torch.randn(3, 2, 4, 9, 9, generator=torch.Generator().manual_seed(0))


def test_references_are_of_each_split_and_each_way_to_lose_something(
    model: PartitionedModel, inputs: Tensor
) -> None:
    last = len(model.points) - 1
    made = coding.references(model, inputs, [(0,), (2,), (last,)], CODECS)
    assert set(made) == {f"{codec}@{point}.reference0" for codec in ("int8", "fp16") for point in (0, 2)}
    with torch.inference_mode():
        for index, batch in enumerate(inputs):
            (payload,) = model.stage(0, 2)((batch,))
            (decoded,) = parse("int8").decode(parse("int8").encode((payload,)), layout((payload,)))
            (expected,) = model.stage(2, last)((decoded,))
            assert torch.equal(made["int8@2.reference0"][index], expected)


def test_another_cut_or_codec_gives_other_results(model: PartitionedModel, inputs: Tensor) -> None:
    made = coding.references(model, inputs, [(0,), (2,), (4,)], CODECS)
    for one in made:
        for other in made:
            assert one == other or max_abs_error((made[one],), (made[other],)) > 0


def test_in_a_chain_each_link_codes(model: PartitionedModel, inputs: Tensor) -> None:
    last, codec = len(model.points) - 1, parse("uint4")
    made = coding.references(model, inputs, [(1, 2), (2, 2), (2, last)], [codec])
    assert set(made) == {f"uint4@{split}.reference0" for split in ("1+2", "2+2", f"2+{last}")}

    def through(payload: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return codec.decode(codec.encode(payload), layout(payload))

    with torch.inference_mode():
        first = through(model.stage(0, 1)((inputs[0],)))
        expected = model.stage(2, last)(through(model.stage(1, 2)(first)))
    assert torch.equal(made["uint4@1+2.reference0"][0], expected[0])


def test_the_share_that_crosses_is_counted(model: PartitionedModel, inputs: Tensor) -> None:
    shares = coding.wire_shares(model, inputs, [(0,), (2,)], CODECS[1:])
    assert set(shares) == {"int8", "int8+zstd:3", "fp16", "zstd:3"}
    assert shares["fp16"][0] == shares["fp16"][2] == 0.5
    payload = 2 * 4 * 9 * 9 * 4
    assert shares["int8"][0] == pytest.approx(0.25 + 8 / payload)
    assert shares["int8"][1] == 1.0, "no split has it"
    assert shares["int8+zstd:3"][2] < shares["int8"][2], "a ReLU's zeros are compressed"


def test_nothing_is_made_without_loss_or_splits(model: PartitionedModel, inputs: Tensor) -> None:
    assert coding.references(model, inputs, [(1,)], [parse("zstd"), parse("none")]) == {}
    assert coding.references(model, inputs, [], CODECS) == {}
    assert coding.lossy(model, (1,), CODECS) == [parse("int8"), parse("fp16")]
    assert coding.lossy(model, (len(model.points) - 1,), CODECS) == []


def of_images(tmp_path: Path) -> PartitionedModel:
    """The same for images of bytes with three channels."""
    file = tmp_path / f"pictured_{tmp_path.name}.py"
    file.write_text(MODULE.replace("(4, 9, 9)", "(3, 9, 9)").replace("Conv2d(4", "Conv2d(3"))
    name = registry.canonical(f"{file}:net")
    path, attribute = registry.source(name)
    made = weights.make(name, "seeded", 0, tmp_path)
    return partitioned.load(Recipe(name, Cuts("op", 1, False), path, attribute, None, "uint8"), made.path)


def test_pictures_are_made_of_the_input_alone(tmp_path: Path) -> None:
    model = of_images(tmp_path)
    last = len(model.points) - 1
    drawn = torch.Generator().manual_seed(0)
    batches = torch.randint(256, (2, 2, 3, 9, 9), dtype=torch.uint8, generator=drawn)
    codecs = [parse("jpeg:50"), parse("png")]
    pictured = coding.references(model, batches, [(0,), (2,), (last,)], codecs)
    assert set(pictured) == {"jpeg:50@0.reference0"}
    with torch.inference_mode():
        (decoded,) = codecs[0].decode(codecs[0].encode((batches[0],)), layout((batches[0],)))
        (expected,) = model.stage(0, last)((decoded,))
        (plain,) = model.stage(0, last)((batches[0],))
    assert torch.equal(pictured["jpeg:50@0.reference0"][0], expected)
    assert not torch.equal(expected, plain)
    shares = coding.wire_shares(model, batches, [(0,), (2,), (last,)], codecs)
    assert shares["png"][0] != 1.0
    assert shares["png"][2] == 1.0


def test_where_bytes_cross_a_quantiser_has_no_result_of_its_own(tmp_path: Path) -> None:
    model = of_images(tmp_path)
    drawn = torch.Generator().manual_seed(0)
    batches = torch.randint(256, (2, 2, 3, 9, 9), dtype=torch.uint8, generator=drawn)
    codecs = [parse("int8"), parse("int8+zstd")]
    assert set(coding.references(model, batches, [(0,), (2,), (0, 2)], codecs)) == {
        "int8@2.reference0", "int8@0+2.reference0",
    }  # fmt: skip
    shares = coding.wire_shares(model, batches, [(0,), (2,)], codecs)
    assert shares["zstd:3"][0] == shares["int8+zstd:3"][0] != 1.0, "its cell there is that of zstd"
    assert shares["int8"][0] == 1.0
