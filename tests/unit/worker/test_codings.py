"""What codecs take of what crosses a link, on a worker that has a model."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest
import torch
from safetensors.torch import save_file

from pareto.partitions import weights
from pareto.partitions.recipe import Recipe
from pareto.protocol.jsonlines import Refused, plain
from pareto.protocol.messages import LoadModel
from pareto.protocol.profile_messages import CodecRuns, TimeCodecs
from pareto.protocol.validation import read
from pareto.remote.codecs import registry
from pareto.remote.worker import codings, device
from pareto.remote.worker.worker import Worker, answers
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

CODED = [(3, "int8"), (0, "zstd:3"), (3, "zstd:3"), (0, "png"), (7, "fp16")]
BATCHES = 3


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randint(0, 256, (BATCHES, 2, 3, 64, 64), generator=torch.Generator().manual_seed(1)).to(
        torch.uint8
    )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, images: torch.Tensor) -> Iterator[Worker]:
    """A worker that has a small model."""
    with small("squeezenet1_1", 64) as name:
        recipe = Recipe(name, input="uint8")
        folder = tmp_path_factory.mktemp("weights")
        made = weights.make(name, "seeded", 3, folder)
        save_file({"input0": images}, folder / "examples")
        worker = Worker(device.named("cpu"))
        worker.load(
            LoadModel(
                vars(recipe) | {"cuts": vars(recipe.cuts)}, {str(made.path): made.digest}, made.digest, []
            )
        )
        worker.folder = folder  # type: ignore[attr-defined]
        yield worker


def ask(worker: Worker, coded: list[tuple[int, str]] = CODED, cpu: float = 1.0, **more: bool) -> CodecRuns:
    file = worker.folder / "examples"  # type: ignore[attr-defined]
    return worker.coded(TimeCodecs(coded, str(file), cpu=cpu, **{"decodes": True, **more}))


def test_each_codec_is_timed_on_the_models_own_payloads(worker: Worker, images: torch.Tensor) -> None:
    runs = ask(worker)
    assert read(CodecRuns, json.loads(json.dumps(plain(runs)))) == runs
    assert answers(worker)[TimeCodecs] == worker.coded
    outline, resident = worker._loaded()
    for number, (point, text) in enumerate(CODED):
        nbytes = 2 * outline.points[point].payload_bytes
        assert runs.payload_bytes[number] == nbytes
        assert len(runs.encode_s[number]) == len(runs.decode_s[number]) == len(runs.wire_bytes[number])
        assert len(runs.encode_s[number]) == BATCHES
        assert min(runs.encode_s[number] + runs.decode_s[number]) > 0
        resident.change(0, point)
        expected = []
        for batch in images:
            payload = device.named("cpu").run(resident.stage, (batch,))
            encoded = registry.parse(text).encode(payload)
            expected.append(sum(tensor.nbytes for tensor in encoded))
        assert runs.wire_bytes[number][:BATCHES] == expected, text
        assert max(expected) < 1.1 * nbytes


def test_a_host_to_which_nothing_is_sent_does_not_decode(worker: Worker) -> None:
    runs = ask(worker, decodes=False)
    assert runs.decode_s == runs.decode_again_s == [[]] * len(CODED)


def test_under_a_quota_codecs_take_processor_time_over_the_share(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: 0.001 * next(ticks))
    runs = ask(worker, cpu=0.25)
    assert {round(seconds, 6) for each in (*runs.encode_s, *runs.decode_again_s) for seconds in each} == {
        0.004
    }
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert min(map(min, ask(worker).encode_s)) < 0.001, "with several threads the time that passes counts"


def test_a_run_after_other_work_is_apart_from_those_right_after_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ask(worker, [(3, "int8")])
    assert len(runs.encode_s[0]) == len(runs.decode_s[0]) == BATCHES
    assert len(runs.encode_again_s[0]) == len(runs.decode_again_s[0]) == BATCHES * codings.AGAIN
    copied: list[int] = []
    real = torch.Tensor.copy_
    monkeypatch.setattr(
        torch.Tensor, "copy_", lambda one, other: copied.append(one.nbytes) or real(one, other)
    )
    ask(worker, [(3, "fp16")])
    assert copied.count(codings.COOLING_BYTES) == 2 * BATCHES, "before each first run, and no other"


def test_nothing_is_held_afterwards_and_what_is_no_codec_is_refused(worker: Worker) -> None:
    ask(worker, [])
    assert worker._loaded()[1].stage.body is None
    with pytest.raises(Refused, match="'gzip' is no codec"):
        ask(worker, [(0, "gzip")])
