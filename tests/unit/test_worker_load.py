"""What a worker holds in memory, what it reports of a trial, and when: over loopback, and as a program by itself."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pareto.jsonlines import Refused
from pareto.worker import device, host
from pareto.worker.__main__ import Runs, Worker
from partitions import model as partitioned
from partitions import proof, registry, weights
from tests.program import Program

MODEL = "squeezenet1_1"
LAST = len(partitioned.describe(MODEL)[0]) - 1
MIB = 1 << 20


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The `load` request of a small model."""
    folder = tmp_path_factory.mktemp("load")
    made = weights.make(MODEL, "seeded", 3, folder)
    model = partitioned.load(MODEL, made.path)
    inputs = torch.randn(2, 1, *model.input_shape, generator=torch.Generator().manual_seed(1))
    references = torch.stack([proof.reference(model, batch) for batch in inputs])
    save_file({"inputs": inputs, "references": references}, folder / "data")
    return {"model": MODEL, "weights": str(made.path), "digest": made.digest, "data": [str(folder / "data")]}


class Pair:
    """Two workers in this process, connected over loopback."""

    def __init__(self, loading: dict[str, Any]) -> None:
        self.edge, self.server = Worker(device.named("cpu")), Worker(device.named("cpu"))
        ports = self.server.listen({"address": "127.0.0.1", "token": "t"})
        self.edge.connect({"address": "127.0.0.1", "token": "t", **ports})
        for worker in self.both:
            worker.load(loading)

    @property
    def both(self) -> tuple[Worker, Worker]:
        return self.edge, self.server

    def stage(self, point: int) -> list[dict[str, int]]:
        return [worker.stage({"point": point, "batch_size": 1}) for worker in self.both]

    def trial(self, point: int) -> dict[str, Any]:
        length = {"requests": 4, "seconds": 0.0}
        return self.edge.trial(
            {
                "point": point,
                "batch_size": 1,
                "backend": "tcp",
                "warmup_requests": 2,
                "latency": length,
                "throughput": length,
                "transfer_s": 0.001,
                "interface": "lo",
            }
        )


@pytest.fixture(scope="module")
def pair(loading: dict[str, Any]) -> Iterator[Pair]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Pair(loading)
    torch.set_num_threads(threads)


def test_both_devices_together_hold_the_model_once(pair: Pair) -> None:
    whole = sum(tensor.nbytes for tensor in registry.build_structure(MODEL).state_dict().values())
    for point in (0, 5, LAST, 1):
        edge, server = pair.stage(point)
        assert edge["weights_bytes"] + server["weights_bytes"] == whole
        assert {0: edge, LAST: server}.get(point, {"weights_bytes": 0})["weights_bytes"] == 0
        assert edge["rss_bytes"] > 0


def test_a_trial_tells_when_each_host_worked_on_its_own_clock(pair: Pair) -> None:
    before = time.monotonic()
    pair.stage(5)
    report = pair.trial(5)
    assert report["max_abs_error"] <= report["tolerance"]
    begin, end = report["trial_window"]
    first, last = report["throughput_window"]
    assert before < begin < first < last <= end < time.monotonic()
    requests = len(report["requests"]["throughput"]["started_s"])
    assert report["throughput_window_requests"] == requests - 1
    assert report["throughput_ips"] == pytest.approx((requests - 1) / (last - first))
    assert report["peak_rss_bytes"] >= report["rss_bytes"] * 0.9
    assert report["gpu_s"] is None
    usage = pair.server.usage({"requests": requests})
    served_first, served_last = usage["throughput_window"]
    began, ended = usage["trial_window"]
    assert before < began < served_first < served_last == ended < time.monotonic()
    assert served_first > begin  # here, and here only, both hosts are one
    assert usage["throughput_window_requests"] == requests - 1
    assert usage["peak_rss_bytes"] > 0
    assert usage["gpu_s"] is None


def test_nothing_served_is_no_window(pair: Pair) -> None:
    pair.stage(5)
    pair.trial(5)
    pair.stage(LAST)
    pair.trial(LAST)
    assert "trial_window" in pair.server.usage({})
    for usage in (pair.server.usage({"requests": 4}), pair.edge.usage({"requests": 4})):
        names = ("trial_window", "throughput_window", "throughput_window_requests")
        assert [usage[name] for name in names] == [None] * 3


def test_windows_are_of_the_last_runs_and_only_of_as_many_as_there_were() -> None:
    runs = Runs()
    for number in range(5):
        runs.note(number, number + 0.5)
    assert runs.windows(3) == {
        "trial_window": (0, 4.5),
        "throughput_window": (2.5, 4.5),
        "throughput_window_requests": 2,
    }
    for requests in (0, 1, 6):
        windows = runs.windows(requests)
        assert windows["trial_window"] == (0, 4.5)
        assert windows["throughput_window"] is windows["throughput_window_requests"] is None


