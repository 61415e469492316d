"""One trial on the first device: warm-up, latency phase, throughput phase, and the proof that it was real."""

from __future__ import annotations

import functools
import gc
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from pareto.backends.base import Client
from pareto.worker import host, phases
from pareto.worker.device import Device
from pareto.worker.phases import Length, Phase, Sample
from partitions import proof
from partitions.stage import Stage


@dataclass(frozen=True)
class Data:
    """Inputs, each a batch, and what the whole model makes of them."""

    inputs: Sequence[Tensor]
    references: Sequence[Tensor]


def run(
    client: Client,
    device: Device,
    stage: Stage,
    data: Data,
    *,
    warmup_requests: int,
    latency: Length,
    throughput: Length,
    transfer_s: float,
    interface: str,
) -> dict[str, Any]:
    """Times in seconds, per request and summed up; see the keys.

    Nothing is timed unless the warm-up's results are the whole model's: else the report says only how far off.

    `transfer_s` is what the link needs at least for one payload or result: with the stage times it decides how
    many requests must be in flight.

    Windows are on this host's `time.monotonic`, for setting this host's other metrics beside them: the trial's two
    phases, and the part of the second from its first completion to its last, with the completions after the first.
    """
    compute = functools.partial(device.run, stage)
    peak = host.PeakMemory()
    peak.begin()
    batch_size = data.inputs[0].shape[0]
    payload = compute((data.inputs[0],))
    tolerance = min(proof.tolerance(reference) for reference in data.references)
    payload_bytes = 0 if isinstance(client, phases.NoLink) else sum(t.nbytes for t in payload)
    with _no_collection():
        warm = phases.latency(client, compute, data.inputs, Length(warmup_requests, 0.0))
        proven = {"max_abs_error": _error([warm], data), "tolerance": tolerance}
        if not proven["max_abs_error"] <= tolerance:
            return proven
        device.forget()
        before = host.counters(interface)
        lone = phases.latency(client, compute, data.inputs, latency)
        edge_s, server_s = _median(lone, "edge_s"), _median(lone, "server_s")
        slowest_s = max(edge_s or 0.0, server_s or 0.0, transfer_s)
        latency_s = statistics.median(sample.latency_s for sample in lone.samples)
        depth = phases.in_flight(latency_s, slowest_s)
        many = phases.throughput(client, compute, data.inputs, throughput, slowest_s, depth)
        after = host.counters(interface)
    throughput_window, throughput_window_requests = phases.window(many)
    return {
        "latency_s": latency_s,
        "edge_s": edge_s,
        "serialize_s": _median(lone, "serialize_s"),
        "server_s": server_s,
        "gpu_s": device.gpu_s(),
        "throughput_ips": phases.rate(many.samples, batch_size),
        # the faster of the two phases: what the stage can do, for the bound
        "edge_best_s": _least_mean([lone, many], "edge_s"),
        "server_best_s": _least_mean([lone, many], "server_s"),
        "in_flight": depth,
        "payload_bytes": payload_bytes,
        "result_bytes": 0 if isinstance(client, phases.NoLink) else lone.outputs[0][1].nbytes,
        "max_abs_error": _error([warm, lone, many], data),
        "tolerance": tolerance,
        "sent_bytes": after.sent_bytes - before.sent_bytes,
        "received_bytes": after.received_bytes - before.received_bytes,
        "retransmits": after.retransmits - before.retransmits,
        "cpu_percent": 100 * (after.cpu_s - before.cpu_s) / (after.clock_s - before.clock_s),
        "rss_bytes": host.resident_bytes(),
        "peak_rss_bytes": peak.nbytes(),
        "trial_window": (before.clock_s, after.clock_s),
        "throughput_window": throughput_window,
        "throughput_window_requests": throughput_window_requests,
        "measured_s": after.clock_s - before.clock_s,
        "requests": {"latency": _columns(lone.samples), "throughput": _columns(many.samples)},
    }


@contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection in the middle of a request would be charged to it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _median(phase: Phase, column: str) -> float | None:
    values = [value for sample in phase.samples if (value := getattr(sample, column)) is not None]
    return statistics.median(values) if values else None


def _least_mean(measured: Sequence[Phase], column: str) -> float | None:
    means = []
    for phase in measured:
        values = [value for sample in phase.samples if (value := getattr(sample, column)) is not None]
        if values:
            means.append(statistics.fmean(values))
    return min(means) if means else None


def _error(measured: Sequence[Phase], data: Data) -> float:
    """The largest deviation of any result of the trial from the whole model's."""
    errors = (
        proof.max_abs_error(output, data.references[which])
        for phase in measured
        for which, output in phase.outputs
    )
    return max(errors, default=0.0)


def _columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    rows = [asdict(sample) for sample in samples]
    return {key: [row[key] for row in rows] for key in rows[0]}
