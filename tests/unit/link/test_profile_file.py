"""Profile files: what they may say, and that each fault is one line with the file and its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.errors import UserError
from pareto.link.profile import Bucket, Direction, Gilbert, Profile
from pareto.link.profile_file import read
from pareto.link.trace import Step, Trace

TRACE = Trace("up.csv", 2.0, (Step(0.0, 0.0, 5e6), Step(1.0, 0.0, 1e6)))
DELAYS = Trace("delays.csv", 2.0, (Step(0.0, 0.005, None), Step(1.0, 0.009, None)))


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/up.csv").write_text("at,rate\n0s,5mbit\n1s,1mbit\n2s,\n")
    (tmp_path / "traces/delays.csv").write_text("at,delay\n0s,5ms\n1s,9ms\n2s,\n")
    (tmp_path / "traces/wrong.csv").write_text("at,rate\n0s,5\n2s,\n")
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def delayed(delay_s: float) -> Trace:
    return Trace("up.csv", 2.0, tuple(Step(step.at_s, delay_s, step.rate_bps) for step in TRACE.steps))


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("edge_to_server: {}\n", Profile("mine")),
        (
            "edge_to_server: {delay: 200ms, rate: 2.5mbit}\nserver_to_edge: {delay: 100us}\n",
            Profile("mine", Direction(0.2, 2.5e6), Direction(1e-4)),
        ),
        (
            # Whatever the order of the keys.
            "edge_to_server: {limit: 64kib, corrupt: 0.1%, reorder: 2%, duplicate: 1%, loss: 3%,"
            " jitter_correlation: 25%, jitter: 5ms, rate: 5mbit, delay: 20ms}\n",
            Profile("mine", Direction(0.02, 5e6, 0.005, 0.25, 0.03, 0.01, 0.02, 0.001, 65536)),
        ),
        (
            "server_to_edge: {loss: {good_to_bad: 1%, bad_to_good: 20%}}\n",
            Profile("mine", Direction(), Direction(loss=Gilbert(0.01, 0.2))),
        ),
        (
            "server_to_edge: {loss: {in_good: 0.1%, in_bad: 50%, good_to_bad: 1%, bad_to_good: 20%}}\n",
            Profile("mine", Direction(), Direction(loss=Gilbert(0.01, 0.2, 0.5, 0.001))),
        ),
        ("shaper: netem\nedge_to_server: {rate: 5mbit}\n", Profile("mine", Direction(rate_bps=5e6))),
        (
            "shaper: netem+tbf\nedge_to_server: {rate: 5mbit}\n",
            Profile("mine", Direction(rate_bps=5e6), bucket=Bucket(32768, 0.4)),
        ),
        (
            "burst: 10kb\nlatency: 50ms\nshaper: netem+tbf\nedge_to_server: {rate: 5mbit}\n",
            Profile("mine", Direction(rate_bps=5e6), bucket=Bucket(10000, 0.05)),
        ),
        ("edge_to_server: {trace: traces/up.csv}\n", Profile("mine", Direction(trace=TRACE))),
        ("edge_to_server: {trace: traces/delays.csv}\n", Profile("mine", Direction(trace=DELAYS))),
        (
            "offset: 1.5s\nedge_to_server: {jitter: 1ms, limit: 10kb, delay: 20ms, trace: traces/up.csv}\n",
            Profile("mine", Direction(jitter_s=0.001, limit_bytes=10000, trace=delayed(0.02)), offset_s=1.5),
        ),
    ],
)
def test_a_file_is_read(tmp_path: Path, text: str, profile: Profile) -> None:
    assert read(write(tmp_path, text)) == profile


def test_a_trace_may_be_named_by_its_whole_path(tmp_path: Path) -> None:
    path = write(tmp_path, f"edge_to_server: {{trace: {tmp_path}/traces/up.csv}}\n")
    assert read(path).edge_to_server.trace == TRACE


E = "edge_to_server:\n  "  # what follows is line 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("- 1\n", 1),
        ("edge_to_server: {}\nup: {}\n", 2),
        ("edge_to_sever: {}\n", 1),
        (E + "dealy: 1ms\n", 2),
        ("? [a]\n: 1\n", 1),
        (E + "delay: 5\n", 2),
        (E + "delay:\n", 2),
        (E + "jitter: 5\n", 2),
        (E + "rate: 5mbps\n", 2),
        (E + "rate: [1]\n", 2),
        (E + "rate: 1kbit\n  rate: 2kbit\n", 3),
        (E + "rate: 50gbit\n", 2),
        (E + "loss: 0.01\n", 2),
        (E + "loss: 101%\n", 2),
        (E + "loss: [1%]\n", 2),
        (E + "loss: {good_to_bad: 1%}\n", 2),
        (E + "loss:\n    good_to_bad: 1%\n    bad_to_good: 0%\n", 4),
        (E + "loss:\n    good_to_bad: 1%\n    bad_to_good: 1\n", 4),
        (E + "loss: {good_to_bad: 1%, bad: 1%}\n", 2),
        (E + "limit: 100p\n  rate: 1mbit\n", 2),
        (E + "limit: 100b\n  rate: 1mbit\n", 2),
        (E + "delay: 1ms\n  limit: 9kb\n", 3),
        (E + "jitter: 5ms\n  delay: 1ms\n", 2),
        (E + "delay: 1ms\n  jitter_correlation: 5%\n", 3),
        (E + "rate: 1mbit\n  reorder: 1%\n", 3),
        ("edge_to_server: 5\n", 1),
        ("edge_to_server: {\n", 2),
        ("edge_to_server: {}\n# \x00\n", 2),
        ("shaper: hfsc\n", 1),
        ("shaper: []\n", 1),
        ("edge_to_server: {}\nburst: 32kib\n", 2),
        ("latency: 4ms\nshaper: netem\n", 1),
        ("shaper: netem+tbf\nburst: 1kib\n", 2),
        ("shaper: netem+tbf\nlatency: 0s\n", 2),
        ("edge_to_server: {rate: 1mbit, limit: 9kb}\nshaper: netem+tbf\n", 2),
        ("edge_to_server: {}\noffset: 5s\n", 2),
        ("offset: 5\nedge_to_server: {trace: traces/up.csv}\n", 1),
        (E + "trace: [1]\n", 2),
        (E + "rate: 1mbit\n  trace: traces/up.csv\n", 3),
        (E + "trace: traces/none.csv\n", 2),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, text: str, line: int | None, snapshot: SnapshotAssertion
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert "\n" not in str(caught.value)
    assert str(caught.value) == snapshot


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        (E + "delay: 1ms\n  trace: traces/delays.csv\n", 3, "traces/delays.csv:1"),
        (E + "trace: traces/wrong.csv\n", 2, "traces/wrong.csv:2"),
    ],
)
def test_a_wrong_trace_is_named_with_both_lines(
    tmp_path: Path, text: str, line: int, place: str, snapshot: SnapshotAssertion
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{line}: {tmp_path}/{place}: ")
    assert str(caught.value) == snapshot


def test_what_cannot_be_read_is_one_line(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    messages = []
    for name in ("missing.yaml", "binary.yaml", "."):
        with pytest.raises(UserError) as caught:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)
        messages.append(str(caught.value))
    assert messages == snapshot
