"""Every column of a run's files, once: its name and what it may hold; results/README.md says what it means.

`pareto.trial.store` writes these columns, `analysis.runs` reads them, and both by the same rules: a run writes nothing
that a report would refuse. Only the standard library is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from pareto import DATA
from pareto.basics.escaping import short

CELL = (
    *("model", "point", "backend", "netem", "batch_size"),
    *("codec", "engine", "in_flight_asked", "prefetch_asked", "allocator", "load"),
)
"""The columns that say which cell a row is of."""
USUAL = {
    "codec": "none",
    "engine": "eager",
    "in_flight_asked": "auto",
    "prefetch_asked": "0",
    "allocator": "tuned",
    "load": "none",
}
"""The factors of a trial, and what it did that says nothing of one: this goes without saying."""
LETTERS = {"batch_size": "b", **dict.fromkeys(USUAL, ""), "in_flight_asked": "d", "prefetch_asked": "p"}
"""The letters before the value of a factor in the names of files, in their order there."""
LATENCY_ONLY, THROUGHPUT_ONLY = "latency only", "throughput only"
STATUSES = ("ok", LATENCY_ONLY, THROUGHPUT_ONLY, "invalid", "failed")
STANDS = {"latency": ("ok", LATENCY_ONLY), "throughput": ("ok", THROUGHPUT_ONLY)}
"""The statuses of the trials whose latency, or throughput, can be trusted."""
ROUNDING = 1e-6
"""Figures are written with nine digits: one that is beyond its bound by less than this share may be within it."""
BETWEEN = "; "
"""Between several names in one column."""


class Kind(Enum):
    """The values of a column. In a CSV file every number but a whole one may be empty: it was not measured."""

    NAME = auto()
    """Short printable text."""
    FREE = auto()
    """Text of any length and lines."""
    WHOLE = auto()
    NUMBER = auto()
    POSITIVE = auto()
    NOT_NEGATIVE = auto()
    """Zero or more; a difference, which is a NUMBER, may be a little below 0 by the clocks' grain."""
    NUMBERS = auto()


@dataclass(frozen=True, eq=False)
class Table:
    """A file of a run, or a folder with a file for each trial; its columns in their order.

    kinds: of columns that are of another kind here than `KINDS` says.
    """

    file: str
    names: str
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.names.split())

    def kind(self, column: str) -> Kind:
        return self.kinds.get(column) or KINDS.get(column, Kind.NUMBER)

    def meanings(self) -> dict[str, str]:
        """The meaning of each column, as results/README.md says it; empty without that page."""
        page = DATA / "results" / "README.md"
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        section = text.partition(f"# {self.file}\n")[2].partition("\n#")[0]
        rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", section, re.MULTILINE)
        return {name: meaning for names, meaning in rows for name in re.findall(r"`(\w+)`", names)}


