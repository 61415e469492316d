"""Profiles by name, by path and by what the name says; profile and trace files, and every way one can be wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import validation
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from pareto.remote.link.profile import Bucket, Direction, Gilbert, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep import profile_files
from pareto.sweep.profile_files import PROFILES, load, names, read, read_trace
from tests.unit.refusals import refusal


def test_every_file_loads_under_its_name_and_says_where_it_comes_from() -> None:
    assert {"none", "lan-1gbit", "wifi", "5g", "lte", "3g", "dsl", "satellite", "200ms-5mbit"} <= set(names())
    assert names() == sorted(names())
    for name in names():
        assert load(name).name == name
        assert (PROFILES / f"{name}.yaml").read_text().startswith("# "), name
    for name in [*names(), "80ms-20mbit"]:
        assert validation.read(Profile, load(name).to_dict()) == load(name)
    for name in ("LTE", "Wifi", " 5G ", "NONE"):
        assert load(name) == load(name.strip().lower())


@pytest.mark.parametrize(
    ("name", "out", "back"),
    [
        ("200ms-5mbit", Direction(0.2, 5e6), Direction()),
        ("lan-1gbit", *[Direction(1e-4, 1e9 / (1538 / 1514), overhead_bytes=24)] * 2),
        ("wifi", Direction(0.001, 15.68e6), Direction(0.001, 31.37e6)),
        ("5g", Direction(0.0095, 15.37e6), Direction(0.0095, 135.8e6)),
        ("lte", Direction(0.035, 12e6), Direction(0.035, 12e6)),
        ("3g", Direction(0.075, 768e3), Direction(0.075, 1.6e6)),
        ("dsl", Direction(0.025, 384e3), Direction(0.025, 1.5e6)),
        ("satellite", Direction(0.325, 10e6), Direction(0.325, 50e6)),
    ],
)
def test_what_the_library_says(name: str, out: Direction, back: Direction) -> None:
    """As the sources that the files name."""
    assert load(name) == Profile(name, out, back)


@pytest.mark.parametrize(
    ("name", "out_bps", "back_bps"),
    [
        ("lan-1gbit", 941.5e6, 941.5e6),  # 1448 of 1538 bytes
        ("wifi", 15e6, 30e6),  # what a page sends and receives
        ("5g", 14.7e6, 129.9e6),  # speed tests
        *(  # WebPageTest counts packets of IP
            (name, *(rate * 1448 / 1500 for rate in rates))
            for name, *rates in (("lte", 12e6, 12e6), ("3g", 768e3, 1.6e6), ("dsl", 384e3, 1.5e6))
        ),
    ],
)
def test_tcp_carries_what_the_technology_does(name: str, out_bps: float, back_bps: float) -> None:
    carried = [(way.rate_bps or 0) * GOODPUT for way in load(name).directions]
    assert carried == pytest.approx([out_bps, back_bps], rel=0.01)


def test_the_published_mode_differs_in_its_bucket_alone_and_an_example_has_a_trace() -> None:
    profile = load("200ms-5mbit-tbf")
    assert profile.directions == load("200ms-5mbit").directions
    assert profile.bucket == Bucket(32 * 1024, 0.4)
    profile = load("handover")
    trace = profile.edge_to_server.trace
    assert trace is not None
    assert (trace.name, profile.period_s, profile.rtt_s) == ("handover.csv", 30.0, pytest.approx(0.05))
    assert [trace.step(at).rate_bps for at in (0, 15.9, 16.0, 16.2, 16.4, 29.9)] == [
        20e6, 2e6, 0, 0, 4e6, 20e6,
    ]  # fmt: skip


def test_where_a_profile_is_read_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = load("none")
    monkeypatch.setattr(profile_files, "PROFILES", tmp_path)
    for profile in (there, load("none")):
        assert profile == Profile("none", Direction(), Direction()), "the clean link even without its file"
        assert not profile.edge_to_server.shaped
    (tmp_path / "50ms.yaml").write_text("server_to_edge: {delay: 50ms}\n")
    assert load("50ms") == Profile("50ms", Direction(), Direction(0.05)), "a file wins over what a name says"
    (path := tmp_path / "mine.yaml").write_text(
        "edge_to_server: {delay: 1ms}\nserver_to_edge: {rate: 1mbit}\n"
    )
    assert load(str(path)) == Profile("mine", Direction(0.001), Direction(rate_bps=1e6))


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("80ms-20mbit", Direction(0.08, 20e6)),
        ("50ms", Direction(0.05)),
        ("10mbit", Direction(rate_bps=10e6)),
        ("0.5ms-2.5gbit", Direction(0.0005, 2.5e9)),
        ("10ms-100mbit-1%", Direction(0.01, 100e6, loss=0.01)),
        ("20ms-1%", Direction(0.02, loss=0.01)),
        ("5mbit-0.1%", Direction(rate_bps=5e6, loss=0.001)),
        ("2%", Direction(loss=0.02)),
    ],
)
def test_a_name_without_a_file_is_read(name: str, direction: Direction) -> None:
    assert load(name) == Profile(name, direction, Direction())


def test_a_name_that_means_nothing(snapshot: SnapshotAssertion) -> None:
    no_profile = [
        "10mbit-", "80mss", "20mbit-80ms", "1%-20mbit", "5ms-5ms", "ltee", "zzz", "", "99s", "100gbit", "101%",
        "no/such.yaml", "4g", "wfi", "lte.yaml", "50ms-5mbit-100%",
    ]  # fmt: skip
    said = {name: refusal(UserError, load, name) for name in no_profile}
    assert all(name in line for name, line in said.items())
    assert all(name in said["zzz"] for name in names()), "it names what there is"
    assert {name: line.replace(", ".join(names()), "NAMES") for name, line in said.items()} == snapshot


ALL_LOST = "{loss: {good_to_bad: 1%, bad_to_good: 1%, in_good: 100%}}"


@pytest.mark.parametrize("direction", ["{loss: 100%}", "{corrupt: 100%}", ALL_LOST])
def test_a_link_that_lets_nothing_pass_is_no_link(tmp_path: Path, direction: str) -> None:
    (file := tmp_path / "mine.yaml").write_text(f"server_to_edge: {direction}\n")
    assert "lets nothing pass" in refusal(UserError, read, file)


def test_hosts_need_no_yaml() -> None:
    """What the link's modules on a host import does without PyYAML."""
    code = "import sys; sys.modules['yaml'] = None; from pareto.remote.link import probe, profile, relay"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROFILES.parent)


