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


SECOND = {**MANIFEST["sessions"][0], "hosts": {"edge": HOST | {"kernel": "6.2"}, "server": HOST}}
RELU = [{"name": "input", "payload_bytes": 8}, {"name": "relu", "payload_bytes": 4}]
DIFFERENCES = {
    "weights": changed("models", "net", "weights_digest", value="d" * 64),
    "graph": changed("models", "net", "graph_digest", value="d" * 64),
    "a number that means another point": changed("models", "net", "points", value=RELU),
    "profile": changed("profiles", "wifi", "edge_to_server", value={"rate_bps": 4e7, "loss": 0.01}),
    "testbed": changed("testbed", value="two hosts"),
    "shaper": changed("session", "testbed", "shaper", value="netem"),
    "cpu": changed("session", "hosts", "edge", "cpu", value="EPYC"),
    "governor": changed("session", "hosts", "edge", "governor", value="powersave"),
    "driver": changed("session", "driver", "kernel", value="6.2"),
    "congestion": changed("sweep", "congestion", value="bbr"),
    "share of a core": changed("sweep", "edge_cpu", value=0.25),
    "codecs": changed("sweep", "codecs", value=["none", "int8"]),
    "version": changed("pareto", value="0.2.0"),
    "of several sessions": changed("sessions", value=[*MANIFEST["sessions"], SECOND]),
    "an option that an older version did not have": changed("sweep", "until", value="5%"),
    "an older version": {"testbed": "local: two namespaces", "sweep": MANIFEST["sweep"]},
}
ALIKE = [
    MANIFEST,
    changed("session", "hosts", "edge", "pid", value=99),
    changed("sweep", "points", value=["1", "2"]),
    changed("models", "other", value={"weights_digest": "e"}),
    changed(
        "sweep", "codecs", value=["none"]
    ),  # what it does by default, it did before there were codecs, too
]


def test_each_setting_that_differs_is_told_and_no_other(snapshot: SnapshotAssertion) -> None:
    assert {name: told(other) for name, other in DIFFERENCES.items()} == snapshot
    assert [told(other) for other in ALIKE] == [[]] * len(ALIKE)


def test_doubts_come_first_and_all_hosts_share_a_line(snapshot: SnapshotAssertion) -> None:
    newer = HOST | {"kernel": "6.9"}
    other = changed("session", "hosts", value={"edge": newer, "server": newer})
    other["testbed"] = "two hosts"
    other["sweep"]["trials"] = 20
    lines = told(other)
    assert [line.startswith(DOUBTFUL) for line in lines] == [True, False, False]
    assert lines == snapshot


def test_another_seed_is_no_doubt(snapshot: SnapshotAssertion) -> None:
    seeded = [changed("models", "net", "weights", value="seeded") for _ in range(2)]
    for number, each in enumerate(seeded):
        each["models"]["net"]["weights_digest"] = str(number) * 64
        each["sweep"]["seed"] = number
    lines = told(*seeded[::-1])
    assert not any(line.startswith(DOUBTFUL) for line in lines)
    assert lines == snapshot


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
