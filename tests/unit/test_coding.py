"""What the driver expects of codecs before a run: results cut and coded in one process, and bytes."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
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


def loaded(file: Path, text: str, folder: Path, dtype: str) -> PartitionedModel:
    file.write_text(text)
    name = registry.canonical(f"{file}:net")
    path, attribute = registry.source(name)
    made = weights.make(name, "seeded", 0, folder)
    return partitioned.load(Recipe(name, Cuts("op", 1, False), path, attribute, None, dtype), made)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PartitionedModel:
    folder = tmp_path_factory.mktemp("model")
    return loaded(folder / "model_of_test_coding.py", MODULE, folder, "float32")


@pytest.fixture(scope="module")
def inputs() -> Tensor:
    return torch.randn(3, 2, 4, 9, 9, generator=torch.Generator().manual_seed(0))


def run_whole(model: PartitionedModel, inputs: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.stack([model.stage(0, len(model.points) - 1)((batch,))[0] for batch in inputs])


def expected(
    model: PartitionedModel, inputs: Tensor, splits: Sequence[Split], codecs: Sequence[Codec],
    engines: Sequence[Engine] = (EXACT,), **labels: Tensor,
) -> codec_results.Expected:  # fmt: skip
    given = {"input0": inputs, "reference0": run_whole(model, inputs), **labels}
    return codec_results.expected(model, given, splits, codecs, engines=engines)


def test_references_are_of_each_split_and_each_way_to_lose(model: PartitionedModel, inputs: Tensor) -> None:
    last = len(model.points) - 1
    made = expected(model, inputs, [(0,), (2,), (4,), (last,)], CODECS).references
    assert set(made) == {f"{codec}@{point}.reference0" for codec in ("int8", "fp16") for point in (0, 2, 4)}
    for one, other in itertools.permutations(made.values(), 2):
        assert max_error((one,), (other,)) > 0, "another cut or codec gives other results"
    codec = parse("int8")
    with torch.inference_mode():
        for index, batch in enumerate(inputs):
            payload = model.stage(0, 2)((batch,))
            (through,) = model.stage(2, last)(codec.decode(codec.encode(payload), layout(payload)))
            assert torch.equal(made["int8@2.reference0"][index], through)


def test_in_a_chain_each_link_codes(model: PartitionedModel, inputs: Tensor) -> None:
    last, codec = len(model.points) - 1, parse("uint4")
    made = expected(model, inputs, [(1, 2), (2, 2), (2, last)], [codec]).references
    assert set(made) == {f"uint4@{split}.reference0" for split in ("1+2", "2+2", f"2+{last}")}

    def through(payload: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return codec.decode(codec.encode(payload), layout(payload))

    with torch.inference_mode():
        first = through(model.stage(0, 1)((inputs[0],)))
        (answer,) = model.stage(2, last)(through(model.stage(1, 2)(first)))
    assert torch.equal(made["uint4@1+2.reference0"][0], answer)


@needs_onnx
def test_what_calibrates_runs_each_unit_once_a_batch(
    model: PartitionedModel, inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = counted_runs(monkeypatch)
    shown: list[str] = []
    payload = {"input0": inputs, "reference0": torch.zeros(3, 2, 7)}
    given = model, payload, [(2,), (4,)], [parse("none")], "", None
    codec_results.expected(*given, [engines.parse("server=onnx:int8")], show=shown.append)
    # What crosses at each split's point, and what calibrates, from point to point.
    firsts = [(0, 2), (0, 4), (0, 2), (2, 4)] * len(inputs)
    assert sorted(each[:2] for each in runs if each[2] == "eager") == sorted(firsts)
    assert shown == [f"{model.name}: building stage {n} of 2 here, by onnx:int8" for n in (1, 2)]
    runs.clear()
    if not engines.missing("eager:bfloat16"):
        codec_results.expected(*given, [engines.parse("server=eager:bfloat16")])
        crossing = sorted([(0, 2), (0, 4)] * len(inputs))
        assert sorted(each[:2] for each in runs if each[2] == "eager") == crossing


@needs_onnx
def test_what_is_built_is_in_memory_for_its_splits(
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
def test_changing_engines_have_references_and_quality(model: PartitionedModel, inputs: Tensor) -> None:
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


def test_what_crosses_is_counted_and_what_codecs_take_timed(model: PartitionedModel, inputs: Tensor) -> None:
    made = expected(model, inputs, [(0,), (2,)], CODECS[1:])
    sent = made.wire_shares
    assert sent.keys() == made.codec_s.keys() == {"int8", "int8+zstd:3", "fp16", "zstd:3"}
    assert sent["fp16"][0] == sent["fp16"][2] == 0.5
    assert sent["int8"][0] == pytest.approx(0.25 + 8 / (2 * 4 * 9 * 9 * 4))
    assert sent["int8"][1] == 1.0, "no split has it"
    assert sent["int8+zstd:3"][2] < sent["int8"][2], "a ReLU's zeros are compressed"
    for of_points in made.codec_s.values():
        assert [min(both) > 0 for both in of_points[:3]] == [True, False, True]
        assert max(max(both) for both in of_points) < 1.0


def test_nothing_is_made_without_loss_or_splits(model: PartitionedModel, inputs: Tensor) -> None:
    assert expected(model, inputs, [(1,)], [parse("zstd"), parse("none")]).references == {}
    assert expected(model, inputs, [], CODECS).references == {}
    changing = [((1,), parse("int8"), EXACT), ((1,), parse("fp16"), EXACT)]
    assert codec_results.lossy(model, [(1,)], CODECS) == changing
    assert codec_results.lossy(model, [(len(model.points) - 1,)], CODECS) == []


def test_pictures_are_made_of_the_input_alone_and_bytes_are_not_quantised(tmp_path: Path) -> None:
    text = MODULE.replace("(4, 9, 9)", "(3, 9, 9)").replace("Conv2d(4", "Conv2d(3")
    model = loaded(tmp_path / f"pictured_{tmp_path.name}.py", text, tmp_path, "uint8")
    last = len(model.points) - 1
    drawn = torch.Generator().manual_seed(0)
    batches = torch.randint(256, (2, 2, 3, 9, 9), dtype=torch.uint8, generator=drawn)
    jpeg, png = parse("jpeg:50"), parse("png")
    made = expected(model, batches, [(0,), (2,), (last,)], [jpeg, png])
    assert set(made.references) == {"jpeg:50@0.reference0"}
    with torch.inference_mode():
        decoded = jpeg.decode(jpeg.encode((batches[0],)), layout((batches[0],)))
        (answer,), (plain,) = model.stage(0, last)(decoded), model.stage(0, last)((batches[0],))
    assert torch.equal(made.references["jpeg:50@0.reference0"][0], answer)
    assert not torch.equal(answer, plain)
    assert made.wire_shares["png"][0] != 1.0
    assert made.wire_shares["png"][2] == 1.0
    codecs = [parse("int8"), parse("int8+zstd")]
    coded = expected(model, batches, [(0,), (2,), (0, 2)], codecs).references
    assert set(coded) == {"int8@2.reference0", "int8@0+2.reference0"}
    sent = expected(model, batches, [(0,), (2,)], codecs).wire_shares
    assert sent["zstd:3"][0] == sent["int8+zstd:3"][0] != 1.0, "its cell there is that of zstd"
    assert sent["int8"][0] == 1.0


def test_quality_is_of_all_images_and_a_split_with_its_codec(model: PartitionedModel, inputs: Tensor) -> None:
    last = len(model.points) - 1
    labels = torch.tensor([[0, 1], [2, 3], [4, 5]])
    own, zstd, none = parse("uint4+zstd"), parse("zstd"), parse("none")
    made = expected(model, inputs, [(2,), (1, 2), (last,)], [own, none], labels=labels)
    assert set(made.qualities) == {"none", "uint4@2", "uint4@1+2"}
    whole, coded = made.qualities["none"], made.qualities["uint4@2"]
    answers = run_whole(model, inputs).flatten(0, 1)
    through = made.references["uint4@2.reference0"].flatten(0, 1)
    assert (whole.images, whole.agreement, whole.output_error) == (6, 1.0, 0.0)
    assert whole.top1 == float((answers.argmax(1) == labels.flatten()).double().mean())
    assert coded.agreement == float((answers.argmax(1) == through.argmax(1)).double().mean())
    assert coded.output_error == pytest.approx(float((through - answers).norm() / answers.norm()), rel=1e-5)
    assert list(coded.wrong) == (through.argmax(1) != labels.flatten()).tolist()
    cells = codec_results.accuracies(made.qualities, model, [(2,), (last,)], [own, zstd])
    assert cells == {
        ("uint4+zstd:3", "eager", (2,)): coded.top1, ("zstd:3", "eager", (2,)): whole.top1,
        ("none", "eager", (2,)): whole.top1, ("none", "eager", (last,)): whole.top1,
    }  # fmt: skip
    named = [(own, (2,)), (zstd, (2,)), (none, (last,))]
    assert [codec_results.quality_name(*each) for each in named] == ["uint4@2", "none", "none"]


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
