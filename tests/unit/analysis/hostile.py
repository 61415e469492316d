"""Results folders that nobody would make by accident, each a change to a small run that is fine."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from tests import REPOSITORY

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
    sessions.0.hosts.edge.torch sessions.0.hosts.edge.cores
    sessions.0.testbed.on_one_core sessions.0.testbed.shaper
    sessions.0.bare_links.edge-server sessions.0.bare_links.edge-server.rtt_s sessions.0.driver.packages
"""
"""Places in a manifest."""
OF_TRIALS = "edge_s network_s server_s top1 in_flight edge_energy_j rtt_s wall_s"
OF_STAGES = "host position compute_s utilization transfer_s baseline_s payload_bytes"
OF_LINKS = "asked_rtt_s rtt_s rate_bps asked_rate_bps link verdict netem position_s"
Attack = Callable[[Path], object]


def run(folder: Path) -> Path:
    """Two rounds of the example under one profile, with stages, probes and requests."""
    example = REPOSITORY / "results" / "example"
    (folder / "requests").mkdir(parents=True)
    for name in ("trials.csv", "stages.csv", "link.csv"):
        with (example / name).open(newline="") as file:
            rows = list(csv.DictReader(file))
        kept = [row for row in rows if row["netem"] == "200ms-5mbit" and row.get("round", "1") in "12"]
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


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


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


def instead(name: str, what: str, folder: Path) -> None:
    """Something that is no plain file, in the place of one."""
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(folder.parent / "victim")
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "endless":
        with path.open("wb") as file:
            file.truncate(1 << 42)


def requests(columns: dict[str, Any], folder: Path) -> None:
    parquet.write_table(pa.table(columns), folder / REQUESTS)


def remade(change: Callable[[list[dict[str, str]]], list[dict[str, str]]], folder: Path, **how: str) -> None:
    """Other rows of the trials."""
    save(folder / "trials.csv", change(rows_of(folder / "trials.csv")), **how)


def doubled(folder: Path) -> None:
    """As two writers leave it."""
    for name in ("trials.csv", "stages.csv"):
        save(folder / name, 2 * rows_of(folder / name))


def _trials() -> Iterator[tuple[str, Attack]]:
    trials = partial(partial, cells, "trials.csv")
    for column in ("latency_s", "throughput_ips", "latency_bound_s", "throughput_bound_ips", "payload_bytes"):
        for value in ("inf", "-inf", "nan", "0", "-1", "1e308", "1e-308", "1e17"):
            yield f"{column} {value}", trials({column: value})
    for column in OF_TRIALS.split():
        for value in ("inf", "-1", "1e300", "word"):
            yield f"{column} {value}", trials({column: value})
    for value in ("0", "-1", "99999999999999999999", "1.5", "", "1_0", "٣"):
        yield f"batch_size {value}", trials({"batch_size": value})
        yield f"round {value}", trials({"round": value})
    for value in ("", "-1", "+", "7+", "٣", "9" * 5000, "1e3", "7+14", "0+0+0", "all"):
        yield f"point {value[:9]}", trials({"point": value})
    for column in ("model", "netem", "backend", "codec", "point_name", "run", "in_flight_asked", "bound_by"):
        for name, value in {
            "escapes": f"x{ESC}",
            "line break": "x\nssh-rsa AAAA",
            "formula": '=HYPERLINK("http://x")',
            "dollars": "$\\frac$",
            "markup": "[/bold][link=x]",
            "path": "../../../x",
            "long": "x" * 300,
            "endless": "x" * 300_000,
            "empty": "",
            "direction": "x\u202ey",
            "nul": "x\0y",
            "digits": "9" * 400,
            "latex": "\\input{/etc/passwd}",
            "percent": "%s{}",
        }.items():
            yield f"{column} {name}", trials({column: value}, every=True)
    none = {"latency_s": "", "throughput_ips": ""}
    reasons = {"escapes": ESC, "200 kB": "x" * 200_000, "lines": "a\n" * 5000, "markup": "[/b]"}
    for name, value in reasons.items():
        yield f"reason {name}", trials({"status": "failed", "reason": value, **none}, every=True)
        yield f"reason {name} once", trials({"status": "invalid", "reason": value})
    yield "reason 2 MB", trials({"status": "invalid", "reason": "x" * 2_000_000})
    yield "status unknown", trials({"status": ESC})
    yield "all one latency", trials({"latency_s": "1"}, every=True)
    yield "all one throughput", trials({"throughput_ips": "1", "latency_s": "1"}, every=True)
    yield "nothing crosses", trials({"payload_bytes": "0"}, every=True)
    yield "no bound", trials({"latency_bound_s": "", "throughput_bound_ips": ""}, every=True)
    yield "bounds of 0", trials({"latency_bound_s": "0"}, every=True)
    yield "no latency", trials({"latency_s": ""}, every=True)
    yield "no throughput", trials({"throughput_ips": ""}, every=True)
    yield "one round", trials({"round": "1"}, every=True)
    yield "one point", trials({"point": "7"}, every=True)
    yield "as large as may be", trials({"latency_s": "1e15", "throughput_ips": "1e-12"}, every=True)
    yield "as small as may be", trials({"latency_s": "1e-12", "throughput_ips": "1e15"}, every=True)
    yield "large beside small", trials({"latency_s": "1e15", "throughput_ips": "1e-12"})