# A profile's file

TRACE = Trace("up.csv", 2.0, (Step(0.0, 0.0, 5e6), Step(1.0, 0.0, 1e6)))
DELAYS = Trace("delays.csv", 2.0, (Step(0.0, 0.005, None), Step(1.0, 0.009, None)))


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "traces").mkdir(exist_ok=True)
    (tmp_path / "traces/up.csv").write_text("at,rate\n0s,5mbit\n1s,1mbit\n2s,\n")
    (tmp_path / "traces/delays.csv").write_text("at,delay\n0s,5ms\n1s,9ms\n2s,\n")
    (tmp_path / "traces/wrong.csv").write_text("at,rate\n0s,5\n2s,\n")
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def delayed(delay_s: float) -> Trace:
    return Trace("up.csv", 2.0, tuple(Step(step.at_s, delay_s, step.rate_bps) for step in TRACE.steps))


MANY_KEYS = (
    "edge_to_server: {limit: 64kib, corrupt: 0.1%, reorder: 2%, duplicate: 1%, loss: 3%,"
    " jitter_correlation: 25%, jitter: 5ms, rate: 5mbit, delay: 20ms}\n"
)
LOSSY = "server_to_edge: {loss: {in_good: 0.1%, in_bad: 50%, good_to_bad: 1%, bad_to_good: 20%}}\n"
TBF = "shaper: netem+tbf\nedge_to_server: {rate: 5mbit}\n"
ON_TRACE = "offset: 1.5s\nedge_to_server: {jitter: 1ms, limit: 10kb, delay: 20ms, trace: traces/up.csv}\n"
FIVE = Direction(rate_bps=5e6)


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("edge_to_server: {}\n", Profile("mine")),
        (
            "edge_to_server: {delay: 200ms, rate: 2.5mbit}\nserver_to_edge: {delay: 100us}\n",
            Profile("mine", Direction(0.2, 2.5e6), Direction(1e-4)),
        ),
        # Whatever the order of the keys.
        (MANY_KEYS, Profile("mine", Direction(0.02, 5e6, 0.005, 0.25, 0.03, 0.01, 0.02, 0.001, 65536))),
        (
            "server_to_edge: {loss: {good_to_bad: 1%, bad_to_good: 20%}}\n",
            Profile("mine", Direction(), Direction(loss=Gilbert(0.01, 0.2))),
        ),
        (
            "edge_to_server: {rate: 100mbit, overhead: 24}\nserver_to_edge: {rate: 1mbit, atm: true, overhead: 10b}\n",
            Profile(
                "mine",
                Direction(rate_bps=100e6 / (1538 / 1514), overhead_bytes=24),
                Direction(rate_bps=1e6 / (32 * 53 / 1514), overhead_bytes=10, atm=True),
            ),
        ),
        (LOSSY, Profile("mine", Direction(), Direction(loss=Gilbert(0.01, 0.2, 0.5, 0.001)))),
        ("shaper: netem\nedge_to_server: {rate: 5mbit}\n", Profile("mine", FIVE)),
        (TBF, Profile("mine", FIVE, bucket=Bucket(32768, 0.4))),
        (f"burst: 10kb\nlatency: 50ms\n{TBF}", Profile("mine", FIVE, bucket=Bucket(10000, 0.05))),
        ("edge_to_server: {trace: traces/up.csv}\n", Profile("mine", Direction(trace=TRACE))),
        ("edge_to_server: {trace: FOLDER/traces/up.csv}\n", Profile("mine", Direction(trace=TRACE))),
        ("edge_to_server: {trace: traces/delays.csv}\n", Profile("mine", Direction(trace=DELAYS))),
        (
            ON_TRACE,
            Profile("mine", Direction(jitter_s=0.001, limit_bytes=10000, trace=delayed(0.02)), offset_s=1.5),
        ),
    ],
)
def test_a_file_is_read(tmp_path: Path, text: str, profile: Profile) -> None:
    assert read(write(tmp_path, text.replace("FOLDER", str(tmp_path)))) == profile


