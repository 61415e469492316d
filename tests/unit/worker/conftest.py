"""Workers in this process, connected over loopback, with a small model."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pareto.models import codec_results
from pareto.partitions import model as partitioned
from pareto.partitions import proof, weights
from pareto.partitions.recipe import Recipe
from pareto.protocol import messages
from pareto.protocol.messages import LoadModel, LoadStage, Split
from pareto.protocol.trial_messages import Length, RunTrial, TrialReport
from pareto.remote.backends.tcp import TcpServer
from pareto.remote.codecs.registry import parse
from pareto.remote.worker import device
from pareto.remote.worker.probe import ProbeClient, ProbeServer
from pareto.remote.worker.worker import Worker
from tests.unit.backends.builders import HERE, TOKEN, keys
from tests.unit.small_models import small

MODEL = "squeezenet1_1_64_pixels"
RECIPE = Recipe(MODEL)
LAST = 12
CODED = [(0, 0), (2, 6), (3, LAST)]
"""Splits whose results through codecs are known."""
ENCRYPTED = ("tcp:tls", "tcp:3:tls")
AT_EDGE: dict[str, Any] = {"position": 0, "interface": None}


@pytest.fixture(scope="module")
def model() -> Iterator[None]:
    with small("squeezenet1_1", 64) as name:
        assert name == MODEL
        yield


@pytest.fixture(scope="module")
def loading(model: None, one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The fields of a small model's `LoadModel`."""
    folder = tmp_path_factory.mktemp("load")
    made = weights.make(MODEL, "seeded", 3, folder)
    model = partitioned.load(RECIPE, made)
    inputs = torch.randn(2, 1, *model.inputs[0].shape, generator=torch.Generator().manual_seed(1))
    references = torch.stack([proof.reference(model, batch)[0] for batch in inputs])
    tensors = {"input0": inputs, "reference0": references}
    coded = codec_results.expected(
        model, tensors, CODED, [*map(parse, ("int8", "fp16", "uint4:channel"))]
    ).references
    save_file({**tensors, **coded}, folder / "data")
    files = {"weights": {str(made): made.stem}, "digest": made.stem}
    return {"recipe": asdict(RECIPE), **files, "data": [str(folder / "data")]}


def run_trial(split: Split, prefetch: int = 0) -> RunTrial:
    """The request for a trial of a few requests over loopback."""
    length: dict[str, Any] = {"latency": Length(4, 0.0), "throughput": Length(4, 0.0), "warmup_requests": 2}
    where: dict[str, Any] = {"peer": "127.0.0.1", "interface": "lo"}
    return RunTrial(split=split, transfer_s=0.001, in_flight=None, prefetch=prefetch, **length, **where)


def asked(*cuts: int, backend: str = "tcp", codec: str = "none", engine: str = "eager") -> Split:
    return Split(cuts, 1, backend, codec, engine)


def requests_of(report: TrialReport) -> int:
    return len(report.requests.latency.started_s) + len(report.requests.throughput.started_s)


TRANSPORTS = ["tcp", "tcp:3", *ENCRYPTED]


class Chain:
    """Workers in this process, connected over loopback: two, or more with `hosts`."""

    def __init__(self, loading: dict[str, Any], hosts: int = 2) -> None:
        self.hosts = [Worker(device.named("cpu")) for _ in range(hosts)]
        self.edge, *_, self.server = self.hosts
        self.ports: dict[Worker, dict[str, int]] = {}
        for near, far in itertools.pairwise(self.hosts):
            self.ports[near] = far.listen(messages.Listen("127.0.0.1", "t", TRANSPORTS, keys()))
        self.connect()
        for worker in self.hosts:
            worker.load(LoadModel(**loading if worker is self.edge else {**loading, "data": []}))

    def connect(self) -> None:
        for near, ports in self.ports.items():
            near.connect(messages.Connect("127.0.0.1", "t", ports, TRANSPORTS, keys()))

    def stage(self, *cuts: int, **how: str) -> list[messages.StageLoaded]:
        """how: backend, codec, engine."""
        return [self.stage_at(position, *cuts, **how) for position in range(len(self.hosts))]

    def stage_at(self, position: int, *cuts: int, **how: str) -> messages.StageLoaded:
        interface = "lo" if position < len(self.hosts) - 1 else None
        return self.hosts[position].stage(LoadStage(asked(*cuts, **how), position, interface))

    def trial(self, *cuts: int, prefetch: int = 0, **how: str) -> TrialReport:
        report = self.edge.trial(run_trial(asked(*cuts, **how), prefetch))
        assert isinstance(report, TrialReport)
        return report


@pytest.fixture(scope="module")
def pair(loading: dict[str, Any], one_thread: None) -> Chain:
    return Chain(loading)


@pytest.fixture(scope="module")
def three(loading: dict[str, Any], one_thread: None) -> Chain:
    return Chain(loading, hosts=3)


@pytest.fixture
def server() -> Iterator[TcpServer]:
    with closing(TcpServer(HERE, TOKEN)) as server:
        yield server


@pytest.fixture
def probing() -> Iterator[ProbeServer]:
    with closing(ProbeServer(HERE, "t")) as server:
        yield server


@pytest.fixture
def client(probing: ProbeServer) -> Iterator[ProbeClient]:
    with closing(ProbeClient(HERE, probing.port, "t")) as client:
        yield client


def now_s() -> float:
    """By the clock that other processes read, too: for an order, not for how long something took."""
    return time.monotonic()  # noqa: TID251