def _tables() -> Iterator[tuple[str, Attack]]:
    for file in ("trials.csv", "stages.csv", "link.csv"):
        yield f"{file} empty", partial(text, file, "")
        yield f"{file} not UTF-8", partial(text, file, b"\xff\xfe\x00\x01" * 99)
        yield f"{file} not CSV", partial(text, file, "\x7fELF" * 999)
        yield f"{file} one quote", partial(text, file, '"')
        yield f"{file} endless line", partial(text, file, "a" * 3_000_000)
        yield f"{file} other columns", partial(text, file, "a,b\n1,2\n")
        for what in ("fifo", "folder", "link", "loop", "device", "endless"):
            yield f"{file} a {what}", partial(instead, file, what)
    yield "two writers", doubled
    yield "header twice", partial(remade, lambda rows: [dict(zip(rows[0], rows[0], strict=True)), *rows])
    yield "column twice", partial(text, "trials.csv", "run,run,\n" + "a,b,\n" * 3)
    yield "returns", partial(remade, list, newline="\r")
    yield (
        "unknown column with escapes",
        partial(remade, lambda rows: [row | {f"x{ESC}": "1"} for row in rows]),
    )
    odd = partial(
        remade, lambda rows: [row | {"point": row["point"] + "+21" * (n % 2)} for n, row in enumerate(rows)]
    )
    yield "chains among pairs", odd
    stages = partial(partial, cells, "stages.csv")
    for column in OF_STAGES.split():
        for value in ("inf", "-1", "word", "0", ""):
            yield f"stages {column} {value}", stages({column: value}, every=True)
    yield "stages host middle", stages({"host": "middle999999999"}, every=True)
    link = partial(partial, cells, "link.csv")
    for column in OF_LINKS.split():
        for value in ("inf", "-1", "0", "1e15", ESC):
            yield f"link {column} {value[:5]!r}", link({column: value}, every=True)


def _manifests() -> Iterator[tuple[str, Attack]]:
    for name, content in {
        "empty": "",
        "torn": '{"sweep": {',
        "a list": "[]",
        "a number": "3",
        "null": "null",
        "deep": "[" * 100_000,
        "deep in a mapping": '{"a":' * 5000 + "1" + "}" * 5000,
        "40 deep": '{"a":' * 40 + "1" + "}" * 40,
        "not UTF-8": b"\xff\xfe",
        "NaN": '{"sweep": {"tolerance": NaN}}',
        "infinite": '{"sweep": {"tolerance": 1e999}}',
        "digits": '{"a": ' + "9" * 4000 + "}",
        "more digits": '{"a": ' + "9" * 9000 + "}",
        "surrogate": '{"testbed": "\\ud800"}',
        "escapes": json.dumps({"testbed": ESC, "pareto": ESC, "created_at": ESC}),
        "nul": '{"testbed": "\\u0000"}',
        "dollars": json.dumps({"testbed": "$\\frac$ \\input{x}"}),
        "lines": json.dumps({"testbed": "a\n\n\\end{table}b"}),
        "endless text": json.dumps({"testbed": "x" * 1_000_000}),
    }.items():
        yield f"manifest {name}", partial(text, "manifest.json", content)
    for what in ("fifo", "folder", "link", "loop", "device", "endless"):
        yield f"manifest a {what}", partial(instead, "manifest.json", what)
    odd: tuple[Any, ...] = ("x", -1, 0, 1e20, True, None, [], [1], [None], {}, {"a": 1}, [{}], {"a": [[]]})
    for place in PLACES.split():
        keys = tuple(place.split("."))
        for number, value in enumerate(odd):
            if keys[:2] == ("sessions", "0") and len(keys) == 2:
                yield f"sessions {number}", partial(told, ("sessions",), [value])
            else:
                yield f"{place} {number}", partial(told, keys, value)


def _others() -> Iterator[tuple[str, Attack]]:
    seconds, none = [1.0, 2.0], pa.array([], pa.float64())
    for name, columns in {
        "without columns": {"a": [1]},
        "of text": {"phase": ["latency"], "started_s": ["a"], "finished_s": ["b"]},
        "of lists": {"phase": ["latency"], "started_s": [[1.0]], "finished_s": [[2.0]]},
        "infinite": {"phase": ["latency"] * 2, "started_s": seconds, "finished_s": [3.0, float("inf")]},
        "backwards": {"phase": ["latency"] * 2, "started_s": seconds, "finished_s": [0.5, 0.5]},
        "in no time": {"phase": ["latency"] * 2, "started_s": seconds, "finished_s": seconds},
        "empty": {"phase": pa.array([], pa.string()), "started_s": none, "finished_s": none},
        "phases by number": {"phase": [1, 2], "started_s": seconds, "finished_s": seconds},
    }.items():
        yield f"requests {name}", partial(requests, columns)
    yield "requests no Parquet", partial(text, REQUESTS, b"PAR1" * 99)
    yield "requests cut", lambda folder: os.truncate(folder / REQUESTS, 900)
    for what in ("fifo", "folder", "link", "loop", "device", "endless"):
        yield f"requests a {what}", partial(instead, REQUESTS, what)
        yield f"requests' folder a {what}", partial(instead, "requests", what)
        for name in ("front.csv", "report.html", ".made", "figures", "figures/front-x.png"):
            yield f"{name} a {what}", partial(instead, name, what)
    yield ".made not UTF-8", partial(text, ".made", b"\xff\xfe")
    yield (
        ".made names data",
        partial(text, ".made", "trials.csv\nlink.csv\nmanifest.json\n../victim\n/etc/passwd\n\n..\n"),
    )


ATTACKS: dict[str, Attack] = dict((*_trials(), *_tables(), *_manifests(), *_others()))
