"""What a worker at either end reports of a trial: taken from real ones, of SqueezeNet at point 5, over loopback.

But for the throughput phase, whose requests come at even intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pareto.protocol.messages import Cuda, Facts, Split
from pareto.protocol.trial_messages import (
    Length,
    Phases,
    Requests,
    RunTrial,
    TcpConnection,
    TrialReport,
    Usage,
)
from pareto.trial.result import HostReport, TrialResult

TRIAL: dict[str, Any] = {
    "latency_s": 0.01304, "latency_p95_s": None, "loaded_latency_s": 0.08794, "loaded_latency_p95_s": None,
    "edge_s": 0.001564, "work_s": 0.004655, "serialize_s": 0.0001176, "stages_s": [0.002292],
    "throughput_ips": 64.55, "sequential_ips": 73.37, "steady_s": None, "in_flight": 8, "prefetch": 0,
    "throughput_window": [28768.3124, 28768.4364], "throughput_window_requests": 8,
    "throughput_busy_s": 0.05236,
    "requests": {
        "latency": {
            "started_s": [2.474e-06, 0.01688, 0.03064, 0.04304],
            "finished_s": [0.01685, 0.03061, 0.04299, 0.05463],
            "edge_s": [0.003234, 0.001598, 0.00153, 0.001317],
            "serialize_s": [0.0001248, 0.0001104, 4.277e-05, 0.0001265],
            "stages_s": [[0.002448], [0.00203], [0.01044], [0.002136]],
        },
        "throughput": {
            "started_s": [0.0003385 + 0.0095 * number for number in range(17)],
            "finished_s": [0.02784 + 0.01224 * number for number in range(17)],
            "edge_s": [0.001498, 0.009548, *[0.001092] * 15],
            "serialize_s": [0.0001563, *[7.21e-05] * 16],
            "stages_s": [[0.002267], [0.00235], [0.01224], *[[0.002349]] * 14],
        },
    },
    "gpu_s": None, "payload_bytes": 50176, "result_bytes": 4000, "max_abs_error": 0.0, "tolerance": 0.000351,
    "coded": None, "sent_bytes": 1147060, "received_bytes": 1147060, "retransmits": 0, "cpu_percent": 32.26,
    "rss_bytes": 374337536, "peak_rss_bytes": 374337536, "trial_window": [28768.2297, 28768.5087],
    "measured_s": 0.279,
    "tcp": {
        "congestion": "bbr", "tcp_connections": 2, "tcp_retransmits": 0, "tcp_cwnd_packets": 35,
        "tcp_rtt_s": 0.001756, "tcp_min_rtt_s": 8e-06, "tcp_delivery_rate_bps": 21382204080.0,
    },
}  # fmt: skip
"""Of the edge."""

USAGE: dict[str, Any] = {
    "cpu_percent": 32.5, "rss_bytes": 374337536, "peak_rss_bytes": 374337536, "gpu_s": None,
    "trial_window": [28768.2047, 28768.4985], "throughput_window": [28768.2949, 28768.4307],
    "throughput_window_requests": 8, "steady_s": 0.0125, "throughput_busy_s": 0.02874, "sent_bytes": None,
    "received_bytes": None, "retransmits": None,
}  # fmt: skip
"""Of the server."""

READING: dict[str, Any] = {
    "rtt_s": 0.0101, "rtts_s": [0.0101, 0.0102, 0.0101], "rate_bps": 9.6e7, "rate_back_bps": 9.6e7,
    "payload_share": 0.9564, "ping_bytes": 83,
    "sample": {"sent": 50, "received": 49, "duplicates": 0, "reordered": 1}, "sample_back": None,
    "message_s": None,
}  # fmt: skip
"""Of the link, as the edge's probe has it."""

