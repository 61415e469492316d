"""What two runs were made with: a line for each difference, doubts first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.settings import DOUBTFUL
from pareto.analysis.comparing.settings import differences as settings_that_differ
from pareto.analysis.runs.manifest import manifest
from tests.unit.example_run import trials, write

HOST = {
    "cpu": "Cortex-A76",
    "governor": "performance",
    "kernel": "6.1",
    "torch": "2.13.0",
    "pid": 20,
    "machine": "aarch64",
}
MANIFEST: dict[str, Any] = {
    "pareto": "0.1.0",
    "sweep": {
        "trials": 8,
        "seed": 0,
        "congestion": None,
        "edge_cpu": 1.0,
        "threads": None,
        "points": ["all"],
    },
    "models": {
        "net": {
            "weights": "imagenet",
            "weights_digest": "a" * 64,
            "graph_digest": "b" * 64,
            "dataset": {"name": "cifar10", "inputs": {"1": {"images": 4, "digest": "c" * 64}}},
            "points": [{"name": "input", "payload_bytes": 8}, {"name": "conv", "payload_bytes": 4}],
        }
    },
    "profiles": {"wifi": {"edge_to_server": {"rate_bps": 2e7}, "server_to_edge": {}, "bucket": None}},
    "testbed": "local: two namespaces",
    "testbed_hosts": None,
    "sessions": [
        {"testbed": {"shaper": "relay"}, "hosts": {"edge": HOST, "server": HOST}, "driver": {"kernel": "6.1"}}
    ],
}


def changed(*path: str, value: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(MANIFEST))
    inner = made
    for key in path[:-1]:
        inner = inner["sessions"][0] if key == "session" else inner[key]
    inner[path[-1]] = value
    return made


def told(other: dict[str, Any], first: dict[str, Any] = MANIFEST) -> list[str]:
    return settings_that_differ(first, other, {"net"}, {"wifi"})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (
            ("models", "net", "weights_digest"),
            "d" * 64,
        ),
        (
            ("models", "net", "graph_digest"),
            "d" * 64,
        ),
        (
            ("profiles", "wifi", "edge_to_server"),
            {"rate_bps": 4e7, "loss": 0.01},
        ),
        (("testbed",), "two hosts"),
        (("session", "testbed", "shaper"), "netem"),
        (("session", "hosts", "edge", "cpu"), "EPYC"),
        (("session", "hosts", "edge", "governor"), "powersave"),
        (("session", "driver", "kernel"), "6.2"),
        (("sweep", "congestion"), "bbr"),
        (("sweep", "edge_cpu"), 0.25),
        (("pareto",), "0.2.0"),
    ],
    ids=lambda of: ".".join(of) if isinstance(of, tuple) else "",
)
def test_a_setting_that_differs_is_told(
    path: tuple[str, ...], value: Any, snapshot: SnapshotAssertion
) -> None:
    (line,) = told(changed(*path, value=value))
    assert line == snapshot


def test_what_passes_and_what_is_told_elsewhere_is_no_difference() -> None:
    assert told(MANIFEST) == []
    assert told(changed("session", "hosts", "edge", "pid", value=99)) == []
    assert told(changed("sweep", "points", value=["1", "2"])) == []
    assert told(changed("models", "other", value={"weights_digest": "e"})) == []


def test_doubts_come_first_and_all_hosts_share_a_line(snapshot: SnapshotAssertion) -> None:
    other = changed(
        "session", "hosts", value={"edge": HOST | {"kernel": "6.9"}, "server": HOST | {"kernel": "6.9"}}
    )
    other["testbed"] = "two hosts"
    other["sweep"]["trials"] = 20
    lines = told(other)
    assert [line.startswith(DOUBTFUL) for line in lines] == [True, False, False]
    assert lines == snapshot


def test_a_number_that_means_another_point(snapshot: SnapshotAssertion) -> None:
    points = [{"name": "input", "payload_bytes": 8}, {"name": "relu", "payload_bytes": 4}]
    (line,) = told(changed("models", "net", "points", value=points))
    assert line == snapshot


def test_another_seed_is_no_doubt(snapshot: SnapshotAssertion) -> None:
    seeded = [changed("models", "net", "weights", value="seeded") for _ in range(2)]
    for number, each in enumerate(seeded):
        each["models"]["net"]["weights_digest"] = str(number) * 64
        each["sweep"]["seed"] = number
    lines = told(*seeded[::-1])
    assert not any(line.startswith(DOUBTFUL) for line in lines)
    assert lines == snapshot


def test_several_sessions_of_one_run(snapshot: SnapshotAssertion) -> None:
    other = changed("pareto", value="0.1.0")
    second = json.loads(json.dumps(other["sessions"][0]))
    second["hosts"]["edge"]["kernel"] = "6.2"
    other["sessions"].append(second)
    assert told(other) == snapshot


@pytest.mark.parametrize(
    "text",
    [None, "{broken", '{"sessions": "?", "models": [], "sweep": {"trials": 8}}'],
    ids=["missing", "broken", "older"],
)
def test_a_manifest_that_is_missing_broken_or_older(
    tmp_path: Path, text: str | None, snapshot: SnapshotAssertion
) -> None:
    a, b = (write(tmp_path / name, trials(rounds=1, run=name)) for name in "ab")
    (b / "manifest.json").unlink() if text is None else (b / "manifest.json").write_text(text)
    assert settings_that_differ(manifest(a), manifest(b), {"mobilenetv2"}, {"200ms-5mbit"}) == snapshot


def test_an_option_that_an_older_version_did_not_have(snapshot: SnapshotAssertion) -> None:
    other = changed("sweep", "until", value="5%")
    older = {"testbed": "local: two namespaces", "sweep": MANIFEST["sweep"]}
    assert [*told(other), *told(older)] == snapshot
    assert told(changed("sweep", "codecs", value=["none"])) == [], "what it does by default, it did then, too"
    (line,) = told(changed("sweep", "codecs", value=["none", "int8"]))
    assert line == "codec: none in A; none,int8 in B"