E = "edge_to_server:\n  "  # what follows is line 2
WRONG_FILES = [
    "", "- 1\n", "edge_to_server: {}\nup: {}\n", "edge_to_sever: {}\n", "? [a]\n: 1\n", "edge_to_server: 5\n",
    "edge_to_server: {\n", "edge_to_server: {}\n# \x00\n", f"{E}dealy: 1ms\n", f"{E}delay: 5\n", f"{E}delay:\n",
    f"{E}jitter: 5\n", f"{E}rate: 5mbps\n", f"{E}rate: [1]\n", f"{E}rate: 1kbit\n  rate: 2kbit\n",
    f"{E}rate: 50gbit\n", f"{E}loss: 0.01\n", f"{E}loss: 101%\n", f"{E}loss: [1%]\n",
    f"{E}loss: {{good_to_bad: 1%}}\n", f"{E}loss:\n    good_to_bad: 1%\n    bad_to_good: 0%\n",
    f"{E}loss:\n    good_to_bad: 1%\n    bad_to_good: 1\n", f"{E}loss: {{good_to_bad: 1%, bad: 1%}}\n",
    f"{E}limit: 100p\n  rate: 1mbit\n", f"{E}limit: 100b\n  rate: 1mbit\n", f"{E}delay: 1ms\n  limit: 9kb\n",
    f"{E}jitter: 5ms\n  delay: 1ms\n", f"{E}delay: 1ms\n  jitter_correlation: 5%\n",
    f"{E}rate: 1mbit\n  reorder: 1%\n",
    "shaper: hfsc\n", "shaper: []\n", "edge_to_server: {}\nburst: 32kib\n", "latency: 4ms\nshaper: netem\n",
    "shaper: netem+tbf\nburst: 1kib\n", "shaper: netem+tbf\nlatency: 0s\n",
    "edge_to_server: {rate: 1mbit, limit: 9kb}\nshaper: netem+tbf\n", "edge_to_server: {}\noffset: 5s\n",
    "offset: 5\nedge_to_server: {trace: traces/up.csv}\n", f"{E}trace: [1]\n",
    f"{E}rate: 1mbit\n  trace: traces/up.csv\n", f"{E}trace: traces/none.csv\n",
    f"{E}rate: 1mbit\n  overhead: 2kb\n", f"{E}delay: 1ms\n  overhead: 24\n", f"{E}rate: 1mbit\n  atm: much\n",
    f"{E}overhead: 24\n  trace: traces/up.csv\n", "shaper: netem+tbf\nedge_to_server: {rate: 1mbit, overhead: 24}\n",
]  # fmt: skip
WRONG_TRACES = {
    f"{E}delay: 1ms\n  trace: traces/delays.csv\n": "mine.yaml:3: FOLDER/traces/delays.csv:1: ",
    f"{E}trace: traces/wrong.csv\n": "mine.yaml:2: FOLDER/traces/wrong.csv:2: ",
}


