"""What a trial reports, and that it times nothing but the whole model; payloads by themselves, over real sockets."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from syrupy.assertion import SnapshotAssertion

from pareto.models import codec_results
from pareto.partitions import model as partitioned
from pareto.partitions import proof
from pareto.partitions.recipe import Recipe
from pareto.partitions.stage import Stage
from pareto.partitions.weights import file_digest
from pareto.protocol.jsonlines import Refused
from pareto.protocol.messages import (
    Connect,
    Listen,
    OwnCodec,
    Split,
)
from pareto.protocol.own import Own
from pareto.protocol.profile_messages import Expect, GetTaken, TimePayloads
from pareto.protocol.trial_messages import GetUsage, Length, Progress, RunTrial, WrongOutput
from pareto.remote.backends.base import Client, Layout, Tensors, layout
from pareto.remote.backends.tcp import TcpServer
from pareto.remote.codecs import camera, own, pictures
from pareto.remote.codecs.registry import Codec, parse
from pareto.remote.worker import device, trial
from pareto.remote.worker import pace as paces
from pareto.remote.worker.payloads import Answering
from pareto.remote.worker.phases import Phase, Sample
from pareto.remote.worker.trial import Data
from pareto.remote.worker.worker import Worker, _layout
from pareto.trial.codec_work import without_codecs
from tests.unit.backends.builders import HERE, Work, Works, opened, refusal
from tests.unit.codecs.test_pictures import jpeg
from tests.unit.own_codecs import ENTROPY, LEARNED, written
from tests.unit.worker.conftest import (
    CODED,
    LAST,
    MODEL,
    RECIPE,
    Chain,
    requests_of,
)

LOGITS = [torch.eye(5)[[0, 1]], torch.eye(5)[[2, 3]]]
"""Two inputs of two images; the edge's stage passes them on, and the whole model does nothing else."""
ALONE = tuple((logits,) for logits in LOGITS)
TAKES = layout(LOGITS[:1])


def run(
    client: Client,
    data: Data,
    *,
    requests: int = 5,
    transfer_s: float = 0.001,
    in_flight: int | None = None,
    codec: Codec | None = None,
    so_far: Callable[[Progress], None] | None = None,
) -> Any:
    length, split = Length(requests, 0.0), Split((0,), 2, "tcp")
    paced: dict[str, Any] = {
        "transfer_s": transfer_s,
        "in_flight": in_flight,
        "latency": length,
        "throughput": length,
    }
    request = RunTrial(split=split, warmup_requests=2, interface="lo", peer=HERE, **paced)
    return trial.run(client, device.Device(), Stage(None), data, request, codec, so_far=so_far)


def connected(server: TcpServer, heads: int = 1, seconds: float = 0.0) -> Client:
    """To a stage with several results that says it took `seconds`."""
    work: Work = lambda tensors: tuple(tensors[0] * (head + 1) for head in range(heads))  # noqa: E731
    return opened(server, Works(TAKES, work, seconds), TAKES * heads)