TRIALS = Table(
    "trials.csv",
    """
    run model point point_name backend netem batch_size codec engine in_flight_asked prefetch_asked allocator load
    round testbed stands_for status reason
    latency_s latency_p95_s edge_s encode_s decode_s serialize_s network_s middle_s server_s
    edge_slowdown server_slowdown latency_bound_s
    throughput_ips throughput_bound_ips bound_by in_flight prefetch
    probed_latency_bound_s probed_throughput_bound_ips busiest busiest_utilization
    loaded_latency_s loaded_latency_p95_s sequential_ips pipeline_gain
    offered_ips load_requests lateness_s load_fault load_latency_s load_latency_p95_s load_latency_p99_s
    completed_ips stability dropped_requests slo missed_requests goodput_ips independent_requests
    payload_bytes result_bytes wire_bytes latency_requests throughput_requests
    max_abs_error top1 top1_images agreement agreement_images output_error mean_iou map50
    changed_images wrong_images
    rtt_s rate_bps loaded_rate_bps link_seed retransmits dropped_packets trace_from_s trace_to_s
    secure congestion tcp_connections tcp_retransmits tcp_cwnd_packets tcp_rtt_s tcp_min_rtt_s
    tcp_delivery_rate_bps
    edge_cpu_percent server_cpu_percent edge_rss_bytes server_rss_bytes edge_peak_rss_bytes
    server_peak_rss_bytes edge_temperature_c server_temperature_c edge_frequency_hz server_frequency_hz
    edge_throttled server_throttled edge_steal_percent server_steal_percent edge_others_percent
    server_others_percent edge_wait_percent server_wait_percent edge_core_percent server_core_percent
    strangers_percent full_cores
    edge_energy_j server_energy_j edge_active_energy_j server_active_energy_j
    edge_gpu_percent server_gpu_percent edge_gpu_memory_bytes server_gpu_memory_bytes edge_gpu_s server_gpu_s
    edge_gpu_temperature_c server_gpu_temperature_c
    started_at wall_s restart
    """,
)
STAGES = Table(
    "stages.csv",
    """
    run model point backend netem batch_size codec engine in_flight_asked prefetch_asked allocator load
    round testbed position host first_unit last_unit
    compute_s best_s host_ips baseline_s slowdown utilization bubble_s payload_bytes transfer_s return_s
    cpu_percent rss_bytes peak_rss_bytes weights_bytes encode_s decode_s wire_bytes engine_s
    temperature_c throttled energy_j active_energy_j steal_percent others_percent wait_percent core_percent
    energy_source energy_ratio energy_doubt
    """,
)
LINKS = Table(
    "link.csv",
    """
    at model netem testbed link trial when verdict reason
    asked_rtt_s asked_rate_bps asked_rate_back_bps rtt_s rate_bps rate_back_bps
    asked_loss asked_loss_back datagrams loss loss_back position_s
    """,
)
STRUCK = Table(
    "struck.csv",
    """
    run model point point_name backend netem batch_size codec engine in_flight_asked prefetch_asked allocator load
    round how latency_s throughput_ips payload_bytes by_point by_backend probability
    """,
)
PROFILE = Table(
    "profile.csv",
    """
    host device batch_size threads cpu unit unit_name median_s low_s high_s least_s outside_s after_pause_s
    flops parameters parameter_bytes activation_bytes payload_bytes peak_bytes energy_j
    """,
)
BACKENDS = Table("backends.csv", "link backend payload_bytes trip_s link_s near_s far_s shaper_s")
CODECS = Table(
    "codecs.csv",
    """
    host batch_size codec point payload_bytes wire_bytes wire_least_bytes
    encode_s encode_least_s decode_s decode_least_s
    """,
)
REQUESTS = Table(
    "requests/",
    "phase scheduled_s started_s finished_s edge_s serialize_s server_s middle_s encode_s decode_s wire_bytes",
    {"phase": Kind.NAME, "middle_s": Kind.NUMBERS},
)
DEVICES = Table(
    "devices/",
    """
    host at_s cpu_percent rss_bytes temperature_c frequency_hz throttled energy_j power_w counted_j
    integrated_j gpu_temperature_c gpu_percent gpu_memory_bytes gpu_clock_hz busy_s others_s steal_s waited_s
    throttled_s
    """,
    dict.fromkeys(("rss_bytes", "throttled", "gpu_memory_bytes"), Kind.WHOLE),
)
TABLES = (TRIALS, STAGES, LINKS, STRUCK, PROFILE, BACKENDS, CODECS, REQUESTS, DEVICES)
_NOT_NUMBERS = {
    Kind.NAME: """
        run model point point_name backend netem codec engine in_flight_asked prefetch_asked allocator load testbed
        stands_for status slo stability bound_by busiest secure congestion edge_throttled server_throttled full_cores
        started_at host throttled at link trial when verdict how by_point by_backend device unit_name
        energy_source
    """,
    Kind.FREE: "reason energy_doubt changed_images wrong_images load_fault",
    Kind.WHOLE: "batch_size round position threads unit",
    Kind.POSITIVE: """
        latency_s latency_p95_s edge_slowdown server_slowdown throughput_ips throughput_bound_ips in_flight
        probed_throughput_bound_ips loaded_latency_s loaded_latency_p95_s sequential_ips pipeline_gain slowdown
        offered_ips load_latency_s load_latency_p95_s load_latency_p99_s cpu trip_s
    """,
    Kind.NOT_NEGATIVE: """
        completed_ips goodput_ips load_requests dropped_requests missed_requests independent_requests lateness_s
        host_ips edge_s encode_s decode_s serialize_s middle_s server_s latency_bound_s probed_latency_bound_s
        payload_bytes result_bytes wire_bytes top1 top1_images agreement agreement_images output_error mean_iou
        map50 rtt_s rate_bps edge_energy_j server_energy_j first_unit last_unit compute_s best_s baseline_s
        engine_s energy_j energy_ratio asked_rtt_s asked_rate_bps asked_rate_back_bps rate_back_bps probability
        median_s low_s high_s least_s outside_s flops parameters parameter_bytes activation_bytes peak_bytes link_s
        near_s far_s shaper_s wire_least_bytes encode_least_s decode_least_s
    """,
}
KINDS = {name: Kind.NUMBER for table in TABLES[:-2] for name in table.columns} | {
    name: kind for kind, names in _NOT_NUMBERS.items() for name in names.split()
}
"""The kind of each column, by its name, in whichever of the CSV files."""
TEXT = frozenset(name for name, kind in KINDS.items() if kind in (Kind.NAME, Kind.FREE))
_HOST = r"(?:edge|middle[0-9]{0,3}|server)"
FORMS = {
    "point": re.compile(r"[0-9]{1,6}(?:\+[0-9]{1,6}){0,31}"),
    "in_flight_asked": re.compile(r"|auto|[0-9]{1,6}"),
    "prefetch_asked": re.compile(r"|[0-9]{1,3}"),
    "host": re.compile(_HOST),
    **dict.fromkeys(("model", "netem", "backend"), re.compile(".+")),
    **dict.fromkeys(("bound_by", "busiest"), re.compile(rf"|{_HOST}|{_HOST}-{_HOST} (?:out|back)")),
}
"""The form of text that is taken apart, by column."""
LONGEST = 1000
"""Characters that a name may have. The longest are those of points in a chain."""
LEAST, MOST = 1e-12, 1e15
"""The bounds of numbers that others are divided by, in whatever unit: a picosecond, 30 million years. Nobody waits as
long, and beyond them ratios of figures are no numbers any more."""
MOST_WHOLE = 1_000_000
RANGES = {
    Kind.WHOLE: (0, MOST_WHOLE),
    Kind.NUMBER: (-MOST, MOST),
    Kind.POSITIVE: (LEAST, MOST),
    Kind.NOT_NEGATIVE: (0, MOST),
}
OWN_RANGES = {"batch_size": (1, MOST_WHOLE), "link_seed": (-MOST, 1e20)}
"""The numbers that can have been measured, by their kind or by their column."""


