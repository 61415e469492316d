"""What the driver expects of codecs before a run: results cut and coded in one process, and bytes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pareto.models import codec_results
from pareto.partitions import model as partitioned
from pareto.partitions import registry, weights
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import Built as BuiltStage
from pareto.partitions.engines.base import Run
from pareto.partitions.engines.registry import EXACT, Engine
from pareto.partitions.model import PartitionedModel
from pareto.partitions.proof import max_error
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.stage import Stage
from pareto.remote.backends.base import layout
from pareto.remote.codecs.registry import Codec, parse
from pareto.sweep.splits import Split

MODULE = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(4, 9, 9))
def net():
    return nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(125, 7))
"""
needs_onnx = pytest.mark.skipif(bool(engines.missing("onnx")), reason="ONNX Runtime is not installed")
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


def references(
    model: PartitionedModel, inputs: Tensor, splits: Sequence[Split], codecs: Sequence[Codec]
) -> Mapping[str, Tensor]:
    return expected(model, inputs, splits, codecs).references


def shares(
    model: PartitionedModel, inputs: Tensor, splits: Sequence[Split], codecs: Sequence[Codec]
) -> Mapping[str, tuple[float, ...]]:
    return expected(model, inputs, splits, codecs).wire_shares


def expected(
    model: PartitionedModel,
    inputs: Tensor,
    splits: Sequence[Split],
    codecs: Sequence[Codec],
    engines: Sequence[Engine] = (EXACT,),
    **labels: Tensor,
) -> codec_results.Expected:
    last = len(model.points) - 1
    with torch.inference_mode():
        whole = torch.stack([model.stage(0, last)((batch,))[0] for batch in inputs])
    return codec_results.expected(
        model, {"input0": inputs, "reference0": whole, **labels}, splits, codecs, engines=engines
    )


def test_references_are_of_each_split_and_each_way_to_lose_something(
    model: PartitionedModel, inputs: Tensor
) -> None:
    last = len(model.points) - 1
    made = references(model, inputs, [(0,), (2,), (last,)], CODECS)
    assert set(made) == {f"{codec}@{point}.reference0" for codec in ("int8", "fp16") for point in (0, 2)}
    with torch.inference_mode():
        for index, batch in enumerate(inputs):
            (payload,) = model.stage(0, 2)((batch,))
            (decoded,) = parse("int8").decode(parse("int8").encode((payload,)), layout((payload,)))
            (expected,) = model.stage(2, last)((decoded,))
            assert torch.equal(made["int8@2.reference0"][index], expected)


def test_another_cut_or_codec_gives_other_results(model: PartitionedModel, inputs: Tensor) -> None:
    made = references(model, inputs, [(0,), (2,), (4,)], CODECS)
    for one in made:
        for other in made:
            assert one == other or max_error((made[one],), (made[other],)) > 0


