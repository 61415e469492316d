"""What a member refuses, what it sends, and when it stops: without a scheduler, in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pareto import plan
from pareto.errors import UserError
from pareto.fleet import cluster, member
from pareto.fleet.member import Held, Member, Order, SchedulerLost, patient
from pareto.fleet.sending import Sink
from pareto.hosts import shipping
from pareto.jsonlines import SILENCE_LIMIT_S
from pareto.manifest import new_manifest
from pareto.run import Job
from tests.unit.simulated.worlds import sweep

Messages = list[dict[str, Any]]


@pytest.fixture(scope="module")
def order() -> Iterator[Order]:
    """A task of two trials of a simulated sweep."""
    wanted = sweep(points="3,5")
    job = Job(wanted, 0.0, dry_run=True)
    manifest = json.loads(json.dumps(new_manifest(wanted, job.records, job.networks)))
    planned = plan.make(job.sweep, job.facts, job.networks)
    recorded = wanted.model_dump(mode="json")
    code = shipping.code()[1]
    yield Order("s", "run", "simulated-2", recorded, manifest, planned.trials, planned.rounds, 0, code)
    job.close()


def test_it_sends_each_trial_whole_and_stops_when_nobody_wants_the_rest(order: Order) -> None:
    sent: Messages = []
    held = Held("simulated", order, sent.append)
    try:
        assert held.run(order.trials, order, sent.append, lambda: not sent) == ""
    finally:
        held.close()
    (one,) = sent
    assert one["row"]["testbed"] == "simulated-2"
    assert one["row"]["round"] == 1
    assert one["place"] == 0
    assert len(one["stages"]) == 2
    assert one["links"]
    assert one["requests"].startswith(b"PAR1")
    assert held.record["trials"] == 1
    assert held.record["testbed_name"] == "simulated-2"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"code": "another"}, "another version"),
        ({"sweep": sweep().model_dump(mode="json") | {"testbed": "local"}}, "real ones"),
        ({"then": {"models": {"net.small": {"graph_digest": "another"}}, "profiles": {}}}, "graph"),
    ],
)
def test_it_refuses_what_is_not_as_the_drivers(order: Order, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Held("simulated", replace(order, **changed), lambda message: None)


def test_it_waits_for_hosts_that_it_held_when_its_machine_lost_power() -> None:
    of_hosts = sweep(testbed="simulated").on("lab.yaml")
    assert (patient(of_hosts).wait or 0.0) > SILENCE_LIMIT_S
    assert patient(of_hosts.model_copy(update={"wait": 1e4})).wait == 1e4
    assert patient(of_hosts.on("local")).wait is None  # beside another local testbed it measures at once


def test_a_row_has_pythons_own_numbers() -> None:
    sent: Messages = []
    sink = Sink("run", "then", sent.append)
    sink.append_link({"rtt_s": np.float64(0.5)})
    sink.append_trial({"round": np.int64(1), "status": "ok"})
    (one,) = sent
    assert [type(value) for value in (*one["row"].values(), *one["links"][0].values())] == [int, str, float]


def test_a_driver_lets_go_of_its_own_testbed_only(order: Order) -> None:
    holder = Member("simulated", lambda line: None)
    outcome = holder._measured(order, lambda message: None, lambda: True)
    assert len(outcome.trials) == len(order.trials)
    holder._release("another's")
    assert holder._held is not None
    holder._release(order.session)
    assert holder._held is None


class _NoScheduler:
    """In place of `cluster.Joined`: a scheduler that lets in whoever comes."""

    is_broken = True

    def __init__(self, scheduler: str, pems: dict[str, str], names: dict[str, None]) -> None:
        self.name = next(iter(names))

    def start(self) -> None: ...

    def close(self) -> None: ...


def test_who_is_to_end_ends_also_when_the_scheduler_goes_at_that_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost_and_ended(self: Member) -> None:
        try:
            raise next(interruptions)
        finally:
            if of_putting_back := next(interruptions, None):
                raise of_putting_back

    monkeypatch.setattr(cluster, "Joined", _NoScheduler)
    monkeypatch.setattr(Member, "work", lost_and_ended)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    lost, ended = SchedulerLost, KeyboardInterrupt
    for order in ((ended, lost), (lost, ended), (lost, lost, ended)):
        said: list[str] = []
        interruptions = (each() for each in order)
        with pytest.raises(KeyboardInterrupt):
            member.join("tcp://127.0.0.1:1", {}, "simulated", "simulated@pi", said.append, stays=True)
        assert sum("is gone" in line for line in said) == len(order) - 2
