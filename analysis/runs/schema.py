"""The columns of a run's tables: what is text, what is counted, what is measured, and what an older run may lack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

STATUSES = ("ok", "invalid", "failed")
# fmt: off
TEXT = frozenset((
    "run", "model", "point", "point_name", "backend", "netem", "codec", "in_flight_asked", "status", "reason",
    "bound_by", "busiest", "host", "congestion", "started_at",
    "at", "link", "trial", "when", "verdict",
    # Bits in hex, not quantities: kept as written.
    "edge_throttled", "server_throttled", "throttled", "full_cores",
))
FREE = frozenset(("reason",))
"""Text of any length and lines: what a worker had to say. All other text is names."""
WHOLE = frozenset(("batch_size", "round", "position"))
POSITIVE = frozenset((
    "latency_s", "latency_p95_s", "loaded_latency_s", "loaded_latency_p95_s",
    "throughput_ips", "throughput_bound_ips", "probed_throughput_bound_ips", "sequential_ips", "pipeline_gain",
    "in_flight", "edge_slowdown", "server_slowdown", "slowdown",
))
NOT_NEGATIVE = frozenset((
    "latency_bound_s", "probed_latency_bound_s", "edge_s", "serialize_s", "middle_s", "server_s",
    "compute_s", "best_s", "baseline_s", "payload_bytes", "result_bytes", "top1", "top1_images",
    "energy_j", "edge_energy_j", "server_energy_j", "first_unit", "last_unit",
    "asked_rtt_s", "asked_rate_bps", "asked_rate_back_bps", "rtt_s", "rate_bps", "rate_back_bps",
))
"""Differences, such as `network_s`, may be a little below 0 by the clocks' grain."""
_HOST = r"(?:edge|middle[0-9]{0,3}|server)"
FORMS = {
    "point": re.compile(r"[0-9]{1,6}(?:\+[0-9]{1,6}){0,31}"),
    "in_flight_asked": re.compile(r"|auto|[0-9]{1,6}"),
    "host": re.compile(_HOST),
    **dict.fromkeys(("model", "netem", "backend"), re.compile(".+")),
    **dict.fromkeys(("bound_by", "busiest"), re.compile(rf"|{_HOST}|{_HOST}-{_HOST} (?:out|back)")),
}
"""What text is taken apart must be like."""
COLUMNS = (
    "run", "model", "point", "point_name", "backend", "netem", "batch_size", "codec", "in_flight_asked", "round",
    "status", "reason",
    "latency_s", "latency_p95_s", "edge_s", "serialize_s", "network_s", "middle_s", "server_s",
    "edge_slowdown", "server_slowdown", "latency_bound_s",
    "throughput_ips", "throughput_bound_ips", "bound_by", "in_flight",
    "probed_latency_bound_s", "probed_throughput_bound_ips",
    "busiest", "busiest_utilization", "loaded_latency_s", "loaded_latency_p95_s",
    "sequential_ips", "pipeline_gain",
    "payload_bytes", "result_bytes", "latency_requests", "throughput_requests", "max_abs_error",
    "top1", "top1_images", "rtt_s", "rate_bps", "loaded_rate_bps", "link_seed",
    "retransmits", "dropped_packets", "trace_from_s", "trace_to_s",
    "congestion", "tcp_connections", "tcp_retransmits", "tcp_cwnd_packets",
    "tcp_rtt_s", "tcp_min_rtt_s", "tcp_delivery_rate_bps",
    "edge_cpu_percent", "server_cpu_percent", "edge_rss_bytes", "server_rss_bytes",
    "edge_peak_rss_bytes", "server_peak_rss_bytes", "edge_temperature_c", "server_temperature_c",
    "edge_frequency_hz", "server_frequency_hz", "edge_throttled", "server_throttled",
    "edge_steal_percent", "server_steal_percent", "edge_others_percent", "server_others_percent",
    "edge_wait_percent", "server_wait_percent", "edge_core_percent", "server_core_percent", "strangers_percent",
    "full_cores",
    "edge_energy_j", "server_energy_j", "edge_active_energy_j", "server_active_energy_j",
    "edge_gpu_percent", "server_gpu_percent",
    "edge_gpu_memory_bytes", "server_gpu_memory_bytes", "edge_gpu_s", "server_gpu_s",
    "started_at", "wall_s", "restart",
)
# Runs made before these were written lack them: there they are empty, as not measured.
LATER = (
    "restart",
    "probed_latency_bound_s", "probed_throughput_bound_ips", "loaded_rate_bps", "link_seed",
    "edge_slowdown", "server_slowdown",
    "edge_steal_percent", "server_steal_percent", "edge_others_percent", "server_others_percent",
    "edge_wait_percent", "server_wait_percent", "edge_core_percent", "server_core_percent", "strangers_percent",
    "full_cores",
    "in_flight_asked", "sequential_ips", "pipeline_gain", "dropped_packets", "trace_from_s", "trace_to_s",
    "congestion", "tcp_connections", "tcp_retransmits", "tcp_cwnd_packets",
    "tcp_rtt_s", "tcp_min_rtt_s", "tcp_delivery_rate_bps",
    "middle_s", "bound_by", "busiest", "busiest_utilization", "loaded_latency_s", "loaded_latency_p95_s",
    "top1", "top1_images",
    "edge_peak_rss_bytes", "server_peak_rss_bytes", "server_temperature_c", "edge_frequency_hz",
    "server_frequency_hz", "server_throttled", "edge_gpu_percent", "edge_gpu_memory_bytes",
    "server_gpu_memory_bytes", "edge_gpu_s", "server_gpu_s", "edge_active_energy_j", "server_active_energy_j",
)
LOAD = ("steal_percent", "others_percent", "wait_percent", "core_percent")
STAGE_COLUMNS = (
    "run", "model", "point", "backend", "netem", "batch_size", "codec", "in_flight_asked", "round", "position", "host",
    "first_unit", "last_unit", "compute_s", "best_s", "baseline_s", "slowdown", "utilization", "bubble_s",
    "payload_bytes", "transfer_s", "return_s", "cpu_percent", "rss_bytes", "peak_rss_bytes", "weights_bytes",
    "temperature_c", "throttled", "energy_j", "active_energy_j", *LOAD,
)
LINK_COLUMNS = (
    "at", "model", "netem", "link", "trial", "when", "verdict", "reason",
    "asked_rtt_s", "asked_rate_bps", "asked_rate_back_bps", "rtt_s", "rate_bps", "rate_back_bps",
    "asked_loss", "asked_loss_back", "datagrams", "loss", "loss_back", "position_s",
)
LATER_LINK = ("link", "when", "asked_loss", "asked_loss_back", "datagrams", "loss", "loss_back", "position_s")
# fmt: on


@dataclass(frozen=True)
class Table:
    """A file of a run: its name, its columns, and which of them an older run may lack."""

    file: str
    columns: tuple[str, ...]
    later: tuple[str, ...] = ()
    formerly: Mapping[str, str] = field(default_factory=dict)
    """What an older run calls a column: its name there, and that of now."""


TRIALS = Table("trials.csv", COLUMNS, LATER, {"bottleneck": "bound_by"})
STAGES = Table(
    "stages.csv", STAGE_COLUMNS, ("in_flight_asked", "baseline_s", "slowdown", "active_energy_j", *LOAD)
)
LINKS = Table("link.csv", LINK_COLUMNS, LATER_LINK)