def test_a_trial_of_what_was_not_staged_is_refused(pair: Pair, loading: dict[str, Any]) -> None:
    pair.stage(4)
    with pytest.raises(Refused, match="point 5 at batch size 1 is not what was staged"):
        pair.trial(5)
    pair.edge.load(loading)
    with pytest.raises(Refused, match="is not what was staged"):
        pair.trial(4)


def test_a_server_whose_stage_could_not_be_had_answers_nothing(
    loading: dict[str, Any], tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.write_bytes(Path(loading["weights"]).read_bytes())
    pair = Pair({**loading, "weights": str(own)})
    pair.stage(5)
    own.unlink()
    with pytest.raises(weights.WeightsError):
        pair.server.stage({"point": 4, "batch_size": 1})
    with pytest.raises(Exception, match="another model or point than the one served"):
        pair.trial(5)


def test_other_weights_are_refused_before_anything_is_let_go(pair: Pair, loading: dict[str, Any]) -> None:
    pair.stage(3)
    with pytest.raises(Refused, match="arrived damaged"):
        pair.edge.load({**loading, "digest": "0" * 64})
    assert "latency_s" in pair.trial(3)


def test_the_peak_is_that_since_its_beginning() -> None:
    peak = host.PeakMemory()
    assert peak.nbytes() is None
    peak.begin()
    before = peak.nbytes()
    if before is None:
        pytest.skip("this kernel does not let a process reset its peak")
    block = bytearray(128 * MIB)
    del block
    risen = peak.nbytes()
    assert risen is not None
    assert risen > before + 100 * MIB
    peak.begin()
    again = peak.nbytes()
    assert again is not None
    assert again < risen - 100 * MIB


def test_a_peak_that_cannot_begin_anew_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    peak = host.PeakMemory()
    peak.begin()
    monkeypatch.setattr(Path, "write_text", refused)
    peak.begin()
    assert peak.nbytes() is None


@pytest.fixture(scope="module")
def vgg16(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The `load` request of a model with 528 MiB of weights, all zero, and one input."""
    folder = tmp_path_factory.mktemp("vgg16")
    structure = registry.build_structure("vgg16").state_dict()
    save_file({key: torch.zeros(tensor.shape) for key, tensor in structure.items()}, folder / "weights")
    save_file(
        {"inputs": torch.ones(1, 1, 3, 224, 224), "references": torch.zeros(1, 1, 1000)}, folder / "data"
    )
    return {
        "model": "vgg16",
        "weights": str(folder / "weights"),
        "digest": weights.file_digest(folder / "weights"),
        "data": [str(folder / "data")],
    }


def test_a_small_stage_of_a_large_model_takes_little_memory(vgg16: dict[str, Any]) -> None:
    """Not after it was loaded, not after a larger one was held: or a device with 1 GB would not do."""
    with closing(Program("pareto.worker")) as worker:
        first = worker.result("load", **vgg16)["rss_bytes"]
        small = worker.result("stage", point=1, batch_size=1)
        whole = worker.result("stage", point=33, batch_size=1)
        # without the last layers, whose tensors are so large that freeing them always gives them back
        _, _, features, again = (
            worker.result("stage", point=point, batch_size=1) for point in (31, 1, 31, 1)
        )
    assert whole["weights_bytes"] > 500 * MIB
    assert small["weights_bytes"] == again["weights_bytes"] < MIB
    assert whole["rss_bytes"] - first > 0.9 * whole["weights_bytes"]
    assert whole["rss_bytes"] - first < 1.4 * whole["weights_bytes"]
    for stage in (small, again):
        assert stage["rss_bytes"] < first + 0.2 * whole["weights_bytes"]
    assert again["rss_bytes"] < small["rss_bytes"] + 0.5 * features["weights_bytes"]


def test_a_stage_too_large_for_this_host_is_refused_and_the_worker_lives(vgg16: dict[str, Any]) -> None:
    with closing(Program("pareto.worker")) as worker:
        worker.result("load", **vgg16)
        pid = worker.process.pid
        used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS, (used + 300 * MIB, resource.RLIM_INFINITY))
        refused = worker.reply("stage", point=33, batch_size=1)
        assert not refused["ok"]
        assert refused["error"].startswith("out of memory: can't allocate memory: you tried to allocate 4110")
        assert "\n" not in refused["error"]
        assert worker.result("stage", point=1, batch_size=1)["weights_bytes"] < MIB
        assert hard == resource.RLIM_INFINITY


def test_facts_say_where_the_worker_computes() -> None:
    with closing(Program("pareto.worker")) as worker:
        facts = worker.result("facts")
        assert facts["pid"] == worker.process.pid
    assert (facts["device"], facts["cuda"]) == ("cpu", None)
    assert facts["memory_bytes"] > facts["swap_bytes"] >= 0 or facts["swap_bytes"] > 0
