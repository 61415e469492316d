"""Traces from files: tables and mahimahi's delivery times, and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.errors import UserError
from pareto.link.trace import Step, Trace
from pareto.link.trace_file import read


def table(tmp_path: Path, text: str, delay_s: float | None = None) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return read(path, delay_s)


def times(tmp_path: Path, *lines: int | str, delay_s: float | None = None) -> Trace:
    path = tmp_path / "trace.up"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read(path, delay_s)


STEPS = (Step(0.0, 0.02, 5e6), Step(1.5, 0.04, 0.0), Step(1.75, 0.02, 2.5e6))


@pytest.mark.parametrize(
    "text",
    [
        "at,rate,delay\n0s,5mbit,20ms\n1.5s,0,40ms\n1750ms,2.5mbit,20ms\n3s,,\n",
        "at,rate,delay\n0s,5mbit,20ms\n1.5s,0mbit,40ms\n1750ms,2.5mbit,20ms\n3s\n",
        "at_s,rate_bps,delay_s\n0,5e6,0.02\n1.5,0,0.04\n1.75,2500000,0.02\n3,,\n",
        "delay,at_s,rate\n20ms,0,5mbit\n40ms,1.5,0kbit\n20ms,1.75,2.5mbit\n,3,\n",
        '# measured in room 3.14\n\n"at", "rate", "delay"\n0s, 5mbit, 20ms\n1.5s,0,40ms\n1.75s,2.5mbit,20ms\n\n3s\n\n',
        "\ufeffat,rate,delay\r\n0s,5mbit,20ms\r\n1.5s,0,40ms\r\n1.75s,2.5mbit,20ms\r\n3s,,\r\n",
    ],
)
def test_a_table_is_read(tmp_path: Path, text: str) -> None:
    assert table(tmp_path, text) == Trace("trace.csv", 3.0, STEPS)


def test_a_table_of_rates_has_the_delay_that_is_given(tmp_path: Path) -> None:
    text = "at,rate\n0s,5mbit\n1s,1mbit\n2s,\n"
    assert [step.delay_s for step in table(tmp_path, text).steps] == [0.0, 0.0]
    assert [step.delay_s for step in table(tmp_path, text, 0.03).steps] == [0.03, 0.03]


def test_a_table_of_delays_is_not_limited(tmp_path: Path) -> None:
    trace = table(tmp_path, "at,delay\n0s,20ms\n1s,30ms\n2s,\n")
    assert trace == Trace("trace.csv", 2.0, (Step(0.0, 0.02, None), Step(1.0, 0.03, None)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("\n \n", None),
        ("at,rate\n0s,5mbit\n", None),
        ("at,speed\n0s,1mbit\n1s,\n", 1),
        ("rate,delay\n1mbit,1ms\n2mbit,\n", 1),
        ("at\n0s\n1s\n", 1),
        ("at,rate,rate_bps\n0s,1mbit,1\n1s\n", 1),
        ("# by hand\nat,rate\n0s,5\n1s,\n", 3),
        ("at,rate\n0,5mbit\n1s,\n", 2),
        ("at,delay\n0s,5mbit\n1s,\n", 2),
        ("at_s,rate_bps\n0,5mbit\n1,\n", 2),
        ("at,rate\n0s,500gbit\n1s,\n", 2),
        ("at_s,rate_bps\n0,999\n1,\n", 2),
        ("at_s,rate_bps\n0,-1\n1,\n", 2),
        ("at_s,rate_bps\n0,nan\n1,\n", 2),
        ("at,delay\n0s,61s\n1s,\n", 2),
        ("at_s,delay_s\n0,nan\n1,\n", 2),
        ("at,rate\n1s,1mbit\n2s,\n", 2),
        ("at,rate\n0s,1mbit\n1s,2mbit\n1s,\n", 4),
        ("at,rate\n0s,1mbit\n2s,2mbit\n1s,3mbit\n4s,\n", 4),
        ("at_s,rate\n0,1mbit\nnan,2mbit\n3,\n", 3),
        ("at_s,rate\n0,1mbit\ninf,\n", None),
        ("at,rate\n0s,1mbit\n1s,\n2s,\n", 3),
        ("at,rate\n0s,1mbit\n,2mbit\n2s,\n", 3),
        ("at,rate\n0s,1mbit\n1s,2mbit\n", 3),
        ("at,rate\n0s,1mbit,5\n1s,\n", 2),
        ("at,rate\n0s,0\n1s,\n", None),
    ],
)
def test_a_wrong_table_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as caught:
        table(tmp_path, text)
    check_place(str(caught.value), tmp_path / "trace.csv", line)
    assert str(caught.value) == snapshot


def check_place(message: str, path: Path, line: int | None) -> None:
    """One line that begins with the file, and the number of the line where there is one to blame."""
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert "\n" not in message


def test_a_delay_is_not_given_twice(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as caught:
        table(tmp_path, "at,delay\n0s,20ms\n1s,\n", 0.0)
    check_place(str(caught.value), tmp_path / "trace.csv", 1)
    assert str(caught.value) == snapshot


def test_each_delivery_is_a_packet_of_its_10_ms(tmp_path: Path) -> None:
    """1500 bytes of IP are 1514 on the wire. Those of 1 to 10 ms are the first ten's, so the last has its place."""
    packet = 1514 * 8 / 0.010
    trace = times(tmp_path, 1, 10, 11, 40, 40, 40, delay_s=0.02)
    assert trace == Trace(
        "trace.up",
        0.04,
        (
            Step(0.0, 0.02, 2 * packet),
            Step(0.01, 0.02, 1 * packet),
            Step(0.02, 0.02, 0.0),
            Step(0.03, 0.02, 3 * packet),
        ),
    )


