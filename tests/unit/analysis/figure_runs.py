"""Runs of every kind that figures differ by, each found and drawn once for all tests: what they hold is not changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis import schema
from pareto.analysis.figures.drawing import Drawing, Told
from pareto.analysis.figures.layout import printed
from pareto.analysis.figures.shown import drawings
from pareto.analysis.figures.style import Scheme
from pareto.analysis.findings import Findings, find
from pareto.analysis.prediction.network import Network
from pareto.sweep.cell import Cell
from pareto.trial.store import Store
from tests.unit import example_chain, example_codecs, example_engines
from tests.unit import simulated_network as world
from tests.unit.analysis.test_requests import phase
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write

DEPTH, REQUESTS = 4, 100
Row = dict[str, Any]


@dataclass(frozen=True)
class Reported:
    """What a report finds in a run, and its drawings by the names of their files."""

    found: Findings
    drawings: Mapping[str, Drawing]

    def drawn(self, name: str, width: str = "page") -> tuple[Any, str, pd.DataFrame]:
        """The figure, caption and data of the drawing of this kind or name."""
        drawing = next(it for stem, it in self.drawings.items() if name in (stem, it.kind))
        return drawing.drawn(width)

    @classmethod
    def made(cls, name: str, folder: Path) -> Reported:
        found = find(RUNS[name](folder))
        found = _thousand(found) if name == "thousand" else found
        return cls(found, {"-".join((it.kind, *it.name)): it for it in drawings(found, each=True)})


def keep_requests(folder: Path, row: Row, latencies_s: np.ndarray) -> None:
    """Keep these of one request in flight, and of many ten times as long, of which the first are quick."""
    (folder / "requests").mkdir(parents=True, exist_ok=True)
    cell = Cell(row["model"], (row["point"],), row["point_name"], row["backend"], row["netem"], 1)
    under_load = np.concatenate([np.full(DEPTH, 1e-4), 10 * latencies_s])
    phases = {"latency": phase(latencies_s), "throughput": phase(under_load)}
    Store(folder).write_parts(schema.REQUESTS, cell, row["round"], phases)


def _backends(folder: Path) -> list[Path]:
    """Two backends at all points, with all that a sweep of two hosts can measure."""
    rng = np.random.default_rng(5)
    rows = [row | {"in_flight": DEPTH} for row in with_energy(trials(rounds=7))]
    for row in rows:
        if row["point"] in (20, 21):
            keep_requests(folder, row, rng.lognormal(-3, 0.3, REQUESTS))
    points = [{"payload_bytes": int(1024 * kib), "edge_flops": 100 * n} for n, kib in enumerate(PAYLOAD_KIB)]
    models = {"mobilenetv2": {"points": points}}
    return [write(folder, rows, testbed="two hosts", pareto="9.8.7", models=models)]


def _few(folder: Path) -> list[Path]:
    """Three backends at three points, one of them slower, with rounds enough to tell; a trial does not count."""
    rows = trials(rounds=10, noise=0.01, backends=("tcp:a", "tcp:b", "rpc"))
    rows = [row for row in rows if row["point"] in (0, 7, 21)]
    for row in rows:
        row["latency_s"] *= 1.3 if row["backend"] == "rpc" and row["payload_bytes"] else 1
    rows[0] |= {"status": "invalid", "latency_s": 99.0}
    return [write(folder, rows)]


def _one(folder: Path) -> list[Path]:
    names = {"model": "a_model_of_a_very_long_name_" * 3, "netem": "congested-cafe-wifi+lte"}
    return [write(folder, with_energy(trials(rounds=1, **names)[3:4]))]


def _wide(folder: Path) -> list[Path]:
    """Latencies of many orders of magnitude, over four profiles, one of them without a valid trial."""
    rows = []
    for netem, slower in (("a-slow", 9), ("quick", 1), ("middle", 3), ("dead", 1)):
        lost = {"status": "failed", "latency_s": "", "throughput_ips": ""} if netem == "dead" else {}
        rows += [row | {"netem": netem, "latency_s": slower * row["latency_s"] * 10 ** (row["point"] / 7)} | lost
                 for row in trials(rounds=1) if row["point"] % 3 == 0]  # fmt: skip
    return [write(folder, rows)]


def _chain(folder: Path) -> list[Path]:
    splits = example_chain.splits(2, (0, 4, 9, 21))
    return [example_chain.write(folder, *example_chain.trials(splits, rounds=2))]


def _frame(folder: Path, data: pd.DataFrame, manifest: Mapping[str, Any]) -> list[Path]:
    run = write(folder, [], **manifest)
    data.drop(columns="setup").to_csv(run / "trials.csv", index=False)
    return [run]


def _codecs(folder: Path) -> list[Path]:
    """Five codecs under two profiles, which are known."""
    rates = {"slow": 10e6, "quick": 50e6}
    data = [example_codecs.trials(rate, netem=name, rounds=2) for name, rate in rates.items()]
    profiles = {name: Network(0.005, rate, 0.005) for name, rate in rates.items()}
    return _frame(folder, pd.concat(data, ignore_index=True), world.manifest(profiles))


def _engines(folder: Path) -> list[Path]:
    return _frame(folder, example_engines.trials(rounds=7), {})


def _loads(folder: Path) -> list[Path]:
    """Two backends at three points under two loads; the second is more than any of them bears."""
    base, rows = [row for row in trials(rounds=2) if row["point"] in (0, 7, 21)], list[Row]()
    for ips in (5.0, 15.0):
        of = {"load": f"{ips:g}/s", "slo": "p95 < 200ms", "offered_ips": ips, "completed_ips": min(ips, 12.0)}
        of |= {
            "load_requests": 200,
            "missed_requests": 10 * ips,
            "independent_requests": 150,
            "goodput_ips": ips / 2,
        }
        of |= {"load_latency_s": ips / 50, "load_latency_p95_s": ips / 30}
        of |= {"stability": "stable" if ips < 12 else "unstable"}
        rows += [row | of for row in base]
    return [write(folder, rows)]


def _struck(folder: Path) -> list[Path]:
    """The usual end of a search on a slow link: all that crosses was struck off, with a trial or without."""
    rows = [row for row in trials(rounds=1, backends=("tcp",)) if row["point"] in (0, 7, 21)]
    run = write(folder, rows)
    same = {name: rows[0][name] for name in ("run", "model", "netem", "batch_size", "backend")}
    of = {"how": "physics", "latency_s": 2.0, "throughput_ips": 0.5, "round": 1}
    off = [same | of | {"point": str(point), "payload_bytes": 5, "by_point": "21"} for point in (0, 7, 9)]
    pd.DataFrame(off).reindex(columns=schema.STRUCK.columns).to_csv(run / schema.STRUCK.file, index=False)
    return [run]


def _thousand(found: Findings) -> Findings:
    """The same with a thousand points of a backend, thirty of them on its front."""
    point = np.arange(1000)
    one = found.front[found.front["backend"] != ""].iloc[[0]]
    named = {"point": point.astype(str), "point_name": [f"unit{each}" for each in point]}
    figures = {
        "latency_s": 0.1 + point / 1e4,
        "throughput_ips": 5 + 0.1 * np.minimum(point, 30) - point / 1e3,
    }
    is_on = dict.fromkeys(("on_backend_front", "on_front"), point <= 30)
    is_on |= {"on_fronts_of": np.where(point <= 30, one["backend"].iloc[0], "")}
    wide = pd.concat([one] * len(point), ignore_index=True).assign(**named, **figures, **is_on)
    return replace(found, front=wide)


def drawn_by(draw: Callable[..., Told], width: str = "page", **of: Any) -> tuple[Any, str, pd.DataFrame]:
    """A figure with its caption and data, drawn by this function."""
    figure, told = printed(lambda on: draw(on, **of), width)
    return figure, told.caption(), told.data


def made(draw: Callable[..., Told], width: str = "page", /, **of: Any) -> tuple[Any, str, pd.DataFrame]:
    """The same, in the scheme of its rows."""
    return drawn_by(draw, width, **({"scheme": Scheme.of(of["rows"])} if "rows" in of else {}) | of)


RUNS: dict[str, Callable[[Path], list[Path]]] = {
    "no row": lambda folder: [write(folder, [])],
    "nothing crosses": lambda folder: [write(folder, trials(rounds=1)[21:22])],
    "all struck off": _struck, "one": _one, "backends": _backends, "few": _few, "wide": _wide, "thousand": _few,
    "chain": _chain, "codecs": _codecs, "engines": _engines, "loads": _loads,
}  # fmt: skip
"""Every shape that a front may have."""