def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """And a wrong trace with both lines."""
    said = {text: fault(read, write(tmp_path, text)) for text in (*WRONG_FILES, *WRONG_TRACES)}
    assert said == snapshot
    for text, named in WRONG_TRACES.items():
        assert said[text].startswith(f"{tmp_path}/{named.replace('FOLDER', str(tmp_path))}")


def test_a_file_without_end_or_that_multiplies_itself_is_one_line(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    for text in ("[" * 1000, "&a {edge_to_server: *a}\n", "&a [*a]\n"):
        assert "mine.yaml: is nested too deep" in refusal(UserError, read, write(tmp_path, text))
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 12)]
    assert "aliases" in refusal(UserError, read, write(tmp_path, "\n".join(["l0: &l0 x", *levels]) + "\n"))
    assert unreadable(read, tmp_path, "missing.yaml", "binary.yaml") == snapshot


# A trace's file


def trace(tmp_path: Path, text: str, delay_s: float | None = None, name: str = "trace.csv") -> Trace:
    (path := tmp_path / name).write_text(text)
    return read_trace(path, delay_s)


def times(tmp_path: Path, *lines: int | str, delay_s: float | None = None) -> Trace:
    return trace(tmp_path, "".join(f"{line}\n" for line in lines), delay_s, "trace.up")


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
    assert trace(tmp_path, text) == Trace("trace.csv", 3.0, STEPS)


def test_a_table_of_rates_has_the_delay_that_is_given_and_one_of_delays_no_limit(tmp_path: Path) -> None:
    text = "at,rate\n0s,5mbit\n1s,1mbit\n2s,\n"
    for given, delay_s in ((None, 0.0), (0.03, 0.03)):
        assert [step.delay_s for step in trace(tmp_path, text, given).steps] == [delay_s] * 2
    delays = Trace("trace.csv", 2.0, (Step(0.0, 0.02, None), Step(1.0, 0.03, None)))
    assert trace(tmp_path, "at,delay\n0s,20ms\n1s,30ms\n2s,\n") == delays


WRONG_TABLES = [
    "", "\n \n", "at,rate\n0s,5mbit\n", "at,speed\n0s,1mbit\n1s,\n", "rate,delay\n1mbit,1ms\n2mbit,\n",
    "at\n0s\n1s\n", "at,rate,rate_bps\n0s,1mbit,1\n1s\n", "# by hand\nat,rate\n0s,5\n1s,\n",
    "at,rate\n0,5mbit\n1s,\n", "at,delay\n0s,5mbit\n1s,\n", "at_s,rate_bps\n0,5mbit\n1,\n",
    "at,rate\n0s,500gbit\n1s,\n", "at_s,rate_bps\n0,999\n1,\n", "at_s,rate_bps\n0,-1\n1,\n",
    "at_s,rate_bps\n0,nan\n1,\n", "at,delay\n0s,61s\n1s,\n", "at_s,delay_s\n0,nan\n1,\n",
    "at,rate\n1s,1mbit\n2s,\n", "at,rate\n0s,1mbit\n1s,2mbit\n1s,\n", "at,rate\n0s,1mbit\n2s,2mbit\n1s,3mbit\n4s,\n",
    "at_s,rate\n0,1mbit\nnan,2mbit\n3,\n", "at_s,rate\n0,1mbit\ninf,\n", "at,rate\n0s,1mbit\n1s,\n2s,\n",
    "at,rate\n0s,1mbit\n,2mbit\n2s,\n", "at,rate\n0s,1mbit\n1s,2mbit\n", "at,rate\n0s,1mbit,5\n1s,\n",
    "at,rate\n0s,0\n1s,\n",
]  # fmt: skip


