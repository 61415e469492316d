"""Results folders that nobody would make by accident, each a change to a run that is fine.

Those of a table or a manifest as a whole (`SPOILED`) change any run; the others a small one of the example.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests import REPOSITORY, rows_of

ESC = "\x1b]0;owned\x07\x1b[2J\x9b31m"
"""What renames and clears a terminal."""
REQUESTS = "requests/mobilenet_v2-k07-tcp-200ms-5mbit-b1-r01.parquet"
PLACES = """
    sweep sessions models profiles networks testbed created_at simulated
    sweep.tolerance sweep.rtt_floor sweep.sample sweep.trials sweep.edge_cpu sweep.models sweep.points sweep.budget
    models.mobilenet_v2 models.mobilenet_v2.points models.mobilenet_v2.dataset
    models.mobilenet_v2.input models.mobilenet_v2.weights
    profiles.200ms-5mbit profiles.200ms-5mbit.edge_to_server networks.200ms-5mbit
    profiles.200ms-5mbit.edge_to_server.delay_s profiles.200ms-5mbit.edge_to_server.rate_bps
    profiles.200ms-5mbit.edge_to_server.jitter_s profiles.200ms-5mbit.edge_to_server.loss
    profiles.200ms-5mbit.edge_to_server.trace
    sessions.0 sessions.0.hosts sessions.0.hosts.edge sessions.0.bare_links
    sessions.0.hosts.edge.memory_bytes sessions.0.hosts.edge.idle_power_w sessions.0.hosts.edge.cuda
    sessions.0.hosts.edge.energy_leaves_out sessions.0.hosts.edge.torch sessions.0.hosts.edge.cores
    sessions.0.testbed.on_one_core sessions.0.testbed.shaper
    sessions.0.bare_links.edge-server sessions.0.bare_links.edge-server.rtt_s sessions.0.driver.packages
"""
"""Places in a manifest."""
Attack = Callable[[Path], object]


def run(folder: Path) -> Path:
    """Two rounds of the example under one profile, with stages, probes and requests."""
    example = REPOSITORY / "results" / "example"
    (folder / "requests").mkdir(parents=True)
    for name in ("trials.csv", "stages.csv", "link.csv"):
        kept = [
            row
            for row in rows_of(example / name)
            if row["netem"] == "200ms-5mbit" and row.get("round", "1") in "12"
        ]
        save(folder / name, kept[:72])
    for file in (example / "requests").glob("*-k07-tcp-200ms-5mbit-b1-r0[12].parquet"):
        shutil.copy(file, folder / "requests")
    shutil.copy(example / "manifest.json", folder)
    return folder


def save(path: Path, rows: list[dict[str, str]], newline: str = "\n") -> None:
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator=newline)
        writer.writeheader()
        writer.writerows(rows)


def cells(file: str, values: Mapping[str, str], folder: Path, *, every: bool = False) -> None:
    """Other values in the third row of a table, or in every one."""
    rows = rows_of(folder / file)
    for row in rows if every else rows[2:3]:
        row |= values
    save(folder / file, rows)


def text(file: str, content: str | bytes, folder: Path) -> None:
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def told(keys: tuple[str, ...], value: Any, folder: Path) -> None:
    """Another value in the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    place = manifest
    for key in keys[:-1]:
        place = place.setdefault(key, {}) if isinstance(place, dict) else place[int(key)]
    place[keys[-1]] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))


KINDS = ("fifo", "folder", "link", "loop", "device", "endless")


def instead(name: str, what: str, folder: Path) -> None:
    """Something that is no plain file, in the place of one."""
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    links = {"link": folder.parent / "victim", "loop": path.name, "device": "/dev/zero"}
    if what in links:
        path.symlink_to(links[what])
    elif what == "endless":
        path.touch()
        os.truncate(path, 1 << 42)
    else:
        (os.mkfifo if what == "fifo" else Path.mkdir)(path)


def requests(columns: dict[str, Any], folder: Path) -> None:
    parquet.write_table(pa.table(columns), folder / REQUESTS)


def remade(change: Callable[[list[dict[str, str]]], list[dict[str, str]]], folder: Path, **how: str) -> None:
    """Other rows of the trials."""
    save(folder / "trials.csv", change(rows_of(folder / "trials.csv")), **how)


def doubled(folder: Path) -> None:
    """As two writers leave it."""
    for name in ("trials.csv", "stages.csv"):
        save(folder / name, 2 * rows_of(folder / name))


