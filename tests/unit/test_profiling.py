"""`partitions --times`: what it prints, writes and traces."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import model_profile
from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import CodecTimes, ModelProfile
from pareto.commands import unit_times
from pareto.hosts.inventory import SIMULATED
from tests import rows_of
from tests.program import command, refused, well
from tests.unit.analysis.test_model_profile import profile
from tests.unit.simulated.worlds import MODEL, POINTS

SIZES = np.array([1e3, 1e4, 1e5])


def complete() -> ModelProfile:
    """A profile whose edge has a sensor, a known peak of memory, and a share of a core."""
    made = profile()
    edge, *others = made.times
    peaks = np.array([1e8, 3e8, 2e8])
    return dataclasses.replace(
        made,
        times=(dataclasses.replace(edge, peak_bytes=peaks, energy_j=0.25, threads=2), *others),
        hosts={
            **made.hosts,
            "edge": {"peak_flops": 5e12, "peak_bytes_s": 2e10, "device": "cpu", "energy_unit_s": 25.0},
        },
    )


def shown(renderable: object) -> str:
    out = Console(file=io.StringIO(), width=100)
    out.print(renderable)
    assert isinstance(out.file, io.StringIO)
    return "\n".join(line.rstrip() for line in out.file.getvalue().splitlines())


def test_the_table_and_lines_have_each_unit_device_backend_and_codec(snapshot: SnapshotAssertion) -> None:
    assert shown(unit_times.table(complete(), 8)) == snapshot
    # A line on each device and backend.
    assert "\n".join(unit_times.lines(complete())) == snapshot
    # The energy of each unit.
    edge, *others = complete().times
    own_j = dataclasses.replace(edge, units_energy_j=np.array([0.05, 0.2, 0.01]))
    metered = dataclasses.replace(complete(), times=(own_j, *others))
    assert shown(unit_times.table(metered, 1)) == snapshot
    assert next(unit_times.lines(metered)).endswith("0.25 J a run, the units by themselves +4%")
    # A line on each codec.
    figures = np.array([1.0, 2.0, np.nan])
    edge, server = (
        CodecTimes(
            role, 8, "int8", 4e5 * figures, 1e5 * figures, 1e5 * figures, 1e-3 * figures, 9e-4 * figures, decode_s,
            decode_s,
        )
        for role, decode_s in (("edge", np.full(3, np.nan)), ("server", 2e-4 * figures))
    )  # fmt: skip
    made = dataclasses.replace(complete(), times=(), backends=(), codecs=(edge, server))
    assert "\n".join(unit_times.lines(made)) == snapshot


def test_what_a_reader_must_know_begins_with_attention(snapshot: SnapshotAssertion) -> None:
    made = profile()
    times = made.times[0]
    noisy = BackendCost("edge-server", "rpc", SIZES, np.array([0.1, 0.001, 0.1]), np.zeros(3))
    for whole, says in ((1.04, 0), (0.96, 0), (1.08, 1), (0.9, 1)):
        sum_s = whole * float(times.median_s.sum())
        off = dataclasses.replace(times, whole_s=(sum_s, sum_s, sum_s, sum_s))
        lines = list(unit_times.lines(dataclasses.replace(made, times=(off,), backends=())))
        assert sum(line.startswith("attention: edge") for line in lines) == says
    lines = [*lines, *unit_times.lines(dataclasses.replace(made, times=(), backends=(noisy,)))]
    assert [line for line in lines if line.startswith("attention")] == snapshot
    # Units without a time or work have no rates.
    made = profile()
    still = dataclasses.replace(made.times[0], median_s=np.zeros(3), whole_s=(0.0, 0.0, 0.0, 0.0))
    text = shown(unit_times.table(dataclasses.replace(made, times=(still,)), 1))
    assert "nan" not in text
    assert "inf" not in text
    assert "nan" not in "".join(unit_times.lines(dataclasses.replace(made, times=(still,))))


def test_a_trace_has_a_row_for_each_device_and_a_slice_for_each_unit() -> None:
    made = complete()
    events = json.loads(unit_times.trace_events([made, made]))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 2 * len(made.times) * len(made.units)
    first = [event for event in slices if (event["pid"], event["tid"]) == (1, 1)]
    assert [event["name"] for event in first] == list(made.units)
    assert [event["dur"] for event in first] == pytest.approx([2000.0, 3456.7891234, 1000.0])
    assert first[1]["ts"] == pytest.approx(first[0]["dur"])
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and event["pid"] == 1]
    assert names == [
        "small", "edge (cpu), batch size 1", "server (cpu), batch size 1", "edge (cpu), batch size 8",
        "server (cpu), batch size 8",
    ]  # fmt: skip


def test_the_command_on_a_simulated_testbed(tmp_path: Path) -> None:
    out, trace = tmp_path / "kept", tmp_path / "trace.json"
    typed = f"partitions {MODEL} --times --testbed {SIMULATED} --batch-size 1,2 --input float32"
    done = well(*typed.split(), "--out", str(out), "--trace", str(trace))
    (folder,) = (out / "profiles").iterdir()
    files = {path.name for path in folder.iterdir()}
    assert files == {"profile.csv", "backends.csv", "profile.json"}
    kept = model_profile.read(folder)
    assert len(kept.units) == POINTS - 1
    assert kept.batch_sizes == (1, 2)
    assert json.loads(trace.read_text())["traceEvents"]
    for words in ("batch size 2", "whole", "tcp on edge-server", str(folder.name), str(trace)):
        assert words in done.out.replace("\n", "")


def test_a_trace_that_cannot_be_written_is_known_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_times, "make_or_reuse", lambda *_, **__: pytest.fail("measured"))
    assert "t.json" in refused("partitions", MODEL, "--times", "--trace", str(tmp_path / "none" / "t.json"))


def test_a_profile_as_json_has_what_its_files_have(tmp_path: Path) -> None:
    done = command(
        *["partitions", "alexnet", "--times", "--testbed", "simulated", "--json", "--out"], str(tmp_path)
    )
    (told,) = json.loads(done.out)["profiles"]
    (folder,) = (tmp_path / "profiles").iterdir()
    assert told["folder"] == str(folder)
    assert told["graph_digest"] == json.loads((folder / "profile.json").read_text())["graph_digest"]
    units = rows_of(folder / "profile.csv")
    named = [(row["host"], int(row["unit"])) for row in units]
    assert [(row["host"], row["unit"]) for row in told["units"]] == named
    assert told["units"][1]["median_s"] == pytest.approx(float(units[1]["median_s"]))
    assert {row["backend"] for row in told["backends"]} == {"tcp", "rpc"}
    assert any("the sum of the units" in line for line in told["notes"])