def test_a_wrong_table_is_named_with_its_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    said = {text: fault(trace, tmp_path, text) for text in WRONG_TABLES}
    assert said == snapshot
    given_twice = fault(trace, tmp_path, "at,delay\n0s,20ms\n1s,\n", 0.0)
    assert given_twice == snapshot


def fault(read: Callable[..., object], path: Path, *more: Any) -> str:
    """What is said: one line that begins with the file, whose line is named where there is one to blame."""
    line = refusal(UserError, read, path, *more)
    assert line.startswith(str(path))
    return line


def test_each_delivery_is_a_packet_of_its_10_ms(tmp_path: Path) -> None:
    """1500 bytes of IP are 1514 on the wire. Those of 1 to 10 ms are the first ten's, so the last has its place."""
    bits = 1514 * 8
    steps = [Step(0.01 * at, 0.02, packets * bits / 0.010) for at, packets in enumerate((2, 1, 0, 3))]
    assert times(tmp_path, 1, 10, 11, 40, 40, 40, delay_s=0.02) == Trace("trace.up", 0.04, tuple(steps))
    assert times(tmp_path, 0, 10) == times(tmp_path, 1, 10), "a packet at 0 passes at once"
    last_is_shorter = times(tmp_path, 5, 14)
    assert last_is_shorter.period_s == 0.014
    assert [step.rate_bps for step in last_is_shorter.steps] == [bits / 0.010, bits / 0.004]
    steady = times(tmp_path, *range(1, 1001))
    assert (steady.period_s, steady.steps) == (1.0, (Step(0.0, 0.0, bits * 1000),))


@pytest.mark.parametrize("period", [1, 7, 10, 999, 1000, 4321, 86_400_000])
def test_no_bit_is_lost(tmp_path: Path, period: int) -> None:
    """Neither in an unfinished bin nor in a night without a packet."""
    at = sorted({1 + (number * number * 37) % min(period, 100_000) for number in range(300)} | {period})
    trace = times(tmp_path, *at)
    assert trace.carried_bits(trace.period_s - 1e-12) == pytest.approx(len(at) * 1514 * 8, rel=1e-6)
    assert trace.mean_rate_bps == pytest.approx(len(at) * 1514 * 8 * 1000 / period)


def test_wrong_times_are_named_with_their_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    wrong = {
        "empty": ["5", "", "7"], "share": ["5", "7.5"], "negative": ["-1"], "digit": ["\u00b2"],
        "large": ["9" * 5000], "table": ["at,rate", "0s,1mbit"], "back": ["5", "9", "8"], "only 0": ["0", "0"],
        "fast": ["1"] * 3000,
    }  # fmt: skip
    said = {name: fault(times, tmp_path, *lines) for name, lines in wrong.items()}
    assert said == snapshot
    assert unreadable(read_trace, tmp_path, "missing", "binary") == snapshot


def unreadable(read: Callable[[Path], object], folder: Path, missing: str, binary: str) -> list[str]:
    """What is said of a file that is missing, of one that is no text, and of a folder: each names it, in one line."""
    (folder / binary).write_bytes(b"\xff\xfe\x00")
    said = {name: refusal(UserError, read, folder / name) for name in (missing, binary, ".")}
    assert all(str(folder / name) in line for name, line in said.items())
    return [*said.values()]
