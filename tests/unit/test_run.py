"""What the main job begins before what, and puts back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pareto.hosts.host import TestbedError
from pareto.hosts.session import SessionLost
from pareto.protocol.errors import UserError
from pareto.run import job, manifest
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import Sweep
from pareto.trial import start
from tests.unit.two_hosts import lab_sweep


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return lab_sweep(tmp_path)


LOCAL = make_sweep({"model": "alexnet", "netem": "200ms-5mbit"})


def test_what_a_lost_host_cannot_tell_is_left_out() -> None:
    def lost() -> dict[str, Any]:
        raise SessionLost("pi ended")

    assert manifest._if_there(lost) is None
    assert manifest._if_there(lambda: {"relay": {}}) == {"relay": {}}


class Opened:
    """A testbed, and its workers, in the order of what is done to them; a launch may fail."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.done: list[str] = []
        self.fault = fault

    def bed(self, *_: Any) -> Any:
        self.done.append("open")
        return Mock(close=lambda: self.done.append("bed closed"), lost=lambda: "")

    def workers(self, *_: Any) -> Any:
        return Mock(launch=self.launch, close=lambda: self.done.append("workers closed"))

    def prepare(self) -> dict[str, Any]:
        self.done.append("prepare")
        return {}

    def launch(self) -> None:
        self.done.append("launch")
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    opened = Opened()
    monkeypatch.setattr(start, "testbed_of", opened.bed)
    monkeypatch.setattr(job, "Workers", opened.workers)
    monkeypatch.setattr(job, "require_testbed", lambda *_: None)
    monkeypatch.setattr(job.Job, "_prepare", opened.prepare)
    return opened


def test_workers_begin_to_start_before_the_models_are_prepared(opened: Opened) -> None:
    opened_job = job.Job(LOCAL, 0.0, dry_run=False, launch=True)
    assert opened.done == ["open", "launch", "prepare"]
    first, second = (opened_job.workers(opened_job.testbed(), 0) for _ in range(2))
    assert first is second, "they are those of the run"
    assert opened.done.count("open") == 1
    opened_job.close()
    assert opened.done[3:] == ["workers closed", "bed closed"]


def test_what_was_opened_early_is_put_back_where_a_model_cannot_be_prepared(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.Job, "_prepare", Mock(side_effect=UserError("no such point")))
    with pytest.raises(UserError, match="no such point"):
        job.Job(LOCAL, 0.0, dry_run=False, launch=True)
    assert opened.done == ["open", "launch", "workers closed", "bed closed"]


@pytest.mark.parametrize("models", ["resnet19", "alexnet,resnet19"])
def test_for_a_model_that_there_cannot_be_no_testbed_is_built(opened: Opened, models: str) -> None:
    sweep = make_sweep({"model": models, "netem": "200ms-5mbit"})
    with pytest.raises(UserError, match="resnet19"):
        job.Job(sweep, 0.0, dry_run=False, launch=True)
    assert opened.done == []


def test_workers_that_cannot_be_started_early_are_one_line(opened: Opened) -> None:
    opened.fault = SessionLost("gpu ended: no space left")
    with pytest.raises(TestbedError, match=r"^the workers did not start: gpu ended: no space left$"):
        job.Job(LOCAL, 0.0, dry_run=False, launch=True)
    assert opened.done == ["open", "launch", "workers closed", "bed closed"]


@pytest.mark.parametrize(
    ("local", "dry_run", "launch"), [(True, True, True), (True, False, False), (False, False, True)]
)
def test_without_need_nothing_is_opened_early_and_other_hosts_never_are(
    sweep: Sweep, opened: Opened, local: bool, dry_run: bool, launch: bool
) -> None:
    job.Job(LOCAL if local else sweep, 0.0, dry_run=dry_run, launch=launch).close()
    assert opened.done == ["prepare"]


def test_the_command_line_does_not_wait_for_torch_before_the_workers_begin_to_start() -> None:
    script = "import sys, pareto.commands.run; print([name for name in ('torch', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
