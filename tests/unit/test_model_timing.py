"""What codecs take on the hosts of a testbed: which are timed where, on which payloads, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pareto.hosts.host import SERVER
from pareto.models.prepare import Artifact, recipe
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.partitions.model import Outline
from pareto.predict.model_times import BATCHES, codec_times, coded_at, examples
from pareto.protocol.profile_messages import CodecRuns
from pareto.remote.codecs.registry import parse_all
from tests.unit.simulated.worlds import MODEL, POINTS, sweep


@pytest.fixture(scope="module")
def outline() -> Outline:
    """Its input is bytes, all else that crosses are floats."""
    return partitioned.outline(recipe(registry.canonical(MODEL), sweep(input="uint8")))


def test_each_codec_is_timed_where_it_is_used_and_what_it_comes_to_there(outline: Outline) -> None:
    coded = coded_at(outline, parse_all(["none", "int8+zstd", "jpeg"]))
    last = POINTS - 1
    assert set(coded) == {
        *((point, "int8+zstd:3") for point in range(last)),
        *((0, codec) for codec in ("zstd:3", "jpeg:90")),
    }
    assert coded_at(outline, parse_all(["none"])) == []
    unfit = coded_at(outline, parse_all(["fp16"]), {"fp16": {1, 2}})
    assert [point for point, _ in unfit] == [0, *range(3, last)]


@pytest.mark.parametrize("count", [BATCHES, BATCHES + 1])
def test_the_first_batches_are_sent_without_answers(tmp_path: Path, count: int) -> None:
    inputs = torch.arange(count * 6).reshape(count, 2, 3)
    save_file({"input0": inputs, "reference0": torch.zeros(count, 2)}, tmp_path / "data")
    made, is_all = examples(Artifact(tmp_path / "data", "digest"))
    content = load_file(made.path)
    assert list(content) == ["input0"]
    assert torch.equal(content["input0"], inputs[:BATCHES])
    assert is_all == (count == BATCHES)
    assert len(made.digest) == 64


@pytest.mark.parametrize("is_all", [True, False])
def test_the_median_after_other_work_counts_and_the_least_of_all_bounds(
    outline: Outline, is_all: bool
) -> None:
    coded = [(1, "int8"), (2, "zstd:3"), (1, "zstd:3")]
    runs = CodecRuns(
        [100, 200, 100],
        [[3.0, 1.0, 2.0]] * 3, [[0.5] * 6, [0.6] * 6, [5.0] * 6],
        [[], [6.0, 4.0, 5.0], []], [[], [3.0] * 6, []],
        [[25] * 3, [150, 120, 160], [90, 80, 70]],
    )  # fmt: skip
    int8, zstd = codec_times(outline, SERVER, 4, coded, runs, is_all=is_all)
    assert (int8.codec, int8.role, int8.batch_size) == ("int8", SERVER, 4)
    assert np.isfinite(int8.encode_s).tolist() == [point == 1 for point in range(POINTS)]
    assert (int8.encode_s[1], int8.encode_least_s[1]) == (2.0, 0.5)
    assert (zstd.encode_least_s[1], zstd.encode_least_s[2]) == (1.0, 0.6)
    assert (zstd.decode_s[2], zstd.decode_least_s[2]) == (5.0, 3.0)
    assert np.isnan(zstd.decode_s[1])
    assert (zstd.payload_bytes[2], zstd.wire_bytes[2]) == (200, 150)
    assert int8.wire_least_bytes[1] == 25, "it makes as many bytes of whatever crosses"
    least = zstd.wire_least_bytes[1:3]
    assert least.tolist() == [70, 120] if is_all else np.isnan(least).all(), "another image may be smaller"