NAMES = {
    "escapes": f"x{ESC}", "line break": "x\nssh-rsa AAAA", "formula": '=HYPERLINK("http://x")', "dollars": "$\\frac$",
    "markup": "[/bold][link=x]", "path": "../../../x", "long": "x" * 300, "endless": "x" * 300_000, "empty": "",
    "direction": "x\u202ey", "nul": "x\0y", "digits": "9" * 400, "latex": "\\input{/etc/passwd}", "percent": "%s{}",
}  # fmt: skip
CELLS: list[tuple[str, str, Iterable[str], bool]] = [
    ("trials.csv", "latency_s throughput_ips latency_bound_s throughput_bound_ips payload_bytes",
     ("inf", "-inf", "nan", "0", "-1", "1e308", "1e-308", "1e17"), False),
    ("trials.csv", "edge_s network_s server_s top1 in_flight edge_energy_j rtt_s wall_s",
     ("inf", "-1", "1e300", "word"), False),
    ("trials.csv", "batch_size round", ("0", "-1", "99999999999999999999", "1.5", "", "1_0", "٣"), False),
    ("trials.csv", "point", ("", "-1", "+", "7+", "٣", "9" * 5000, "1e3", "7+14", "0+0+0", "all"), False),
    ("trials.csv", "model netem backend codec point_name run in_flight_asked bound_by", NAMES, True),
    ("stages.csv", "host position compute_s utilization transfer_s baseline_s payload_bytes",
     ("inf", "-1", "word", "0", ""), True),
    ("link.csv", "asked_rtt_s rtt_s rate_bps asked_rate_bps link verdict netem position_s",
     ("inf", "-1", "0", "1e15", ESC), True),
]  # fmt: skip
"""Files, columns, values of each, and whether they are in every row."""
EVERY: dict[str, dict[str, str]] = {
    "all one latency": {"latency_s": "1"}, "all one throughput": {"throughput_ips": "1", "latency_s": "1"},
    "nothing crosses": {"payload_bytes": "0"}, "no bound": {"latency_bound_s": "", "throughput_bound_ips": ""},
    "bounds of 0": {"latency_bound_s": "0"}, "no latency": {"latency_s": ""}, "no throughput": {"throughput_ips": ""},
    "one round": {"round": "1"}, "one point": {"point": "7"},
    "as large as may be": {"latency_s": "1e15", "throughput_ips": "1e-12"},
    "as small as may be": {"latency_s": "1e-12", "throughput_ips": "1e15"},
}  # fmt: skip
"""Values of all trials."""
REASONS = {
    "escapes": ESC, "200 kB": "x" * 200_000, "lines": "a\n" * 5000, "markup": "[/b]", "2 MB": "x" * 2_000_000,
}  # fmt: skip
TABLES = {
    "empty": "", "not UTF-8": b"\xff\xfe\x00\x01" * 99, "not CSV": "\x7fELF" * 999, "one quote": '"',
    "endless line": "a" * 3_000_000, "other columns": "a,b\n1,2\n", "column twice": "run,run,\n" + "a,b,\n" * 3,
}  # fmt: skip
MANIFESTS = {
    "empty": "", "torn": '{"sweep": {', "a list": "[]", "a number": "3", "null": "null", "not UTF-8": b"\xff\xfe",
    "deep": "[" * 100_000, "deep in a mapping": '{"a":' * 5000 + "1" + "}" * 5000,
    "40 deep": '{"a":' * 40 + "1" + "}" * 40, "NaN": '{"sweep": {"tolerance": NaN}}',
    "infinite": '{"sweep": {"tolerance": 1e999}}', "infinite, too": '{"a": -Infinity}',
    **{f"{digits} digits": '{"a": ' + "9" * digits + "}" for digits in (30, 4000, 9000)},
    "surrogate": '{"testbed": "\\ud800"}', "UTF-16": '{"sweep": {}}'.encode("utf-16"), "no text": bytes(4096),
}  # fmt: skip
"""Manifests that cannot be read."""
ODD_MANIFESTS = {
    "nothing": {}, "escapes": {"testbed": ESC, "pareto": ESC, "created_at": ESC}, "nul": {"testbed": "\0"},
    "dollars": {"testbed": "$\\frac$ \\input{x}"}, "lines": {"testbed": "a\n\n\\end{table}b"},
    "endless text": {"testbed": "x" * 1_000_000},
}  # fmt: skip
"""Those that can, and do not say how a run was made."""
TEXTS: list[tuple[str, Mapping[str, str | bytes]]] = [
    ("manifest.json", MANIFESTS),
    ("manifest.json", {name: json.dumps(it) for name, it in ODD_MANIFESTS.items()}),
    ("trials.csv", TABLES),
]
SPOILED: dict[str, Attack] = {
    f"{file} {name}": partial(text, file, it) for file, each in TEXTS for name, it in each.items()
} | {
    f"{file} a {what}": partial(instead, file, what)
    for file in ("manifest.json", "trials.csv")
    for what in KINDS
}
"""Attacks on what no run can do without."""


