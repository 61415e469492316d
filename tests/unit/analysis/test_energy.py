"""Requests to a front: objectives, energy among them, and constraints; figures in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.findings import Options, find
from pareto.analysis.fronts import energy
from pareto.analysis.fronts.energy import counted, note, with_middle
from pareto.analysis.fronts.front import COLUMNS, front
from pareto.analysis.fronts.objectives import DEFAULT, OBJECTIVES, chosen
from pareto.analysis.runs.load import load, stages
from pareto.analysis.tables.report import overview
from pareto.analysis.wording import forms, interval, more
from pareto.protocol.errors import UserError
from pareto.remote.link.units import duration, percent, rate
from tests.unit import example_chain
from tests.unit.analysis.test_indicators import brute_force
from tests.unit.example_run import PAYLOAD_KIB, trials, with_energy, write
from tests.unit.refusals import refusal

LAST = len(PAYLOAD_KIB) - 1
IDLE = {
    "sessions": [{"hosts": {"edge": {"idle_power_w": 2.614}, "server": {"idle_power_w": 9}}, "driver": {}}]
}


def analysed(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return front(load([write(folder, rows)]))


def cells(edge: list[float], server: list[float], server_s: list[float], rounds: list[int]) -> pd.DataFrame:
    figures = {"edge_energy_j": edge, "server_energy_j": server, "server_s": server_s, "rounds": rounds}
    known = [1.0 if number else NAN for number in rounds]
    objectives = {"latency_s": known, "throughput_ips": known}
    return pd.DataFrame(figures | objectives).assign(edge_s=1.0, middle_s=NAN, middle_energy_j=NAN)


NAN = float("nan")


WHOSE = {
    "both": ([1, 2], [10, 20], [9, 9], [3, 3], "edge + server", [11, 22]),
    "the server is not asked at the last point": ([1, 2], [10, NAN], [9, NAN], [3, 3], "edge + server", [11, 2]),
    "nor counts there if measured": ([1, 2], [10, 20], [9, NAN], [3, 3], "edge + server", [11, 2]),
    "the server's is missing where it was asked": ([1, 2], [10, NAN], [9, 9], [3, 3], "edge", [1, 2]),
    "a server without sensor": ([1, 2], [NAN, NAN], [9, NAN], [3, 3], "edge", [1, 2]),
    "a server never asked shows no sensor": ([1, 2], [NAN, 20], [NAN, NAN], [3, 3], "edge", [1, 2]),
    "an edge not always measured": ([1, NAN], [10, 20], [9, 9], [3, 3], "server", [10, 20]),
    "the server alone, not asked at the end": ([1, NAN], [10, NAN], [9, NAN], [3, 3], "server", [10, 0]),
    "neither was measured everywhere": ([1, NAN], [10, NAN], [9, 9], [3, 3], "", [NAN, NAN]),
    "no sensors": ([NAN, NAN], [NAN, NAN], [9, NAN], [3, 3], "", [NAN, NAN]),
    "a cell without a valid trial has no say": ([1, NAN], [10, NAN], [9, NAN], [3, 0], "edge + server", [11, NAN]),
    "the only point that asks the server failed": ([1, 2], [10, NAN], [9, NAN], [0, 3], "edge", [NAN, 2]),
    "nothing valid": ([NAN], [NAN], [NAN], [0], "", [NAN]),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOSE)
def test_whose_energy_counts(case: str) -> None:
    *measured, devices, energy_j = WHOSE[case]
    found, values = counted(cells(*measured))
    assert found == devices
    np.testing.assert_array_equal(values.to_numpy(dtype=float), energy_j)


def by_hand(rows: pd.DataFrame, *columns: str) -> list[bool]:
    """Who is on the front, by the definition."""
    maximise = [column == "throughput_ips" for column in columns]
    return [bool(on) for on in brute_force(*rows[[*columns]].to_numpy().T, maximise=maximise)]


THREE = "latency_s", "throughput_ips", "energy_j"


def test_medians_and_the_front_of_three(tmp_path: Path) -> None:
    """As measured; and of random figures over both backends, with ties and cells without throughput."""
    rows = analysed(tmp_path / "measured", with_energy(trials()))
    assert rows["energy_of"].eq("edge + server").all()
    assert rows.loc[rows["point"] == str(LAST), "server_energy_j"].isna().all()
    expected = rows["edge_energy_j"] + rows["server_energy_j"].fillna(0)
    np.testing.assert_allclose(rows["energy_j"], expected, rtol=1e-12)
    assert rows["on_energy_front"].tolist() == by_hand(rows, *THREE)
    rng = np.random.default_rng(4)
    drawn = trials(rounds=1)
    for row in drawn:
        figures = rng.integers(1, 12, size=3).astype(float)
        row |= dict(zip(("latency_s", "throughput_ips", "edge_energy_j"), figures, strict=True))
        if row["point"] % 7 == 3:
            row["throughput_ips"] = ""
    found = analysed(tmp_path / "random", drawn)
    assert found["throughput_ips"].isna().any()
    assert found["on_energy_front"].tolist() == by_hand(found, *THREE[:2], "edge_energy_j")
    assert found["on_front"].sum() < found["on_energy_front"].sum() < len(found) - 1, "other points come up"


def test_conditions_decide_for_themselves(tmp_path: Path) -> None:
    """A missing server sensor says nothing about another batch size, and all about the other backend's points."""
    lacking = with_energy(trials(rounds=1, netem="lacking"))
    lacking[25]["server_energy_j"] = ""
    rows = with_energy(trials(rounds=1)) + with_energy(trials(rounds=1, batch_size=8), server=False)
    found = analysed(tmp_path, rows + lacking + trials(rounds=1, netem="other"))
    of = found.groupby(["netem", "batch_size"])
    assert of["energy_of"].unique().map(list).to_dict() == {
        ("200ms-5mbit", 1): ["edge + server"], ("200ms-5mbit", 8): ["edge"],
        ("lacking", 1): ["edge"], ("other", 1): [""],
    }  # fmt: skip
    assert of["on_energy_front"].any().tolist() == [True, True, True, False]


