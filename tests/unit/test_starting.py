"""What is said and recorded of the hosts and links when the workers have started."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import TestbedError
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Reading
from pareto.sweep import profile_files
from pareto.sweep.sweep import Sweep
from pareto.trial import start as starting
from pareto.trial.start import print_versions
from tests.unit.refusals import refusal
from tests.unit.two_hosts import lab_sweep


def said(of: Callable[..., object], *arguments: Any) -> list[str]:
    out = Console(file=(file := io.StringIO()), width=200, highlight=False)
    of(out, *arguments)
    return file.getvalue().splitlines()


TORCH = {name: version(name).partition("+")[0] for name in ("torch", "torchvision")}


def test_versions_that_differ_are_told_with_the_drivers(snapshot: SnapshotAssertion) -> None:
    builds = {name: f"{found}+cu126" for name, found in TORCH.items()}
    assert said(print_versions, {"edge": TORCH, "server": builds}) == [], "the same are not worth a word"
    (line,) = said(print_versions, {"edge": TORCH, "server": {**TORCH, "torch": "1.9.1+cu102"}})
    edge, server, driver = line.split(", ")
    assert TORCH["torch"] in edge
    assert "1.9.1+cu102" in server
    assert version("torch") in driver
    ours = edge.replace(TORCH["torch"], "OURS")
    assert [ours, server, driver.replace(version("torch"), "THE DRIVER'S")] == snapshot
    old = {**TORCH, "torchvision": "0.10.1"}
    (line,) = said(print_versions, {"edge": old, "server": old})
    assert line.replace(version("torchvision"), "THE DRIVER'S") == snapshot, "hosts that agree"


def test_the_link_itself_is_told_and_kept_and_what_it_cannot_follow(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    sweep, kept = lab_sweep(tmp_path), []
    networks = {name: (profile_files.load(name),) for name in ("none", *sweep.netems)}

    def told(sweep: Sweep, link: Reading) -> list[str]:
        workers = Mock(bare_links=lambda: {"edge-server": link})
        return said(lambda out: kept.append(starting.bare_links(out, workers, sweep, networks)))

    assert told(sweep, Reading(0.0004, 94e6, 93e6, message_s=0.1)) == snapshot
    assert kept == [{"edge-server": {"rtt_s": 0.0004, "rate_bps": 94e6, "rate_back_bps": 93e6}}]
    slow = Reading(0.03, 3e6, 3e6)
    _, *told_of = lines = told(sweep, slow)
    assert ["200ms-5mbit" in line for line in told_of] == [True] * 2
    assert lines == snapshot
    asked = sweep.model_copy(update={"tolerance": 0.5, "rtt_tolerance": 0.5})
    assert len(told(asked, slow)) == 1, "the tolerance that was asked for counts"


def test_an_engine_that_a_host_lacks_is_named_with_the_host(snapshot: SnapshotAssertion) -> None:
    lacks = {"onnx": "it lacks the package onnxruntime: /opt/bin/python -m pip install onnxruntime"}
    hosts = {"edge": {"without_engines": lacks}, "server": {"without_engines": {}}, "driver": {}}
    starting.check_engines(["eager", "server=onnx", "compile"], hosts)
    engines = ["eager", "edge=onnx+server=compile"]
    assert refusal(UserError, starting.check_engines, engines, hosts) == snapshot


def test_a_host_without_room_ends_the_start_with_what_it_says() -> None:
    shown, out = list[str](), Mock()
    workers = Mock(send=Mock(side_effect=[None, Unreachable("pi: 9 MB are free, and 528 MB are to come")]))
    starting.send(workers, Mock(), out, shown.append)
    assert shown == ["starting"]
    with pytest.raises(TestbedError, match=r"^the hosts did not get .*: pi: 9 MB are free, and 528 MB "):
        starting.send(workers, Mock(lost=str), out, shown.append)
