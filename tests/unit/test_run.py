"""What the main job begins before what, and puts back; and a run's keys, new each time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography import x509

from pareto.driver import job, manifest
from pareto.hosts.host import TestbedError
from pareto.hosts.session import SessionLost
from pareto.protocol.errors import UserError
from pareto.protocol.messages import NO_KEYS
from pareto.sweep.checked_sweep import make_sweep
from pareto.trial import start
from pareto.trial.run_keys import run_keys
from tests.unit.refusals import refusal
from tests.unit.two_hosts import lab_sweep

LOCAL = make_sweep({"model": "alexnet", "netem": "200ms-5mbit"})


def test_what_a_lost_host_cannot_tell_is_left_out() -> None:
    assert manifest._if_there(Mock(side_effect=SessionLost("pi ended"))) is None
    assert manifest._if_there(lambda: {"relay": {}}) == {"relay": {}}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What is done to a testbed and its workers, in its order; any of it may be made to fail."""
    done = Mock()
    done.open.return_value.lost.return_value = ""
    done.open.return_value.close = done.bed_closed
    done.prepare.return_value = {}
    monkeypatch.setattr(start, "testbed_of", done.open)
    workers = lambda *_: Mock(launch=done.launch, close=done.workers_closed)  # noqa: E731
    monkeypatch.setattr(job, "Workers", workers)
    monkeypatch.setattr(job, "require_testbed", lambda *_: None)
    monkeypatch.setattr(job.Job, "_prepare", done.prepare)
    return done


def order(done: Mock) -> list[str]:
    return [name for name, *_ in done.method_calls if "." not in name and "(" not in name]


def test_workers_begin_to_start_before_the_models_are_prepared(done: Mock) -> None:
    opened_job = job.Job(LOCAL, 0.0, dry_run=False, launch=True)
    assert order(done) == ["open", "launch", "prepare"]
    first, second = (opened_job.workers(opened_job.testbed(), 0) for _ in range(2))
    assert first is second, "they are those of the run"
    assert order(done).count("open") == 1
    opened_job.close()
    assert order(done)[3:] == ["workers_closed", "bed_closed"]


@pytest.mark.parametrize(
    ("fails", "fault", "of", "said"),
    [
        ("prepare", UserError("no such point"), UserError, "no such point"),
        ("launch", SessionLost("gpu ended"), TestbedError, "the workers did not start: gpu ended"),
    ],
)
def test_what_was_opened_early_is_put_back_where_it_comes_to_nothing(
    done: Mock, fails: str, fault: Exception, of: type[Exception], said: str
) -> None:
    getattr(done, fails).side_effect = fault
    assert refusal(of, job.Job, LOCAL, 0.0, dry_run=False, launch=True) == said
    begun = ["open", "launch", *(["prepare"] if fails == "prepare" else [])]
    assert order(done) == [*begun, "workers_closed", "bed_closed"]


@pytest.mark.parametrize("models", ["resnet19", "alexnet,resnet19"])
def test_for_a_model_that_there_cannot_be_no_testbed_is_built(done: Mock, models: str) -> None:
    sweep = make_sweep({"model": models, "netem": "200ms-5mbit"})
    assert "resnet19" in refusal(UserError, job.Job, sweep, 0.0, dry_run=False, launch=True)
    assert order(done) == []


@pytest.mark.parametrize(
    ("local", "dry_run", "launch"), [(True, True, True), (True, False, False), (False, False, True)]
)
def test_without_need_nothing_is_opened_early_and_other_hosts_never_are(
    tmp_path: Path, done: Mock, local: bool, dry_run: bool, launch: bool
) -> None:
    job.Job(LOCAL if local else lab_sweep(tmp_path), 0.0, dry_run=dry_run, launch=launch).close()
    assert order(done) == ["prepare"]


def test_the_command_line_does_not_wait_for_torch_before_the_workers_begin_to_start() -> None:
    script = "import sys, pareto.commands.run; print([name for name in ('torch', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# Its keys


def test_each_run_has_keys_of_its_own_where_something_is_encrypted() -> None:
    assert run_keys(["tcp", "tcp:4", "rpc"]) == NO_KEYS
    one, other = (astuple(run_keys(["tcp", "tcp:4:tls"])) for _ in range(2))
    assert all(one)
    assert not set(one) & set(other)
    # The certificate holds whatever a host's clock shows.
    certificate = x509.load_pem_x509_certificate(run_keys(["tcp:tls"]).certificate.encode())
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 9999