def test_a_server_is_not_charged_with_what_it_draws_anyway(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A server of 9 W idle: with that, almost nothing to do costs it as much as the whole model."""
    rows = with_energy(trials())
    for row in rows:
        image_s = 1 / row["throughput_ips"]
        row["edge_active_energy_j"] = row["edge_energy_j"] - 2.6 * image_s
        if row["payload_bytes"]:
            row["server_active_energy_j"] = row["server_energy_j"] - 9 * image_s
        if row["point"] == LAST - 1:
            row["server_active_energy_j"] = -0.01  # noise
    made = analysed(tmp_path / "known", rows)
    asked = made["point"] != str(LAST)
    expected = 3.2 * made["edge_s"] + (30 * made["server_s"]).where(made["point"] != str(LAST - 1), 0).fillna(
        0
    )
    np.testing.assert_allclose(made["active_energy_j"], expected, rtol=1e-6)
    assert (made.loc[asked, "energy_j"] > 1.5 * made.loc[asked, "active_energy_j"]).all()
    assert made["on_energy_front"].tolist() == by_hand(made, *THREE[:2], "active_energy_j")
    assert note(made, IDLE) == snapshot
    chosen = front(load([tmp_path / "known"]), ("active-energy", "throughput"))
    assert chosen["on_front"].tolist() == by_hand(made, "active_energy_j", "throughput_ips")
    for row in rows[::44]:
        row["edge_active_energy_j"] = ""
    one_missing = analysed(tmp_path / "missing", rows)
    assert one_missing["active_energy_j"].isna().any()
    assert one_missing["on_energy_front"].tolist() == by_hand(one_missing, *THREE), "all by the same"


def chain_with_energy(folder: Path, points: list[tuple[int, ...]], unmeasured: str = "") -> pd.DataFrame:
    """A chain of 5 W edges between and a server of 50 W, every host with a sensor but one."""
    rows, staged = example_chain.trials(points, backends=["tcp"])
    for stage in staged:
        image_s = stage["compute_s"] + stage["bubble_s"]
        if stage["host"] != unmeasured:
            stage["energy_j"] = (50 if stage["host"] == "server" else 5) * image_s
    by_host = {(stage["point"], stage["host"]): stage["energy_j"] for stage in staged}
    for row in rows:
        row["edge_energy_j"] = by_host[row["point"], "edge"]
        row["server_energy_j"] = by_host.get((row["point"], "server"), "")
    run = example_chain.write(folder, rows, staged)
    return front(with_middle(load([run]), stages(run)))


def test_the_hosts_between_are_charged_too(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    points = [(0, 0, 0), (3, 5, 8), (3, 5, LAST), (5, LAST, LAST), (LAST, LAST, LAST)]
    rows = chain_with_energy(tmp_path / "all", points).set_index("point")
    assert rows["energy_of"].eq("edge + middle + server").all()
    image_s = 1 / rows["throughput_ips"]
    watts = {"0+0+0": 65, "3+5+8": 65, "3+5+21": 15, "5+21+21": 10, "21+21+21": 5}
    np.testing.assert_allclose(rows["energy_j"], image_s * pd.Series(watts)[rows.index], rtol=1e-6)
    text = note(rows.reset_index(), {"sessions": [{"hosts": {"middle2": {"idle_power_w": 2.5}}}]})
    assert text == snapshot
    one_missing = chain_with_energy(tmp_path / "missing", points, unmeasured="middle2")
    assert one_missing["energy_of"].eq("edge").all(), "part of the middle's energy is not the middle's energy"


def test_the_caption_says_whose_energy_it_is(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    both = analysed(tmp_path / "both", with_energy(trials(rounds=1)))
    edge = analysed(tmp_path / "edge", with_energy(trials(rounds=1), server=False))
    asked = both[both["point"] != str(LAST)]
    notes = [note(both, IDLE), note(asked, {}), note(edge, IDLE), note(both.assign(energy_of="server"), IDLE)]
    assert notes == snapshot


PER_BYTE_J = {"tcp": 4e-8, "rpc": 9e-8}


def crossing_energy(rows: list[dict[str, Any]], power_w: float = 3.2) -> list[dict[str, Any]]:
    """The same trials on an edge that draws so much more than idle while it computes, and for each byte that it sends.
    Its energy is of a batch's share; its power is another one in each round, as by another clock."""
    for row in rows:
        here_w, size = power_w * (1 + 0.1 * row["round"]), row["batch_size"]
        row["edge_active_energy_j"] = here_w * row["edge_s"] / size
        row["edge_active_energy_j"] += PER_BYTE_J[row["backend"]] * row["payload_bytes"] / size
        row["edge_energy_j"] = row["edge_active_energy_j"] + 2.6 / row["throughput_ips"]
    return rows


def found_by(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return find([write(folder, rows)]).front.set_index("point")


def test_what_a_byte_costs_the_edge_beyond_its_stage(tmp_path: Path) -> None:
    rows = found_by(tmp_path, crossing_energy(trials(rounds=6, batch_size=4)))
    assert rows.loc[str(LAST), energy.CROSSING].isna().all(), "nothing crosses"
    crosses = rows.drop(index=str(LAST))
    expected = crosses["backend"].astype("str").map(PER_BYTE_J)
    for column in energy.CROSSING:
        np.testing.assert_allclose(crosses[column], expected, rtol=1e-6)


def test_what_a_byte_costs_by_few_rounds_or_after_a_codec(tmp_path: Path) -> None:
    """Half of the bytes are sent, at the same energy: each costs twice as much. The point that sends nothing was
    measured without a codec and stands for it. Three rounds give no interval."""
    plain, coded = (crossing_energy(trials(backends=("tcp",))) for _ in range(2))
    kept = [row | {"codec": "half"} for row in coded if row["payload_bytes"]]
    for row in kept:
        row["wire_bytes"] = row["payload_bytes"] / 2
    rows = found_by(tmp_path, plain + kept)
    for codec, times in (("none", 1), ("half", 2)):
        own = rows[rows["codec"].eq(codec) & rows["payload_bytes"].gt(0)]
        np.testing.assert_allclose(own[energy.CROSSING[0]], times * PER_BYTE_J["tcp"], rtol=1e-6)
        assert own[energy.CROSSING[1:]].isna().all(axis=None)


@pytest.mark.parametrize("lacking", ["idle power", "a point", "a round", "trust", "a sensor"])
def test_what_a_byte_costs_is_known_or_said_why_not(
    tmp_path: Path, lacking: str, snapshot: SnapshotAssertion
) -> None:
    rows = crossing_energy(trials(rounds=2))
    alone = [row for row in rows if not row["payload_bytes"]]
    if lacking in ("a sensor", "idle power"):
        rows = [row | {"edge_active_energy_j": ""} for row in rows]
    if lacking == "a sensor":
        rows = [row | {"edge_energy_j": ""} for row in rows]
    if lacking == "a point":
        rows = [row for row in rows if row not in alone]
    if lacking == "a round":
        rows = [row for row in rows if (row in alone) == (row["round"] == 0)]
    if lacking == "trust":
        rows = [row | {"status": "invalid"} if row in alone else row for row in rows]
    found = find([write(tmp_path, rows)])
    assert found.front[energy.CROSSING].isna().all(axis=None)
    assert [each for each in found.notes if "crosses" in each] == snapshot


def test_what_the_meters_leave_out_and_which_energies_are_doubted(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    rows, staged = example_chain.trials([(3, 5, 8)], backends=["tcp"])
    for number, stage in enumerate(staged):
        stage["energy_doubt"] = ("", "none: a reading", "none: another", "doubtful: its counter")[number % 4]
    run = example_chain.write(tmp_path, rows, staged)
    out = [
        {"hosts": {"edge": {"energy_leaves_out": each}}}
        for each in ("a meter: USB\x1b", "a meter: USB\x1b", "x")
    ]
    assert [*energy.sentences(stages(run), [{"sessions": out}])] == snapshot
    assert [*energy.sentences(stages(run).head(0), [{}])] == []


def test_the_table_has_what_a_byte_costs_beside_the_energy(tmp_path: Path) -> None:
    front = find([write(tmp_path, crossing_energy(trials()))]).front
    for objectives, is_there in ((("energy", "latency"), True), (DEFAULT, False)):
        table = overview(front, objectives)
        assert (("crossing" in table.notes), "crossing" in [each.head for each in table.columns]) == (
            is_there,
        ) * 2
    assert "0.04" in {cell.strip() for row in overview(front, ("energy", "latency")).rows for cell in row}


def test_idle_power_as_far_as_the_manifest_knows_it() -> None:
    rows = pd.DataFrame({"energy_of": ["edge"], "point": ["0"], "server_s": [NAN]})
    known = [{"hosts": {"edge": {"idle_power_w": watts}}} for watts in (2.7, 10, 2.5)]
    unknown = [{"hosts": {"edge": {"idle_power_w": None}, "server": {}}}, {}]
    for sessions, text in ((known, " (edge 2.5\N{EN DASH}10 W)"), (unknown, "")):
        assert note(rows, {"sessions": sessions}) == f"{note(rows, {})[:-1]}{text}."


def test_every_objective_is_a_column_of_the_front() -> None:
    assert {objective.column for objective in OBJECTIVES.values()} <= set(COLUMNS)
    assert [name for name, each in OBJECTIVES.items() if each.maximise] == [
        "throughput",
        "accuracy",
        "goodput",
        "sustained-rate",
    ]
    assert [each.column for each in chosen(DEFAULT)] == ["latency_s", "throughput_ips"]
    assert [each.name for each in chosen(["energy", "p95", "latency"])] == ["energy", "p95", "latency"]


def test_what_cannot_be_chosen(snapshot: SnapshotAssertion) -> None:
    wrong = (["latency", "cost"], ["latency"], [], ["latency", "energy", "latency"])
    assert [refusal(UserError, chosen, names) for names in wrong] == snapshot


def test_an_objective_that_no_point_has_is_said(tmp_path: Path) -> None:
    columns = dict.fromkeys(("latency_p95_s", "loaded_latency_p95_s", "edge_energy_j", "server_energy_j"), "")
    run = write(tmp_path, trials(rounds=2, **columns))
    said = r"--objectives \S+: no point of these runs has it \(.+\): choose others"
    for objectives in (("p95", "throughput"), ("latency", "energy"), ("loaded-p95", "latency")):
        with pytest.raises(UserError, match=said):
            find([run], Options(objectives=objectives))
    assert not find([run], Options(objectives=("latency", "payload"))).front.empty


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (duration(0.0412), "41.2 ms"),
        (duration(0.041), "41 ms"),
        (duration(1.234), "1.23 s"),
        (duration(0.99996), "1000 ms"),
        (duration(0.00005), "50 µs"),
        (rate(23.4e6), "23 Mbit/s"),
        (rate(1e9), "1 Gbit/s"),
        (rate(1.25e9), "1.2 Gbit/s"),
        (rate(450e3), "450 kbit/s"),
        (rate(137e6), "137 Mbit/s"),
        (rate(np.inf), "no limit"),
        (percent(0.123), "12 %"),
        (percent(0.0), "0 %"),
        (percent(0.0042), "0.42 %"),
        (more(0.5, "longer", "as long"), "50 % longer"),
        (more(2.3, "longer", "as long"), "3.3 times as long"),
        (interval(20e6, 27e6, rate), " (95 %: 20 to 27 Mbit/s)"),
        (interval(500e6, 1.2e9, rate), " (95 %: 500 Mbit/s to 1.2 Gbit/s)"),
        (interval(np.nan, np.nan, rate), ""),
        (
            forms({"payload_bytes": 5, "point": "7", "point_name": "", "backend": "tcp"})["place"],
            "7 over tcp",
        ),
        (
            forms({"payload_bytes": 5, "point": "7", "point_name": "f.6", "backend": "tcp"})["place"],
            "7 (f.6) over tcp",
        ),
        (
            forms({"payload_bytes": 5, "point": "0+0", "point_name": "", "backend": "none"})["place"],
            "all on the server",
        ),
    ],
)
def test_wording(said, expected):
    assert said == expected