SERIES: dict[str, Any] = {
    "at_s": [28736.0 + 0.05 * number for number in range(12)], "cpu_percent": [None, *[50.0] * 11],
    "rss_bytes": [374_394_880] * 12, "temperature_c": [52.0] * 12, "frequency_hz": [1.5e9] * 12,
    "throttled": [0] * 12, "energy_j": [0.25 * number for number in range(12)], "power_w": [None] * 12,
    "counted_j": [None] * 12, "integrated_j": [None] * 12, "gpu_temperature_c": [None] * 12,
    "gpu_percent": [None] * 12, "gpu_memory_bytes": [None] * 12, "gpu_clock_hz": [None] * 12,
    "busy_s": [0.02 * number for number in range(12)], "others_s": [0.001 * number for number in range(12)],
    "steal_s": [0.0] * 12, "waited_s": [0.0] * 12, "throttled_s": [0.0] * 12,
}  # fmt: skip
"""Of a host's sensors, as its monitor collects them."""

TRIAL_REQUEST = RunTrial(
    split=Split((5,), 1, "tcp"), interface="lo", peer="127.0.0.1", warmup_requests=1, latency=Length(1, 0.0),
    throughput=Length(1, 0.0), transfer_s=0.0, in_flight=None,
)  # fmt: skip

_OF_HOST = ("baseline_s", "weights_bytes", "idle_power_w")
_STEADY = {"trial_window": (0.0, 1e6), "throughput_window": (0.0, 1e6), "throughput_window_requests": 1}
_NOTHING = dict.fromkeys(field.name for field in fields(Usage))
_NO_FIGURES = dict.fromkeys(field.name for field in fields(TrialReport))


def result_of(told: Mapping[str, Mapping[str, Any]]) -> TrialResult:
    """What hosts report of a trial, by role, the edge's figures first; what is left out is not measured."""
    edge_role, *others = told
    of_edge = {name: value for name, value in told[edge_role].items() if name not in _OF_HOST}
    strangers = of_edge.pop("strangers_percent", None)
    columns = {name: [] for name in ("started_s", "finished_s", "edge_s", "serialize_s", "stages_s")}
    rows = len(of_edge["requests"]["latency"]["stages_s"])
    phases = {
        phase: Requests(**{name: [0.0] * rows for name in columns} | dict(given))
        for phase, given in of_edge["requests"].items()
    }
    tcp = of_edge.get("tcp")
    edge = TrialReport(
        **{
            **_NO_FIGURES, **{"throughput_busy_s": 0.0, "measured_s": 0.0}, **_STEADY, **of_edge,
            "requests": Phases(**{"throughput": phases["latency"], **phases}),
            "tcp": TcpConnection(**tcp) if tcp else None,
        }
    )  # fmt: skip
    usages = {
        role: Usage(**_NOTHING | {name: value for name, value in told[role].items() if name not in _OF_HOST})
        for role in others
    }
    hosts = {
        role: HostReport(usage, *(told[role].get(name) for name in _OF_HOST))
        for role, usage in {edge_role: edge, **usages}.items()
    }
    return TrialResult(edge, hosts, strangers, is_local="strangers_percent" in told[edge_role])


def facts(pid: int, gpu: str | None = None) -> Facts:
    """What a host says of itself, with this GPU."""
    cuda = Cuda(0, "a GPU", gpu, "9.0", 1 << 36, None, "13.0", 91300, True, False) if gpu else None
    versions = {"kernel": "6.18", "python": "3.11.7", "torch": "2.13.0", "torchvision": "0.28.0"}
    return Facts(
        **{"hostname": "a-host", "pid": pid, "machine": "x86_64", "cpu": "a CPU", "cores": [0], **versions},
        **{
            "governor": None, "memory_bytes": 1 << 33, "swap_bytes": 0, "threads": 1,
            "collects_garbage": False, "allocator": "tuned",
        },
        **{"congestion_control": "cubic", "slow_start_after_idle": "1", "device": "cpu", "cuda": cuda},
    )  # fmt: skip


CODEC_RUNS: dict[str, Any] = {
    "payload_bytes": [100, 200], "encode_s": [[0.1] * 4] * 2, "encode_again_s": [[0.05] * 8] * 2,
    "decode_s": [[0.2] * 4] * 2, "decode_again_s": [[0.15] * 8] * 2, "wire_bytes": [[25] * 4, [90] * 4],
}  # fmt: skip
UNIT_RUNS: dict[str, Any] = {
    "units_s": [[0.001, 0.002]] * 6, "whole_s": [0.003] * 6, "outside_s": [0.0] * 6,
    "peak_bytes": [1 << 20, 2 << 20], "steady": [],
}  # fmt: skip
