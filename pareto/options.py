"""The options of a sweep, each declared once: what a user types and reads in `--help`, and what a manifest records.

`pareto.cli` makes the command line from them, `pareto.sweep.Sweep` says which values they take, and `command` writes
the line that makes a run again. Needs nothing but the standard library: `--help` must be quick.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

REQUIRED = ...
WHAT, LINK, HOSTS, EFFORT, RESULTS = (
    "What is measured",
    "How tensors cross, and the link",
    "Hosts",
    "How long, and how sure",
    "Results",
)
"""The groups of options in `--help`, in their order."""
ROUNDS, QUICK_TRIALS = 6, 1
"""Rounds where nobody says how many: of what is measured thoroughly, and with `quick`."""
PHASES = "requests", "phase"
"""Options that say how long a phase is: one of them at most."""
SLOWED = 1.5
"""A stage that takes this multiple of its baseline was disturbed. On a busy virtual machine, stages of 5 ms or more
took 0.97 to 1.4 times as long, and once 1.53; one that shares its core with a busy loop took 1.8 to 2.9."""
OTHERS = 0.2
"""Of the cores, what other programs may take in a valid trial. On two cores a program that is always busy took 24 to
39 %, one that is busy half of the time 10 to 22 %, and without either others took 0 to 3 %."""


@dataclass(frozen=True)
class Option:
    """An option.

    field: of a `Sweep`, and in a manifest. name: in a sweep file, and of the option, with hyphens; else as the field.
    shown: what `--help` says of the default; else the default itself. kind: of what is typed, where that is not the
    default's. unit: in which a number is written, as text: ms, min or %. group: its head in `--help`.
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

    @property
    def key(self) -> str:
        return self.name or self.field

    @property
    def typed(self) -> str:
        """`--batch-size`."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def takes(self) -> type:
        """The type of what is typed."""
        is_number = isinstance(self.default, int | float) and not self.unit
        return self.kind or (type(self.default) if is_number else str)

    @property
    def switch(self) -> str:
        """How it is typed where it takes no value; empty where it takes one."""
        if not isinstance(self.default, bool):
            return ""
        return f"{self.typed}/--no-{self.key}" if self.default else self.typed

    @property
    def takes_several(self) -> bool:
        """Whether its value may be a list, with commas."""
        return self.default is REQUIRED or isinstance(self.default, tuple)

    @property
    def described(self) -> str:
        """Its help, with the default."""
        has_default = not any(self.default is none for none in (None, False, REQUIRED))
        default = self.shown or (self.written(self.default) if has_default else "")
        return f"{self.help}  [{default}]" if default else self.help

    def words(self, value: Any) -> list[str]:
        """What is typed for a value."""
        if isinstance(value, bool):
            return [self.typed if value else f"--no-{self.key}"]
        return [self.typed, self.written(value)]

    def written(self, value: Any) -> str:
        """A value as it is typed: with its unit, every digit, and commas between several."""
        if value is None:
            return "off"
        if isinstance(value, list | tuple):
            return ",".join(map(str, value))
        if self.unit == "ms":
            milliseconds = _decimal(value, 1000)
            # Unless its reader would then find another last bit.
            return f"{milliseconds}ms" if float(milliseconds) / 1000 == value else f"{_decimal(value)}s"
        if self.unit == "min":
            return f"{_decimal(value / 60)}min" if value % 60 == 0 else f"{_decimal(value)}s"
        if self.unit == "%":
            percent = _decimal(value, 100)
            # `until` takes nothing without its sign.
            exact = self.field == "until" or float(percent) / 100 == value
            return f"{percent}%" if exact else _decimal(value)
        return str(value)


def _decimal(value: float, times: int = 1) -> str:
    """Every digit that the number has, without an exponent."""
    return f"{(Decimal(repr(value)) * times).normalize():f}"


_OPTIONS = (
    Option(
        "models",
        "Models, with commas: mobilenetv2,resnet50, or your own net.py:build.",
        REQUIRED,
        name="model",
    ),
    Option(
        "netems",
        "Network profiles: files in netem_profiles/, or names such as 80ms-20mbit; wifi+lte names one for each link.",
        ("none",),
        name="netem",
        group=LINK,
    ),
    Option(
        "backends",
        "tcp, tcp:4 (4 connections), rpc, rpc:basic (one), with commas; tcp:a,tcp:b is tcp under two names.",
        ("tcp", "rpc"),
        name="backend",
        group=LINK,
    ),
    Option(
        "secure",
        "How tcp encrypts: none, or tls, or both with a comma, which measures tcp and tcp:tls.",
        ("none",),
        group=LINK,
    ),
    Option(
        "points",
        "all, or numbers, names and ranges such as 0,features.7,9-12; for three hosts 3+7.",
        ("all",),
    ),
    Option("only", "Measure only --points, without all on the server and all on the edge.", False),
    Option("granularity", "Which cuts are points: those between blocks (block), or all (op).", "block"),
    Option("live_tensors", "The most tensors that may cross at a point.", 1),
    Option("fold", "With op, equivalent neighbours are one point.", True, "fold"),
    Option(
        "input",
        "What the edge gets: images as bytes, as from a camera (uint8), or normalised (float32).",
        "auto",
        "auto: uint8 for images",
    ),
    Option(
        "source",
        "What a request begins with: pixels, ready on the edge, or a jpeg file, decoded within the latency.",
        "pixels",
        name="from",
    ),
    Option(
        "prefetch",
        "With --from jpeg: requests that the edge decodes ahead in the throughput phase, with commas: 0,1,4.",
        (0,),
        "0: in line",
    ),
    Option(
        "trials",
        "Rounds of every cell. Without it, every cell once, then up to 6 rounds of what can still be on the front.",
        None,
        f"{QUICK_TRIALS} with --quick",
        kind=int,
        group=EFFORT,
    ),
    Option(
        "search",
        "Measure what is likely on the front first, and leave out what physics keeps off it.",
        False,
        group=EFFORT,
    ),
    Option(
        "until",
        "Add rounds until each point that may be on a front is known within this, such as 5%.",
        None,
        unit="%",
        group=EFFORT,
    ),
    Option(
        "budget",
        "Add rounds as long as they fit into this time, such as 20min.",
        None,
        unit="min",
        group=EFFORT,
    ),
    Option("requests", "Requests in each phase of a trial: 662 tell its p99.", kind=int, group=EFFORT),
    Option("phase", "How long each phase of a trial lasts, such as 10s.", unit="min", group=EFFORT),
    Option("batch_sizes", "Images per request, with commas: 1,8.", (1,), name="batch_size"),
    Option(
        "codecs",
        "What is done to payloads to send less, with commas: none, fp16, int8, uint4, zstd, lz4, blosc2, int8+lz4, "
        "jpeg:90, or your own b.py:MyCodec.",
        ("none",),
        name="codec",
    ),
    Option(
        "engines",
        "What runs the stages, with commas: eager,compile,onnx; or for each host: edge=onnx,server=compile.",
        ("eager",),
        name="engine",
    ),
    Option(
        "allocators",
        "Whether the hosts' processes keep freed memory (tuned) or leave that to the C library (default), with commas; "
        "or for each host: edge=default,server=tuned.",
        ("tuned",),
        name="allocator",
    ),
    Option(
        "depths",
        "Requests in flight in the throughput phase, with commas: auto,1,8.",
        ("auto",),
        name="in_flight",
    ),
    Option("congestion", "TCP's congestion control: cubic, bbr or reno.", None, "local: cubic", group=LINK),
    Option(
        "initial_window",
        "TCP's first window on the local testbed, in segments.",
        None,
        "100",
        kind=int,
        group=LINK,
    ),
    Option("slow_start_after_idle", "Let TCP start slowly again after each pause.", False, "off", group=LINK),
    Option(
        "classes", "How many classes torchvision's models tell apart; 0: as published, or as the weights.", 0
    ),
    Option(
        "weights",
        "seeded, pretrained, or a file of weights, as torch.save or safetensors writes them.",
        "seeded",
    ),
    Option(
        "dataset", "synthetic, cifar10, folder (one for each class), or your own data.py:make.", "synthetic"
    ),
    Option("data_path", "Where the data set lies.", kind=Path),
    Option("images", "How many of its images to use.", None, "16", kind=int),
    Option(
        "testbed",
        "Where it runs: local, a file that names SSH hosts, or simulated (simulated:FILE), which "
        "measures nothing. A sweep takes several, with commas or in one file: lab1.yaml,lab2.yaml,local.",
        "local",
        group=HOSTS,
    ),
    Option(
        "cluster",
        "Measure on the testbeds that joined this scheduler (fleet join), such as tls://lab:8786.",
        metavar="ADDRESS",
        group=HOSTS,
    ),
    Option(
        "certificates",
        "With --cluster tls://...: the folder that fleet certificates wrote.",
        kind=Path,
        group=HOSTS,
    ),
    Option(
        "wait",
        "How long to wait for hosts on which others measure, such as 30min.",
        None,
        unit="min",
        group=HOSTS,
    ),
    Option(
        "edge_only",
        "Only the edge: the whole model there, and no link. No other host is needed.",
        False,
        group=HOSTS,
    ),
    Option("server_only", "Only the server: the whole model there, and no link.", False, group=HOSTS),
    Option(
        "hosts",
        "Hosts of the local or simulated testbed, a chain from edge to server.",
        None,
        "2",
        kind=int,
        group=HOSTS,
    ),
    Option("edge_cpu", "Share of a core that the local edge gets.", 1.0, group=HOSTS),
    Option("threads", "Compute threads on each host.", None, "1", kind=int, group=HOSTS),
    Option(
        "device",
        "Where the hosts of the local testbed compute: cpu; cuda:0; or for each host: edge=cpu,server=cuda:0.",
        "cpu",
        group=HOSTS,
    ),
    Option(
        "tolerance",
        "How far the link's rate may be off, as a share of the profile's.",
        0.02,
        unit="%",
        group=LINK,
    ),
    Option(
        "rtt_tolerance",
        "How far the round trip may be off, as a share of the profile's.",
        0.01,
        unit="%",
        group=LINK,
    ),
    Option("rtt_floor", "How far the round trip may be off in any case.", 0.0003, unit="ms", group=LINK),
    Option(
        "slowdown", "How many times as long as alone a stage may take in a valid trial.", SLOWED, group=EFFORT
    ),
    Option(
        "others",
        "What share of the hosts' cores other programs may take in a valid trial.",
        OTHERS,
        unit="%",
        group=EFFORT,
    ),
    Option("sample", "How often to read the devices' sensors, or off.", 0.2, unit="ms", group=HOSTS),
    Option(
        "shape_at",
        "Which hosts shape the link: both, or edge (both directions there, with netem only).",
        "both",
        group=LINK,
    ),
    Option(
        "restart",
        "When workers start anew: never, each round, or every N rounds.",
        "never",
        metavar="never|round|N",
        group=EFFORT,
    ),
    Option("seed", "Seed of weights, inputs and the order of trials.", 0, group=EFFORT),
    Option("quick", "One short round, for a first look.", False, group=EFFORT),
)
OPTIONS = {option.key: option for option in _OPTIONS}
"""By their names, in the order in which they are listed."""
FIELDS = {option.field: option for option in _OPTIONS}
"""The same, by the sweep's fields."""


def command(sweep: Mapping[str, Any]) -> str:
    """`./pareto.sh --model mobilenet_v2 --netem wifi`: a manifest's `sweep` as one line for a shell.

    Options are left out whose value is the default.
    """
    return " ".join(map(shlex.quote, ["./pareto.sh", *_words(sweep)]))


def _words(sweep: Mapping[str, Any]) -> Iterator[str]:
    for field, option in FIELDS.items():
        default = list(option.default) if isinstance(option.default, tuple) else option.default
        if field == "trials" and sweep.get("quick") and not sweep.get("until"):
            default = QUICK_TRIALS
        if (value := sweep.get(field, default)) != default:
            yield from option.words(value)
