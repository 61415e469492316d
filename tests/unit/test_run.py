"""What the main job begins before what, what is said and recorded at its start, and a run's keys, new each time."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from cryptography import x509
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.driver import job, manifest
from pareto.driver.session import allocator_cost
from pareto.hosts.connection import Unreachable
from pareto.hosts.host import TestbedError
from pareto.hosts.session import SessionLost
from pareto.protocol.errors import UserError
from pareto.protocol.messages import NO_KEYS
from pareto.remote.link.probe import Reading
from pareto.remote.link.profile import Profile
from pareto.sweep import profile_files
from pareto.sweep.cell import Cell
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.sweep import Sweep
from pareto.trial import start
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.run_keys import run_keys
from pareto.trial.workers import Workers
from tests import REPOSITORY
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


# What is said and recorded of the hosts and links when the workers have started


def said(of: Callable[..., object], *arguments: Any) -> list[str]:
    out = Console(file=(file := io.StringIO()), width=200, highlight=False)
    of(out, *arguments)
    return file.getvalue().splitlines()


TORCH = {name: version(name).partition("+")[0] for name in ("torch", "torchvision")}


def test_versions_that_differ_are_told_with_the_drivers(snapshot: SnapshotAssertion) -> None:
    builds = {name: f"{found}+cu126" for name, found in TORCH.items()}
    assert said(start.print_versions, {"edge": TORCH, "server": builds}) == [], "alike, not a word"
    (line,) = said(start.print_versions, {"edge": TORCH, "server": {**TORCH, "torch": "1.9.1+cu102"}})
    edge, server, driver = line.split(", ")
    assert TORCH["torch"] in edge
    assert "1.9.1+cu102" in server
    assert version("torch") in driver
    ours = edge.replace(TORCH["torch"], "OURS")
    assert [ours, server, driver.replace(version("torch"), "THE DRIVER'S")] == snapshot
    old = {**TORCH, "torchvision": "0.10.1"}
    (line,) = said(start.print_versions, {"edge": old, "server": old})
    assert line.replace(version("torchvision"), "THE DRIVER'S") == snapshot, "hosts that agree"


def test_the_link_itself_is_told_and_kept_and_what_it_cannot_follow(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    sweep, kept = lab_sweep(tmp_path), []
    networks = {name: (profile_files.load(name),) for name in ("none", *sweep.netems)}

    def told(sweep: Sweep, link: Reading) -> list[str]:
        workers = Mock(bare_links=lambda: {"edge-server": link})
        return said(lambda out: kept.append(start.bare_links(out, workers, sweep, networks)))

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
    start.check_engines(["eager", "server=onnx", "compile"], hosts)
    engines = ["eager", "edge=onnx+server=compile"]
    assert refusal(UserError, start.check_engines, engines, hosts) == snapshot
    with pytest.raises(UserError, match="the server has no onnx: install the package there"):
        start.check_engines(["onnx"], {"edge": {"engines": {"onnx": "1"}}, "server": {"engines": {}}})


def test_a_host_without_room_ends_the_start_with_what_it_says() -> None:
    shown, out = list[str](), Mock()
    workers = Mock(send=Mock(side_effect=[None, Unreachable("pi: 9 MB are free, and 528 MB are to come")]))
    start.send(workers, Mock(), out, shown.append)
    assert shown == ["starting"]
    with pytest.raises(TestbedError, match=r"^the hosts did not get .*: pi: 9 MB are free, and 528 MB "):
        start.send(workers, Mock(lost=str), out, shown.append)


# What it costs to leave freed memory to the C library


MODELS = {
    name: ModelFacts(
        tuple((f"p{n}", 100) for n in range(11)), 0.03, splits=tuple((n,) for n in (0, 3, 6, 10))
    )
    for name in ("a", "b")
}
NETWORKS = {"none": (Profile("none"),)}
TUNED = {"edge": [0.02, 0.01, 0.03], "server": [0.02, 0.04, 0.05]}
"""Seconds of a run on each host, one baseline after the other."""


class StandIn(Workers):
    """Hosts on which the edge takes twice as long by default; a run of `b` is not disturbed any less."""

    def __init__(self, allocator: str = "tuned", dies_with: str = "") -> None:
        self.allocator, self._dies_with = allocator, dies_with
        self.asked: list[tuple[str, str, str]] = []

    def loaded(self, cell: Cell) -> None:
        self.allocator = cell.allocator
        if self._dies_with == cell.allocator:
            raise SessionLost("the edge is gone")

    def alone(self, cell: Cell) -> dict[str, float | None]:
        number = self.asked.count((cell.model, cell.point, self.allocator))
        self.asked.append((cell.model, cell.point, self.allocator))
        took = {role: seconds[number] for role, seconds in TUNED.items()}
        return {"edge": took["edge"] * (2 if self.allocator == "default" else 1), "middle1": None} | {
            "server": took["server"]
        }


def cost(workers: object, **options: object) -> object:
    sweep = make_sweep({"model": "a,b", "backend": "tcp", **options})
    return allocator_cost(cast(AnyWorkers, workers), (sweep, MODELS, NETWORKS))


@pytest.mark.parametrize("begins", ["tuned", "default"])
def test_each_model_is_run_where_it_is_cut_most_evenly_and_the_shortest_of_each_counts(begins: str) -> None:
    workers = StandIn(begins)
    of_each = {"point": "6", "times": {"edge": 2.0, "server": 1.0}}
    assert cost(workers) == [{"model": name, "batch_size": 1, **of_each} for name in ("a", "b")]
    assert [kept for *_, kept in workers.asked] == sorted(
        [begins] * 6 + [workers.allocator] * 6, key=begins.__ne__
    )
    assert workers.allocator != begins, "they start once"


def test_where_hosts_are_lost_or_none_it_is_not_known() -> None:
    assert cost(StandIn(dies_with="default")) == []
    assert cost(object()) == []


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, True),
        ({"quick": True}, False),
        ({"quick": True, "allocator": "tuned,default"}, True),
        ({"allocator": "default"}, False),
    ],
)
def test_when_it_is_measured(options: dict[str, object], due: bool) -> None:
    assert bool(cost(StandIn(), **options)) is due


# What the driver needs of its own machine's memory: it may be a laptop, and a model large


MODEL = """
from torch import nn
from pareto.partitions import registry

