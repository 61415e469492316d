"""Profile files: what they may say, and that each fault is one line with the file and its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.link.profile import Bucket, Direction, Gilbert, Profile, ProfileError
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
    ("text", "message"),
    [
        ("", ": is empty; write 'edge_to_server"),
        (
            "- 1\n",
            ":1: the profile must be a mapping with the keys edge_to_server, server_to_edge, shaper, burst,",
        ),
        ("edge_to_server: {}\nup: {}\n", ":2: unknown key 'up': the profile has the keys edge_to_server,"),
        (
            "edge_to_sever: {}\n",
            ":1: unknown key 'edge_to_sever' (did you mean edge_to_server?): the profile has",
        ),
        (
            E + "dealy: 1ms\n",
            ":2: unknown key 'dealy' (did you mean delay?): a direction has the keys delay, rate,",
        ),
        ("? [a]\n: 1\n", ":1: the profile has the keys edge_to_server"),
        (E + "delay: 5\n", ":2: delay '5' has no unit: use us, ms, s, as in 200ms"),
        (E + "delay:\n", ":2: delay '' is not a number and a unit"),
        (E + "jitter: 5\n", ":2: jitter '5' has no unit: use us, ms, s"),
        (E + "rate: 5mbps\n", ":2: rate '5mbps' has the unknown unit 'mbps': use kbit"),
        (E + "rate: [1]\n", ":2: rate must be a number and a unit"),
        (E + "rate: 1kbit\n  rate: 2kbit\n", ":3: key 'rate' stands here twice"),
        (E + "rate: 50gbit\n", ":2: rate 5e+10 bit/s is out of range"),
        (E + "loss: 0.01\n", ":2: loss '0.01' has no unit: use %, as in 1%"),
        (E + "loss: 101%\n", ":2: loss 1.01 is not a share of packets: 0% to 100%"),
        (E + "loss: [1%]\n", ":2: loss must be a number and a unit"),
        (E + "loss: {good_to_bad: 1%}\n", ":2: bursty loss needs bad_to_good"),
        (
            E + "loss:\n    good_to_bad: 1%\n    bad_to_good: 0%\n",
            ":4: loss good_to_bad and bad_to_good must be",
        ),
        (E + "loss:\n    good_to_bad: 1%\n    bad_to_good: 1\n", ":4: bad_to_good '1' has no unit: use %"),
        (
            E + "loss: {good_to_bad: 1%, bad: 1%}\n",
            ":2: unknown key 'bad' (did you mean in_bad?): bursty loss has the keys good_to_bad,",
        ),
        (E + "limit: 100p\n  rate: 1mbit\n", ":2: limit '100p' has the unknown unit 'p': use b, kb, kib"),
        (E + "limit: 100b\n  rate: 1mbit\n", ":2: limit 100 bytes is out of range: one packet (1514b)"),
        (E + "delay: 1ms\n  limit: 9kb\n", ":3: limit needs a rate: without one nothing waits"),
        (E + "jitter: 5ms\n  delay: 1ms\n", ":2: jitter 0.005 s must be at most the delay, 0.001 s"),
        (E + "delay: 1ms\n  jitter_correlation: 5%\n", ":3: jitter_correlation needs jitter"),
        (E + "rate: 1mbit\n  reorder: 1%\n", ":3: reorder needs a delay"),
        ("edge_to_server: 5\n", ":1: a direction must be a mapping with the keys delay, rate"),
        ("edge_to_server: {\n", ":2: not YAML:"),
        ("edge_to_server: {}\n# \0\n", ":2: not YAML: a character that is not text"),
        ("shaper: hfsc\n", ":1: unknown shaper 'hfsc': use netem or netem+tbf"),
        ("shaper: []\n", ":1: shaper must be netem or netem+tbf"),
        ("edge_to_server: {}\nburst: 32kib\n", ":2: burst needs 'shaper: netem+tbf'"),
        ("latency: 4ms\nshaper: netem\n", ":1: latency needs 'shaper: netem+tbf'"),
        ("shaper: netem+tbf\nburst: 1kib\n", ":2: burst 1024 bytes is out of range"),
        ("shaper: netem+tbf\nlatency: 0s\n", ":2: latency 0 s is out of range"),
        (
            "edge_to_server: {rate: 1mbit, limit: 9kb}\nshaper: netem+tbf\n",
            ":2: shaper netem+tbf knows neither",
        ),
        ("edge_to_server: {}\noffset: 5s\n", ":2: offset needs a trace"),
        ("offset: 5\nedge_to_server: {trace: traces/up.csv}\n", ":1: offset '5' has no unit: use us"),
        (E + "trace: [1]\n", ":2: trace must be a file's path"),
        (E + "rate: 1mbit\n  trace: traces/up.csv\n", ":3: a trace gives delay and rate"),
        (E + "trace: traces/none.csv\n", ":2: cannot read the trace "),
        (
            E + "delay: 1ms\n  trace: traces/delays.csv\n",
            ":3: {folder}/traces/delays.csv:1: the trace has delays of",
        ),
        (E + "trace: traces/wrong.csv\n", ":2: {folder}/traces/wrong.csv:2: rate '5' has no unit"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path) + message.replace("{folder}", str(tmp_path)))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.yaml", "binary.yaml", "."):
        with pytest.raises(ProfileError, match=f"^cannot read the netem profile {tmp_path}[^\n]*$"):
            read(tmp_path / name)