def test_every_result_is_compared_and_nothing_is_timed_where_any_is_wrong(
    server: TcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = tuple((logits, 2 * logits, 3 * logits) for logits in LOGITS)
    report = run(connected(server, 3), Data(ALONE, references))
    assert report.result_bytes == 3 * report.payload_bytes == 3 * LOGITS[0].nbytes
    assert report.max_abs_error == 0.0
    for wrong in (1, 2):
        other = tuple(tuple(each + (head == wrong) for head, each in enumerate(of)) for of in references)
        report = run(connected(server, 3), Data(ALONE, other))
        assert isinstance(report, WrongOutput)
        assert report.max_abs_error == 1 / (wrong + 2), "of the largest value of that result"
    # Only a long trial reports how far it is.
    told: list[Progress] = []
    run(connected(server), Data(ALONE, ALONE), so_far=told.append)
    assert told == []
    monkeypatch.setattr(trial, "WATCHED_S", 0.0)
    run(connected(server), Data(ALONE, ALONE), so_far=told.append)
    phases = ("warming up", "latency", "throughput")
    assert [(each.phase, each.requests) for each in told] == [(phase, 0) for phase in phases]
    told.clear()
    monkeypatch.setattr(trial, "PROGRESS_S", 0.0)
    run(connected(server), Data(ALONE, ALONE), requests=3, so_far=told.append)
    lone, many = ([each.requests for each in told if each.phase == phase] for phase in phases[1:])
    assert (lone, many) == ([0, 1, 2], [*range(len(many))])


def test_the_slowest_of_all_steps_sets_the_pace() -> None:
    def pacing(stage_s: float, transfer_s: float, in_flight: int | None) -> tuple[int, float]:
        lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625, stage_s))] * 3, [])
        return trial.pacing(lone, transfer_s, in_flight)

    assert pacing(0.25, 0.0, None) == (5, 0.25)
    assert pacing(0.0, 0.0, None) == (10, 0.125), "the edge's"
    assert [pacing(0.25, 0.5, asked) for asked in (None, 1, 9)] == [(3, 0.5), (1, 1.0), (9, 0.5)]
    lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625,), decode_s=0.25)] * 3, [])
    for ahead, alone, several in ((False, (1, 1.0), (4, 0.375)), (True, (1, 0.75), (4, 0.25))):
        # What is decoded ahead is a step of its own.
        assert trial.pacing(lone, 0.0, 1, ahead=ahead) == alone
        assert trial.pacing(lone, 0.0, None, ahead=ahead) == several


@pytest.mark.parametrize(("stage_s", "transfer_s"), [(0.02, 1e-6), (0.0, 10.0)], ids=["stage", "link"])
def test_a_trial_keeps_as_many_in_flight(server: TcpServer, stage_s: float, transfer_s: float) -> None:
    client = connected(server, 1, stage_s)
    report = run(client, Data(ALONE, ALONE), transfer_s=transfer_s)
    slowest_s = max(report.edge_s, *report.stages_s, transfer_s)
    assert report.in_flight == paces.in_flight(report.latency_s, slowest_s)
    one_by_one, many = report.requests.latency, report.requests.throughput
    of_stage = [seconds for (seconds,) in one_by_one.stages_s]
    assert report.stages_s == (statistics.median(of_stage),)
    assert {*of_stage, *itertools.chain(*many.stages_s)} == {stage_s}, "as the requests tell"
    sums = [a + sum(b) for a, b in zip(one_by_one.edge_s, one_by_one.stages_s, strict=True)]
    assert report.work_s == statistics.median(sums)
    for asked in (1, 7):
        assert run(client, Data(ALONE, ALONE), in_flight=asked).in_flight == asked


def test_a_data_file_gives_each_input_all_its_answers_and_those_through_a_codec() -> None:
    tensors = {
        "input0": torch.arange(6, dtype=torch.uint8).reshape(3, 2, 1, 1, 1),
        "reference1": torch.arange(3.0).reshape(3, 1) + 10,
        "reference0": torch.arange(3.0).reshape(3, 1),
        "int8@3+7.reference0": torch.full((3, 1, 4), 5.0),
    }
    found = Data.of(tensors)
    assert [it.flatten().tolist() for (it,) in found.inputs] == [[0, 1], [2, 3], [4, 5]]
    assert found.inputs[0][0].dtype == torch.uint8
    assert [[int(it) for it in answers] for answers in found.references] == [[0, 10], [1, 11], [2, 12]]
    assert [one.tolist() for (one,) in found.expected(parse("int8"), (3, 7))] == [[[5.0] * 4]] * 3
    with pytest.raises(Refused, match="no reference for int8@7"):
        found.expected(parse("int8+zstd"), (7,))


def coded_by(codec: Codec, inputs: tuple[torch.Tensor, ...], layouts: Layout) -> list[Tensors]:
    return [codec.decode(codec.encode((one,)), layouts) for one in inputs]