@registry.register(input_shape=(3, 16, 16))
def deep():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 512), *(nn.Linear(512, 512) for _ in range(110)))
"""
# Another process: what this one has allocated before, freed or not, would count too.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pareto.commands import run
from pareto.hosts import connection
from pareto.hosts.parcels import Parcel, send
from pareto.models.prepare import prepare
from pareto.sweep.sweep import Sweep

def mib(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))

bare = mib("VmHWM:")
name, folder = sys.argv[1:]
it = prepare(name, Sweep(model=name))
parcels = [Parcel(shard.digest, shard.size, shard.blocks) for shard in it.shards]
parcels += [Parcel.of(artifact.path, artifact.digest) for artifact in it.data.values()]
send(connection.ThisMachine(), folder, parcels)
size = os.stat(it.weights.path).st_size / 2**20
print(json.dumps({"weights": size, "bare": bare, "peak": mib("VmHWM:") - bare, "left": mib("VmRSS:") - bare}))
"""


@pytest.mark.deep
def test_a_deep_model_takes_little_more_than_its_weights_and_leaves_nothing_behind(tmp_path: Path) -> None:
    model = tmp_path / "model_of_test_run.py"
    model.write_text(MODEL)
    argv = [sys.executable, "-c", PROGRAM, f"{model}:deep", str(tmp_path / "host")]
    mib = json.loads(subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)
    assert 100 < mib["weights"] < 150
    assert mib["weights"] < mib["peak"] <= 1.5 * mib["weights"], mib
    assert mib["left"] < 0.5 * mib["weights"], mib
