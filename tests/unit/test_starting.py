"""What is said and recorded of the hosts and links when the workers have started."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
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
from pareto.trial.workers import Workers
from tests.unit.two_hosts import lab_sweep


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return lab_sweep(tmp_path)


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=200, highlight=False)


def said(out: Console) -> list[str]:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


TORCH = {"torch": version("torch").partition("+")[0], "torchvision": version("torchvision").partition("+")[0]}


def test_the_same_versions_are_not_worth_a_word(out: Console) -> None:
    builds = {name: f"{found}+cu126" for name, found in TORCH.items()}
    print_versions(out, {"edge": TORCH, "server": builds})
    assert said(out) == []


def test_versions_that_differ_are_told_with_the_drivers(out: Console, snapshot: SnapshotAssertion) -> None:
    print_versions(out, {"edge": TORCH, "server": {**TORCH, "torch": "1.9.1+cu102"}})
    (line,) = said(out)
    edge, server, driver = line.split(", ")
    assert TORCH["torch"] in edge
    assert "1.9.1+cu102" in server
    assert version("torch") in driver
    assert [
        edge.replace(TORCH["torch"], "OURS"),
        server,
        driver.replace(version("torch"), "THE DRIVER'S"),
    ] == snapshot


def test_hosts_that_agree_against_the_driver(out: Console, snapshot: SnapshotAssertion) -> None:
    old = {**TORCH, "torchvision": "0.10.1"}
    print_versions(out, {"edge": old, "server": old})
    (line,) = said(out)
    assert line.replace(version("torchvision"), "THE DRIVER'S") == snapshot


@dataclass
class Linked:
    """In place of workers that measures the links beneath."""

    link: Reading

    def bare_links(self) -> dict[str, Reading]:
        return {"edge-server": self.link}


def bare_links(out: Console, sweep: Sweep, link: Reading) -> dict[str, Any]:
    networks = {name: (profile_files.load(name),) for name in ("none", *sweep.netems)}
    return starting.bare_links(out, cast(Workers, Linked(link)), sweep, networks)


def test_the_link_itself_is_told_and_kept(out: Console, sweep: Sweep, snapshot: SnapshotAssertion) -> None:
    kept = bare_links(out, sweep, Reading(0.0004, 94e6, 93e6, message_s=0.1))
    assert kept == {"edge-server": {"rtt_s": 0.0004, "rate_bps": 94e6, "rate_back_bps": 93e6}}
    assert said(out) == snapshot


def test_a_profile_that_the_link_cannot_follow_is_told_before_it_is_tried(
    out: Console, sweep: Sweep, snapshot: SnapshotAssertion
) -> None:
    bare_links(out, sweep, Reading(0.03, 3e6, 3e6))
    _, *told_of = said(out)
    assert len(told_of) == 2
    assert all("200ms-5mbit" in line for line in told_of)
    assert said(out) == snapshot


def test_the_tolerance_that_was_asked_for_counts(out: Console, sweep: Sweep) -> None:
    bare_links(
        out, sweep.model_copy(update={"tolerance": 0.5, "rtt_tolerance": 0.5}), Reading(0.03, 3e6, 3e6)
    )
    assert len(said(out)) == 1


def test_an_engine_that_a_host_lacks_is_named_with_the_host(snapshot: SnapshotAssertion) -> None:
    lacks = {"onnx": "it lacks the package onnxruntime: /opt/bin/python -m pip install onnxruntime"}
    hosts = {"edge": {"without_engines": lacks}, "server": {"without_engines": {}}, "driver": {}}
    starting.check_engines(["eager", "server=onnx", "compile"], hosts)
    with pytest.raises(UserError) as refused:
        starting.check_engines(["eager", "edge=onnx+server=compile"], hosts)
    assert str(refused.value) == snapshot


def test_a_host_without_room_ends_the_start_with_what_it_says(out: Console) -> None:
    shown = list[str]()
    workers = Mock(send=Mock(side_effect=[None, Unreachable("pi: 9 MB are free, and 528 MB are to come")]))
    starting.send(workers, Mock(), out, shown.append)
    assert shown == ["starting"]
    with pytest.raises(TestbedError, match=r"^the hosts did not get .*: pi: 9 MB are free, and 528 MB "):
        starting.send(workers, Mock(lost=str), out, shown.append)