def cell_name(row: Mapping[str, Any]) -> str:
    """The start of a cell's file names: `requests/<cell>-r<round>.parquet`. row: its columns of `CELL`."""

    def unusual(*factors: str) -> str:
        values = {name: str(row.get(name) or USUAL[name]) for name in factors}
        return "".join(f"-{LETTERS[name]}{each}" for name, each in values.items() if each != USUAL[name])

    point = "+".join(f"{int(cut):02d}" for cut in row["point"].split("+"))
    # Not every system takes a colon in the name of a file, and none a slash.
    sent = f"{row['backend']}{unusual('codec', 'engine')}".replace(":", ".").replace("/", "_")
    deep = unusual("in_flight_asked", "prefetch_asked", "allocator", "load").replace(":", ".")
    return f"{row['model']}-k{point}-{sent}-{row['netem']}-b{row['batch_size']}{deep.replace('/', '-per-')}"


def trial_name(cell: str, number: int) -> str:
    """The cell and round of a trial, as its files and link.csv name it."""
    return f"{cell}-r{number:02d}"


def status_of(*, latency: bool, throughput: bool) -> str:
    """The status of a trial that measured something, by which of its figures can be trusted."""
    if latency and throughput:
        return "ok"
    return LATENCY_ONLY if latency else THROUGHPUT_ONLY if throughput else "invalid"


def span(column: str) -> tuple[float, float]:
    """The least and the greatest number that can have been measured."""
    return OWN_RANGES.get(column, RANGES[KINDS[column]])


def may_be_empty(column: str) -> bool:
    """Whether a cell of the column may say nothing."""
    try:
        check(column, "")
    except ValueError:
        return False
    return True


def check(column: str, text: str) -> None:
    """Raises ValueError for a cell that cannot be."""
    kind = KINDS[column]
    if kind is Kind.FREE:
        return
    if kind is Kind.NAME:
        if len(text) > LONGEST:
            raise ValueError(f"a name of {len(text)} characters is too long: {LONGEST} at most")
        if not text.isprintable():
            raise ValueError(f"{short(text, 80)!r} has characters that cannot be seen")
        if column == "status" and text not in STATUSES:
            raise ValueError(f"{short(text, 80)!r} is not one of {', '.join(STATUSES)}")
        if column in FORMS and not FORMS[column].fullmatch(text):
            raise ValueError(f"{short(text, 80)!r} has the wrong form")
    elif text or kind is Kind.WHOLE:
        try:
            if not text.isascii() or "_" in text:  # Python reads what nobody else does
                raise ValueError
            value = float(text)
            if kind is Kind.WHOLE and not text.lstrip("+-").isdecimal():
                raise ValueError
        except ValueError:
            raise ValueError(f"{short(text, 80)!r} is not a number") from None
        least, most = span(column)
        if value < least or value > most:
            raise ValueError(f"{short(text, 80)} cannot have been measured")