def _others() -> Iterator[tuple[str, Attack]]:
    for file, columns, values, every in CELLS:
        for column in columns.split():
            for value in values:
                made = NAMES.get(value, value)
                yield f"{file} {column} {value[:9]!r}", partial(cells, file, {column: made}, every=every)
    for name, row in EVERY.items():
        yield name, partial(cells, "trials.csv", row, every=True)
    none = {"latency_s": "", "throughput_ips": ""}
    for name, value in REASONS.items():
        yield f"reason {name} once", partial(cells, "trials.csv", {"status": "invalid", "reason": value})
        failed = {"status": "failed", "reason": value, **none}
        yield f"reason {name}", partial(cells, "trials.csv", failed, every=len(value) < 1_000_000)
    for column, value in {"status": ESC, "latency_s": "1e15", "throughput_ips": "1e-12"}.items():
        yield f"once {column}", partial(cells, "trials.csv", {column: value})
    yield "stages host middle", partial(cells, "stages.csv", {"host": "middle999999999"})
    for file in ("stages.csv", "link.csv"):
        yield from ((f"{file} {name}", partial(text, file, content)) for name, content in TABLES.items())
    yield "two writers", doubled
    yield "returns", partial(remade, list, newline="\r")
    changes: dict[str, Callable[[list[dict[str, str]]], list[dict[str, str]]]] = {
        "header twice": lambda rows: [dict(zip(rows[0], rows[0], strict=True)), *rows],
        "unknown column with escapes": lambda rows: [row | {f"x{ESC}": "1"} for row in rows],
        "chains among pairs": lambda rows: [
            row | {"point": row["point"] + "+21" * (n % 2)} for n, row in enumerate(rows)
        ],
    }
    yield from ((name, partial(remade, change)) for name, change in changes.items())
    odd: tuple[Any, ...] = ("x", -1, 0, 1e20, True, None, [], [1], [None], {}, {"a": 1}, [{}], {"a": [[]]})
    for place in PLACES.split():
        keys = tuple(place.split("."))
        for number, value in enumerate(odd):
            is_one = keys == ("sessions", "0")
            yield f"{place} {number}", partial(told, *((keys[:1], [value]) if is_one else (keys, value)))
    nothing = pa.array([], pa.float64())
    two = {"phase": ["latency"] * 2, "started_s": [1.0, 2.0]}
    tables: dict[str, dict[str, Any]] = {
        "without columns": {"a": [1]},
        "of text": {"phase": ["latency"], "started_s": ["a"], "finished_s": ["b"]},
        "of lists": {"phase": ["latency"], "started_s": [[1.0]], "finished_s": [[2.0]]},
        "infinite": {**two, "finished_s": [3.0, float("inf")]},
        "backwards": {**two, "finished_s": [0.5, 0.5]},
        "in no time": {**two, "finished_s": [1.0, 2.0]},
        "empty": {"phase": pa.array([], pa.string()), **dict.fromkeys(("started_s", "finished_s"), nothing)},
        "phases by number": {**two, "phase": [1, 2], "finished_s": [1.0, 2.0]},
    }
    yield from ((f"requests {name}", partial(requests, columns)) for name, columns in tables.items())
    yield "requests no Parquet", partial(text, REQUESTS, b"PAR1" * 99)
    yield "requests cut", lambda folder: os.truncate(folder / REQUESTS, 900)
    made_by_reports = ("front.csv", "report.html", ".made", "figures", "figures/front-x.png")
    for name in ("stages.csv", "link.csv", REQUESTS, "requests", *made_by_reports):
        yield from ((f"{name} a {what}", partial(instead, name, what)) for what in KINDS)
    lies = "trials.csv\nlink.csv\nmanifest.json\n../victim\n/etc/passwd\n\n..\n"
    yield from ((f".made {lie[:9]!r}", partial(text, ".made", lie)) for lie in (b"\xff\xfe", lies.encode()))


ATTACKS: dict[str, Attack] = SPOILED | dict(_others())