def test_what_was_never_encoded_or_becomes_infinite_is_wrong_through_a_codec(server: TcpServer) -> None:
    codec, inputs = parse("uint4"), (torch.randn(2, 90),)
    coded = tuple(coded_by(codec, inputs, layout(inputs)))
    known = Data((inputs,), (inputs,), coded={"uint4@0": coded})
    with closing(opened(server, Works(layout(inputs), tuple), layout(inputs))) as client:
        # The edge has no codec either: both ends left it out.
        report = run(client, Data((inputs,), coded), codec=None)
    assert isinstance(report, WrongOutput)
    assert known.tolerance(known.expected(codec, (0,))) < report.max_abs_error
    codec, inputs = parse("fp16"), (torch.tensor([[1e6, 1.0]]),)
    known = Data((inputs,), (inputs,), coded={"fp16@0": tuple(coded_by(codec, inputs, layout(inputs)))})
    assert known.tolerance(known.expected(codec, (0,))) == proof.TOLERANCE
    assert known.changed(known.expected(codec, (0,))) == float("inf")


def test_a_users_own_backend_need_not_know_of_seals(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text(
        "from pareto.remote.backends import tcp\n"
        "class Bare:\n"
        "    def serve(self, address, token):\n        return tcp.serve(address, token)\n"
        "    def connect(self, address, port, token, variant):\n"
        "        return tcp.connect(address, port, token, variant)\n"
    )
    name, made = "bare.Bare", [Own("bare.Bare", str(file), "Bare", "bare.py")]
    near, far = (Worker(device.named("cpu")) for _ in range(2))
    near.connect(Connect(HERE, "t", far.listen(Listen(HERE, "t", [name], own=made)), [name], own=made))
    far.payloads.expect(Expect(name, 8, 1))
    assert len(near.payloads.time(TimePayloads(name, 8, 1, "lo", None)).seconds) == 1


def test_two_workers_time_payloads_between_them(snapshot: SnapshotAssertion) -> None:
    """By whatever backends, which may have a server in common, and again after the far end served something else."""
    near, far = (Worker(device.named("cpu")) for _ in range(2))
    refusal(far.payloads.taken, GetTaken(), by=Refused)
    both = ["tcp", "tcp:2"]
    near.connect(Connect(HERE, "t", far.listen(Listen(HERE, "t", both)), both))
    trips = [("tcp", 4, None), ("tcp:2", 4_000, None), ("tcp", 4_000, None), ("tcp", 3_000_000, None)]
    streams = [("tcp", 200_000, in_flight) for in_flight in (1, 4)]
    for (backend, nbytes, in_flight), count in itertools.product((*trips, *streams), (1, 5)):
        far.payloads.expect(Expect(backend, nbytes, count, kept=True))
        report = near.payloads.time(TimePayloads(backend, nbytes, count, "lo", in_flight))
        taken = far.payloads.taken(GetTaken())
        assert (taken.count, taken.same) == (count, True)
        assert len(report.seconds) == (1 if in_flight else count)
        assert min(report.seconds) > 0
        assert report.sent_bytes >= count * nbytes
        far._servers["tcp"].serve(Answering(8))
    time = TimePayloads("tcp", 4_000, 1, "lo", None)
    assert refusal(near.payloads.time, time) == snapshot(name="something else is expected")


# Of whole workers, through codecs and files.


@pytest.mark.parametrize(
    ("codec", "cuts", "backend"),
    [
        *(("int8", cuts, "tcp") for cuts in CODED),
        *((codec, CODED[1], "tcp:3") for codec in ("fp16", "uint4:channel", "zstd", "lz4", "int8+lz4")),
    ],
)
def test_each_link_carries_what_the_codec_makes(
    three: Chain, codec: str, cuts: tuple[int, ...], backend: str
) -> None:
    """The results are the same to the last bit as those of one process that encodes at the same cuts."""
    three.stage(*cuts, codec=codec, backend=backend)
    report = three.trial(*cuts, codec=codec, backend=backend)
    assert report.max_abs_error == 0.0
    requests = requests_of(report)
    usages = [worker.usage(GetUsage(coded=requests)) for worker in three.hosts[1:]]
    taking_part = sum(cut < LAST for cut in cuts)
    assert [usage.coded is not None for usage in usages] == [place < taking_part for place in range(2)]
    points = partitioned.describe(RECIPE)[0]
    hosts = [report.coded, *(usage.coded for usage in usages if usage.coded is not None)]
    for place, coded in enumerate(hosts):
        assert len(coded.decode_s) == len(coded.wire_bytes) == requests
        assert (min(coded.decode_s) > 0) == (place > 0)
        if place == taking_part:
            assert set(coded.wire_bytes) == {0}, "nothing goes on from here"
            continue
        payload = points[cuts[place]].payload_bytes
        if codec in ("fp16", "int8"):
            assert set(coded.wire_bytes) == {{"fp16": payload // 2, "int8": payload // 4 + 8}[codec]}
        else:
            assert 0 < max(coded.wire_bytes) < payload + 1000
    plainly = without_codecs(report, usages)
    assert all(after < before for after, before in zip(plainly.stages_s, report.stages_s, strict=True))


@pytest.mark.parametrize(("name", "behind"), [("Bottleneck", ""), ("Bottleneck", "+lz4"), ("Entropy", "")])
def test_an_own_codec_differs_by_link(
    loading: dict[str, Any], tmp_path: Path, name: str, behind: str
) -> None:
    """The results are those of one process to the last bit, whatever random numbers a host draws."""
    file = written(tmp_path, {"Bottleneck": LEARNED, "Entropy": ENTROPY}[name])
    cuts, codec = CODED[1], f"{name}{behind}"
    model = partitioned.load(RECIPE, Path(*loading["weights"]))
    places = [
        own.Cut.of(MODEL, cut, model.points[cut].name, _layout(model.points[cut].payload, 1)) for cut in cuts
    ]
    (bound,) = own.bound([parse(f"{file}:{codec}")], places, seed=5)
    ((path,), state) = loading["data"], tmp_path / "state"
    known = load_file(path)
    coded = codec_results.expected(model, known, [cuts], [bound]).references
    save_file({**known, **coded}, tmp_path / "data")
    steps: Any = bound.made
    save_file(own.state_of(steps), state)
    sent = OwnCodec(Own(name, str(file), name, "b.py"), str(state), file_digest(state), 5, own.cuts_of(steps))
    three = Chain({**loading, "data": [str(tmp_path / "data")], "codecs": [sent]}, hosts=3)
    three.stage(*cuts, codec=codec)
    report = three.trial(*cuts, codec=codec)
    assert report.max_abs_error == 0.0
    assert report.coded is not None
    payload = partitioned.describe(RECIPE)[0][cuts[0]].payload_bytes
    assert 0 < max(report.coded.wire_bytes) < payload
    with pytest.raises(Refused, match="is no codec"):
        three.stage(*cuts, codec="Other")


def test_requests_begin_with_files_which_either_host_decodes(loading: dict[str, Any], tmp_path: Path) -> None:
    recipe = Recipe(MODEL, input="uint8")
    model = partitioned.load(recipe, Path(*loading["weights"]))
    crop = camera.crop_for(MODEL, (3, 64, 64))
    files = [jpeg(1), jpeg(2, quality=30)]
    inputs = torch.stack([camera.pixels(file, crop)[None] for file in files])
    references = torch.stack([proof.reference(model, batch)[0] for batch in inputs])
    framed = {f"file{number}": pictures.joined([file]) for number, file in enumerate(files)}
    save_file({"input0": inputs, "reference0": references, **framed}, tmp_path / "data")
    sizes = {len(file) for file in files}
    changed = {"recipe": asdict(recipe), "data": [str(tmp_path / "data")], "file_bytes": max(sizes)}
    pair = Chain({**loading, **changed})
    of_stage = model.points[3].payload_bytes
    for codec, cut, sent in (
        ("none", 0, {3 * 64 * 64}),
        ("file", 0, sizes),
        ("none", 3, {of_stage}),
        ("none", LAST, {0}),
    ):
        pair.stage(cut, codec=codec)
        report = pair.trial(cut, codec=codec, prefetch=2)
        assert report.prefetch == (2 if codec == "none" else 0)
        behind = pair.server.usage(GetUsage(requests_of(report), 2, requests_of(report))).coded
        assert report.coded is not None
        assert set(report.coded.wire_bytes) == sent
        assert all(each > 0 for each in report.coded.decode_s) == (codec == "none")
        assert (behind is not None and all(each > 0 for each in behind.decode_s)) == (codec == "file")
