"""The options of a sweep, each declared once: what a user types and reads in `--help`, and what a manifest records.

`pareto.sweep.sweep.Sweep` says which values they take. Needs nothing but the standard library: `--help` must be quick.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

REQUIRED = ...
GROUPS = WHAT, LINK, HOSTS, EFFORT, RESULTS = (
    "What is measured",
    "How tensors cross, and the link",
    "Hosts",
    "How long, and how sure",
    "Results",
)
"""Groups of options in `--help`, in their order."""
USUAL, ALL = "usual", "all"
"""Levels: what `--help` shows, and what only `--help-all` does."""
_PLACEHOLDERS = {"ms": "TIME", "min": "TIME", "%": "SHARE", Path: "FOLDER", int: "N", float: "X", str: "NAME"}
ROUNDS, QUICK_TRIALS = 6, 1
"""Rounds where nobody says how many: of what is measured thoroughly, and with `quick`."""
PHASES = "requests", "phase"
"""Options that say how long a phase is: one of them at most."""
SLOWED = 1.5
"""A stage that takes this multiple of its baseline was disturbed. On a busy virtual machine, stages of 5 ms or more
took 0.97 to 1.4 times as long, and once 1.53; one that shares its core with a busy loop took 1.8 to 2.9."""
OTHERS = 0.2
"""The share of the cores that other programs may take in a valid trial. On two cores a program that is always busy took
24 to 39 %, one that is busy half of the time 10 to 22 %, and without either others took 0 to 3 %."""


@dataclass(frozen=True)
class Option:
    """An option.

    field: of a `Sweep`, and in a manifest. name: in a sweep file, and of the option, with hyphens; else as the field.
    shown: what `--help` says of the default; else the default itself. kind: of what is typed; else the default's.
    metavar: what stands for a value; else as its unit or kind. unit: in which a number is written, as text: ms, min or
    %. group: its head in `--help`. level: `USUAL` or `ALL`. short: the name with one letter.
    """

    field: str
    help: str
    default: Any = None
    shown: str = ""
    name: str = ""
    kind: type | None = None
    metavar: str = ""
    unit: str = ""
    group: str = WHAT
    level: str = USUAL
    short: str = ""

    @property
    def key(self) -> str:
        return self.name or self.field

    @property
    def typed(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def takes(self) -> type:
        is_number = isinstance(self.default, int | float) and not self.unit
        return self.kind or (type(self.default) if is_number else str)

    @property
    def names(self) -> tuple[str, ...]:
        both = f"{self.typed}/--no-{self.key}" if self.default is True else self.typed
        return (both, self.short) if self.short else (both,)

    @property
    def placeholder(self) -> str | None:
        """The text in the place of its value in `--help`; None for an option that takes no value."""
        if isinstance(self.default, bool):
            return None
        if self.default is REQUIRED:
            return f"{self.key.upper()},..."
        kind = type(self.default[0]) if self.takes_several else self.takes
        name = self.metavar or _PLACEHOLDERS[self.unit or kind]
        return f"{name},..." if self.takes_several else name

    @property
    def takes_several(self) -> bool:
        """Whether its value may be a list, with commas."""
        return self.default is REQUIRED or isinstance(self.default, tuple)

    @property
    def described(self) -> str:
        has_default = not any(self.default is none for none in (None, False, REQUIRED))
        default = self.shown or (self.written(self.default) if has_default else "")
        return f"{self.help}  [{default}]" if default else self.help

    def words(self, value: Any) -> list[str]:
        if isinstance(value, bool):
            return [self.typed if value else f"--no-{self.key}"]
        return [self.typed, self.written(value)]

    def written(self, value: Any) -> str:
        """A value as it is typed: with its unit, every digit, and commas between several."""
        if value is None:
            return "off"
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        if self.unit == "min":
            return f"{_decimal(value / 60)}min" if value % 60 == 0 else f"{_decimal(value)}s"
        if not self.unit:
            return str(value)
        times, other = (1000, "s") if self.unit == "ms" else (100, "")
        text = _decimal(value, times)
        # Unless its reader would then find another last bit; but `until` takes nothing without its sign.
        exact = self.field == "until" or float(text) / times == value
        return f"{text}{self.unit}" if exact else f"{_decimal(value)}{other}"


def _decimal(value: float, times: int = 1) -> str:
    """Every digit that the number has, without an exponent."""
    return f"{(Decimal(repr(value)) * times).normalize():f}"


_what, _link, _hosts, _effort = (partial(Option, group=group) for group in GROUPS[:-1])
_what_else, _link_else, _hosts_else, _effort_else = (
    partial(Option, group=group, level=ALL) for group in GROUPS[:-1]
)
_OPTIONS = (
    _what(
        "models",
        "Models, with commas: mobilenetv2,resnet50, or your own net.py:build.",
        REQUIRED,
        name="model",
        short="-m",
    ),
    _link(
        "netems",
        "Network profiles: files in netem_profiles/, or names such as 80ms-20mbit; wifi+lte names one for each link.",
        ("none",),
        name="netem",
        short="-n",
    ),
    _link(
        "backends",
        "tcp, tcp:4 (4 connections), tcp:poll, rpc, rpc:basic (one), zmq, gloo, or your own mine.py:Transport, with "
        "commas; tcp:a,tcp:b is tcp under two names.",
        ("tcp", "rpc"),
        name="backend",
    ),
    _link(
        "secure",
        "How tcp encrypts: none, or tls, or both with a comma, which measures tcp and tcp:tls.",
        ("none",),
    ),
    _what(
        "points",
        "all, or numbers, names and ranges such as 0,features.7,9-12; for three hosts 3+7.",
        ("all",),
    ),
    _what_else("only", "Measure only --points, without all on the server and all on the edge.", False),
    _what("granularity", "Which cuts are points: those between blocks (block), or all (op).", "block"),
    _what_else("live_tensors", "The most tensors that may cross at a point.", 1),
    _what_else("fold", "With op, equivalent neighbours are one point.", True, "fold"),
    _what_else(
        "input",
        "What the edge gets: images as bytes, as from a camera (uint8), or normalised (float32).",
        "auto",
        "auto: uint8 for images",
    ),
    _what(
        "source",
        "What a request begins with: pixels, ready on the edge, or a jpeg file, decoded within the latency.",
        "pixels",
        name="from",
    ),
    _what_else(
        "prefetch",
        "With --from jpeg: requests that the edge decodes ahead in the throughput phase, with commas: 0,1,4.",
        (0,),
        "0: in line",
    ),
    _effort(
        "trials",
        "Rounds of every cell. Without it, every cell once, then up to 6 rounds of what can still be on the front.",
        shown=f"{QUICK_TRIALS} with --quick",
        kind=int,
        short="-t",
    ),
    _effort(
        "search", "Measure what is likely on the front first, and leave out what physics keeps off it.", False
    ),
    _effort(
        "until",
        "Add rounds until each point that may be on a front is known within this, such as 5%.",
        unit="%",
    ),
    _effort("budget", "Add rounds as long as they fit into this time, such as 20min.", unit="min"),
    _effort_else("requests", "Requests in each phase of a trial: 662 tell its p99.", kind=int),
    _effort_else("phase", "How long each phase of a trial lasts, such as 10s.", unit="min"),
    _what("batch_sizes", "Images per request, with commas: 1,8.", (1,), name="batch_size"),
    _what(
        "codecs",
        "What is done to payloads to send less, with commas: none, fp16, int8, uint4, zstd, lz4, blosc2, int8+lz4, "
        "jpeg:90, or your own b.py:MyCodec.",
        ("none",),
        name="codec",
    ),
    _what(
        "codec_back",
        "What results go through on their way back, with commas, after each codec: none, zstd, lz4, blosc2.",
        ("none",),
    ),
    _what(
        "engines",
        "What runs the stages, with commas: eager,compile,onnx; or for each host: edge=onnx,server=compile.",
        ("eager",),
        name="engine",
    ),
    _what_else(
        "allocators",
        "Whether the hosts' processes keep freed memory (tuned) or leave that to the C library (default), with commas; "
        "or for each host: edge=default,server=tuned.",
        ("tuned",),
        name="allocator",
    ),
    _what(
        "depths",
        "Requests in flight in the throughput phase, with commas: auto,1,8.",
        ("auto",),
        name="in_flight",
        metavar="N",
    ),
    _effort(
        "loads",
        "Requests that arrive by themselves in a third phase, with commas: 15/s, poisson:15/s, trace:FILE.",
        ("none",),
        name="load",
        metavar="RATE",
    ),
    _effort_else("every", "A load by its period, such as 66.7ms: the same as --load 15/s.", metavar="TIME"),
    _effort_else("queue", "With --load: requests that may wait before the edge; more are dropped.", 8),
    _effort(
        "find_rate",
        "Find the highest rate at which each point holds --slo: constant, or poisson arrivals.",
        metavar="KIND",
    ),
    _effort(
        "slo",
        "The SLO: what a request may take from its arrival, such as 'p95 < 100ms' or 'missed < 1%'.",
        metavar="TEXT",
    ),
    _link_else("congestion", "TCP's congestion control: cubic, bbr or reno.", shown="local: cubic"),
    _link_else(
        "initial_window", "TCP's first window on the local testbed, in segments.", shown="100", kind=int
    ),
    _link_else("slow_start_after_idle", "Let TCP start slowly again after each pause.", False, "off"),
    _what_else(
        "classes", "How many classes torchvision's models tell apart; 0: as published, or as the weights.", 0
    ),
    _what(
        "weights",
        "seeded, pretrained, or a file of weights, as torch.save or safetensors writes them.",
        "seeded",
    ),
    _what(
        "dataset", "synthetic, cifar10, folder (one for each class), or your own data.py:make.", "synthetic"
    ),
    _what("data_path", "Where the data set lies.", kind=Path),
    _what_else("images", "How many of its images to use.", shown="16", kind=int),
    _hosts(
        "testbed",
        "Where it runs: local, a file that names SSH hosts, or simulated (simulated:FILE), which "
        "measures nothing. A sweep takes several, with commas or in one file: lab1.yaml,lab2.yaml,local.",
        "local",
        metavar="FILE",
    ),
    _hosts_else(
        "cluster",
        "Measure on the testbeds that joined this scheduler (fleet join), such as tls://lab:8786.",
        metavar="ADDRESS",
    ),
    _hosts_else("tls_ca_file", "With --cluster: the authority of its certificates.", kind=Path),
    _hosts_else("tls_cert", "With --cluster: this machine's certificate.", kind=Path),
    _hosts_else("tls_key", "With --cluster: its key.", kind=Path),
    _hosts_else("wait", "How long to wait for hosts on which others measure, such as 30min.", unit="min"),
    _hosts("edge_only", "Only the edge: the whole model there, and no link. No other host is needed.", False),
    _hosts_else("server_only", "Only the server: the whole model there, and no link.", False),
    _hosts(
        "hosts", "Hosts of the local or simulated testbed, a chain from edge to server.", shown="2", kind=int
    ),
    _hosts("edge_cpu", "Share of a core that the local edge gets.", 1.0, metavar="SHARE"),
    _hosts(
        "memory",
        "What the edge has, as edge=512mib: points that cannot fit are left out, a local edge is held to it.",
        metavar="SIZE",
    ),
    _hosts("threads", "Compute threads on each host.", shown="1", kind=int),
    _hosts(
        "device",
        "Where the hosts of the local testbed compute: cpu; cuda:0; or for each host: edge=cpu,server=cuda:0.",
        "cpu",
    ),
    _link_else(
        "tolerance", "How far the link's rate may be off, as a share of the profile's.", 0.02, unit="%"
    ),
    _link_else(
        "rtt_tolerance", "How far the round trip may be off, as a share of the profile's.", 0.01, unit="%"
    ),
    _link_else("rtt_floor", "How far the round trip may be off in any case.", 0.0003, unit="ms"),
    _effort_else("slowdown", "How many times as long as alone a stage may take in a valid trial.", SLOWED),
    _effort_else(
        "others", "What share of the hosts' cores other programs may take in a valid trial.", OTHERS, unit="%"
    ),
    _hosts_else("sample", "How often to read the devices' sensors, or off.", 0.2, unit="ms"),
    _link_else(
        "shape_at",
        "Which hosts shape the link: both, or edge (both directions there, with netem only).",
        "both",
    ),
    _effort_else(
        "restart",
        "When workers start anew: never, each round, or every N rounds.",
        "never",
        metavar="never|round|N",
    ),
    _effort("seed", "Seed of weights, inputs and the order of trials.", 0),
    _effort("quick", "One short round, for a first look.", False),
)
OPTIONS = {option.key: option for option in _OPTIONS}
"""By their names, in the order in which they are listed."""
FIELDS = {option.field: option for option in _OPTIONS}
"""The same, by the sweep's fields."""
OF_POINTS = ("granularity", "live_tensors", "fold", "input", "classes")
OF_DEVICES = ("backend", "testbed", "hosts", "edge_cpu", "threads", "device", "weights", "sample", "codec")
OF_LINKS = ("hosts", "tolerance", "rtt_tolerance", "rtt_floor", "shape_at")
"""Options that other commands than a sweep take, too."""


def command(sweep: Mapping[str, Any]) -> str:
    """`./pareto.sh --model mobilenet_v2 --netem wifi`: a manifest's `sweep` as one line for a shell; no defaults."""
    words = (word for option, value in chosen(sweep) for word in option.words(value))
    return " ".join(map(shlex.quote, ["./pareto.sh", *words]))


def chosen(sweep: Mapping[str, Any]) -> Iterator[tuple[Option, Any]]:
    """Yield the options of a manifest's `sweep` that do not have their defaults, with their values."""
    for field, option in FIELDS.items():
        default = list(option.default) if isinstance(option.default, tuple) else option.default
        if field == "trials" and sweep.get("quick") and not sweep.get("until"):
            default = QUICK_TRIALS
        if (value := sweep.get(field, default)) != default:
            yield option, value


def testbed_name(option: str) -> str:
    """The name that rows have for the testbed of `--testbed`: its kind, or a file's name without its ending; one of a
    file's several (`labs.yaml#lab1`) has its own."""
    kind, colon, _ = option.partition(":")
    if colon and kind == "simulated":
        return kind
    _, sharp, name = option.rpartition("#")
    return name if sharp and "." not in name else Path(option).stem