def test_in_a_chain_each_link_codes(model: PartitionedModel, inputs: Tensor) -> None:
    last, codec = len(model.points) - 1, parse("uint4")
    made = references(model, inputs, [(1, 2), (2, 2), (2, last)], [codec])
    assert set(made) == {f"uint4@{split}.reference0" for split in ("1+2", "2+2", f"2+{last}")}

    def through(payload: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return codec.decode(codec.encode(payload), layout(payload))

    with torch.inference_mode():
        first = through(model.stage(0, 1)((inputs[0],)))
        expected = model.stage(2, last)(through(model.stage(1, 2)(first)))
    assert torch.equal(made["uint4@1+2.reference0"][0], expected[0])


@needs_onnx
def test_what_calibrates_runs_each_unit_once_a_batch_and_what_does_not_runs_none(
    model: PartitionedModel, inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = counted_runs(monkeypatch)
    splits = [(2,), (4,)]
    shown: list[str] = []
    payload = {"input0": inputs, "reference0": torch.zeros(3, 2, 7)}
    known = "", None, [engines.parse("server=onnx:int8")]
    codec_results.expected(model, payload, splits, [parse("none")], *known, show=shown.append)
    # What crosses at each split's point, and what calibrates, from point to point.
    firsts = [(0, 2), (0, 4), (0, 2), (2, 4)] * len(inputs)
    assert sorted(each[:2] for each in runs if each[2] == "eager") == sorted(firsts)
    assert shown == [f"{model.name}: building stage {n} of 2 here, by onnx:int8" for n in (1, 2)]
    runs.clear()
    known = "", None, [engines.parse("server=eager:bfloat16")]
    if not engines.missing("eager:bfloat16"):
        codec_results.expected(model, payload, splits, [parse("none")], *known)
        assert sorted(each[:2] for each in runs if each[2] == "eager") == sorted(
            [(0, 2), (0, 4)] * len(inputs)
        )


@needs_onnx
def test_what_is_built_is_in_memory_while_its_splits_are_worked_out(
    model: PartitionedModel, inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[BuiltStage]] = []
    alive: list[int] = []

    class Watched(BuiltStage):
        def __init__(self, stage: Stage, run: Run) -> None:
            super().__init__(stage, run)
            alive.append(sum(other() is not None for other in made))
            made.append(weakref.ref(self))

    monkeypatch.setattr(codec_results, "BuiltStage", Watched)
    chosen = [engines.parse(text) for text in ("edge=onnx:int8", "onnx:int8")]
    expected(model, inputs, [(4,), (2,)], [parse("none")], engines=chosen)
    assert alive == [0, 1, 0, 1], "each split's first stage, which both engines have, and then its last"


@needs_onnx
def test_an_engine_that_changes_results_has_references_and_quality_at_each_split(
    model: PartitionedModel, inputs: Tensor
) -> None:
    last = len(model.points) - 1
    chosen = [engines.parse(text) for text in ("eager", "onnx", "edge=onnx:int8")]
    made = expected(model, inputs, [(0,), (2,), (last,)], [parse("none"), parse("fp16")], engines=chosen)
    by = "edge=onnx:int8"
    names = {"fp16@0", "fp16@2", f"none@2 {by}", f"fp16@2 {by}", f"none@{last} {by}"}
    assert set(made.references) == {f"{name}.reference0" for name in names}
    assert set(made.qualities) == {"none", *names}
    assert made.qualities[f"none@2 {by}"].output_error > made.qualities["none"].output_error == 0
    assert set(made.ranges) == {("onnx:int8", 0, 2), ("onnx:int8", 0, last)}
    limits = float(inputs.min()), float(inputs.max())
    assert any(each == pytest.approx(limits) for each in made.ranges["onnx:int8", 0, 2].values())


def test_the_share_that_crosses_is_counted(model: PartitionedModel, inputs: Tensor) -> None:
    sent = shares(model, inputs, [(0,), (2,)], CODECS[1:])
    assert set(sent) == {"int8", "int8+zstd:3", "fp16", "zstd:3"}
    assert sent["fp16"][0] == sent["fp16"][2] == 0.5
    payload = 2 * 4 * 9 * 9 * 4
    assert sent["int8"][0] == pytest.approx(0.25 + 8 / payload)
    assert sent["int8"][1] == 1.0, "no split has it"
    assert sent["int8+zstd:3"][2] < sent["int8"][2], "a ReLU's zeros are compressed"


def test_what_each_codec_takes_here_is_timed_where_it_is_used(
    model: PartitionedModel, inputs: Tensor
) -> None:
    took_s = expected(model, inputs, [(0,), (2,)], CODECS[1:]).codec_s
    assert took_s.keys() == {"int8", "int8+zstd:3", "fp16", "zstd:3"}
    for of_points in took_s.values():
        assert [min(both) > 0 for both in of_points[:3]] == [True, False, True]
        assert max(max(both) for both in of_points) < 1.0


def test_nothing_is_made_without_loss_or_splits(model: PartitionedModel, inputs: Tensor) -> None:
    assert references(model, inputs, [(1,)], [parse("zstd"), parse("none")]) == {}
    assert references(model, inputs, [], CODECS) == {}
    changing = [((1,), parse("int8"), EXACT), ((1,), parse("fp16"), EXACT)]
    assert codec_results.lossy(model, [(1,)], CODECS) == changing
    assert codec_results.lossy(model, [(len(model.points) - 1,)], CODECS) == []


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
    pictured = references(model, batches, [(0,), (2,), (last,)], codecs)
    assert set(pictured) == {"jpeg:50@0.reference0"}
    with torch.inference_mode():
        (decoded,) = codecs[0].decode(codecs[0].encode((batches[0],)), layout((batches[0],)))
        (expected,) = model.stage(0, last)((decoded,))
        (plain,) = model.stage(0, last)((batches[0],))
    assert torch.equal(pictured["jpeg:50@0.reference0"][0], expected)
    assert not torch.equal(expected, plain)
    sent = shares(model, batches, [(0,), (2,), (last,)], codecs)
    assert sent["png"][0] != 1.0
    assert sent["png"][2] == 1.0


def test_where_bytes_cross_a_quantiser_has_no_result_of_its_own(tmp_path: Path) -> None:
    model = of_images(tmp_path)
    drawn = torch.Generator().manual_seed(0)
    batches = torch.randint(256, (2, 2, 3, 9, 9), dtype=torch.uint8, generator=drawn)
    codecs = [parse("int8"), parse("int8+zstd")]
    assert set(references(model, batches, [(0,), (2,), (0, 2)], codecs)) == {
        "int8@2.reference0", "int8@0+2.reference0",
    }  # fmt: skip
    sent = shares(model, batches, [(0,), (2,)], codecs)
    assert sent["zstd:3"][0] == sent["int8+zstd:3"][0] != 1.0, "its cell there is that of zstd"
    assert sent["int8"][0] == 1.0


def test_quality_is_of_all_images_and_of_the_split_with_the_codec(
    model: PartitionedModel, inputs: Tensor
) -> None:
    last = len(model.points) - 1
    labels = torch.tensor([[0, 1], [2, 3], [4, 5]])
    made = expected(
        model, inputs, [(2,), (1, 2), (last,)], [parse("uint4+zstd"), parse("none")], labels=labels
    )
    assert set(made.qualities) == {"none", "uint4@2", "uint4@1+2"}
    whole, coded = made.qualities["none"], made.qualities["uint4@2"]
    with torch.inference_mode():
        answers = torch.cat([model.stage(0, last)((batch,))[0] for batch in inputs])
    through = made.references["uint4@2.reference0"].flatten(0, 1)
    assert (whole.images, whole.agreement, whole.output_error) == (6, 1.0, 0.0)
    assert whole.top1 == float((answers.argmax(1) == labels.flatten()).double().mean())
    assert coded.agreement == float((answers.argmax(1) == through.argmax(1)).double().mean())
    assert coded.output_error == pytest.approx(float((through - answers).norm() / answers.norm()), rel=1e-5)
    assert list(coded.wrong) == (through.argmax(1) != labels.flatten()).tolist()
    cells = codec_results.accuracies(
        made.qualities, model, [(2,), (last,)], [parse("uint4+zstd"), parse("zstd")]
    )
    assert cells == {
        ("uint4+zstd:3", "eager", (2,)): coded.top1, ("zstd:3", "eager", (2,)): whole.top1,
        ("none", "eager", (2,)): whole.top1, ("none", "eager", (last,)): whole.top1,
    }  # fmt: skip
    assert codec_results.quality_name(parse("uint4+zstd"), (2,)) == "uint4@2"
    assert (
        codec_results.quality_name(parse("zstd"), (2,))
        == codec_results.quality_name(parse("none"), (last,))
        == "none"
    )


def counted_runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """Of each stage that runs from now on, where it begins and ends, and its engine."""
    runs: list[tuple[int, int, str]] = []
    run = codec_results._Stages.run

    def counted(
        self: codec_results._Stages, start: int, end: int, tensors: tuple[Tensor, ...], engine: str = "eager"
    ) -> tuple[Tensor, ...]:
        runs.append((start, end, engine))
        return run(self, start, end, tensors, engine)

    monkeypatch.setattr(codec_results._Stages, "run", counted)
    return runs


def test_the_first_stages_run_once_a_batch(
    model: PartitionedModel, inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = counted_runs(monkeypatch)
    expected(model, inputs, [(2,), (4,)], [parse("int8"), parse("zstd")])
    last = len(model.points) - 1
    assert sorted(each[:2] for each in runs) == sorted([(0, 2), (2, 4), (2, last), (4, last)] * len(inputs))
    runs.clear()
    made = expected(model, inputs, [(2,), (4,)], [])
    assert not runs, "without codecs nothing is computed, and the whole model's quality is known"
    assert made.qualities["none"].agreement == 1.0