def test_a_packet_at_0_passes_at_once(tmp_path: Path) -> None:
    assert times(tmp_path, 0, 10) == times(tmp_path, 1, 10)


def test_the_last_bin_is_as_long_as_what_is_left(tmp_path: Path) -> None:
    trace = times(tmp_path, 5, 14)
    assert trace.period_s == 0.014
    assert [step.rate_bps for step in trace.steps] == [1514 * 8 / 0.010, 1514 * 8 / 0.004]


def test_a_steady_rate_is_one_step(tmp_path: Path) -> None:
    trace = times(tmp_path, *range(1, 1001))
    assert trace.period_s == 1.0
    assert trace.steps == (Step(0.0, 0.0, 1514 * 8 * 1000),)


@pytest.mark.parametrize("period", [1, 7, 10, 999, 1000, 4321, 86_400_000])
def test_no_bit_is_lost(tmp_path: Path, period: int) -> None:
    """Neither in an unfinished bin nor in a night without a packet."""
    at = sorted({1 + (number * number * 37) % min(period, 100_000) for number in range(300)} | {period})
    trace = times(tmp_path, *at)
    assert trace.carried_bits(trace.period_s - 1e-12) == pytest.approx(len(at) * 1514 * 8, rel=1e-6)
    assert trace.mean_rate_bps == pytest.approx(len(at) * 1514 * 8 * 1000 / period)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["5", "", "7"], 2),
        (["5", "7.5"], 2),
        (["-1"], 1),
        (["\u00b2"], 1),
        (["9" * 5000], 1),
        (["at,rate", "0s,1mbit"], 1),
        (["5", "9", "8"], 3),
        (["0", "0"], 2),
        (["1"] * 3000, None),
    ],
)
def test_wrong_times_are_named_with_their_line(
    tmp_path: Path, lines: list[str], line: int | None, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as caught:
        times(tmp_path, *lines)
    check_place(str(caught.value), tmp_path / "trace.up", line)
    assert str(caught.value) == snapshot


def test_what_cannot_be_read_is_one_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    messages = []
    for name in ("missing", "binary", "."):
        with pytest.raises(UserError) as caught:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)
        messages.append(str(caught.value))
    assert messages == snapshot
