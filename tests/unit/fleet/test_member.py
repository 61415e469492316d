"""What a member refuses, what it sends, and when it stops: without a scheduler, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from pareto.hosts import parcels
from pareto.run.fleet.member import Member, Order, Outbox
from pareto.run.job import Job
from pareto.run.manifest import new_manifest
from pareto.sweep import plan
from tests.unit.simulated.worlds import sweep

Messages = list[dict[str, Any]]


class Alone(Member):
    """A member of a simulated testbed at no scheduler. most: how many trials are wanted of it."""

    def __init__(self, most: int = 9) -> None:
        self.sent: Messages = []
        self.said: list[str] = []
        self._most = most
        super().__init__("simulated", self.said.append)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def trials(self) -> Messages:
        return [message for message in self.sent if "row" in message]

    def is_wanted(self) -> bool:
        return len(self.trials) < self._most


@pytest.fixture(scope="module")
def order() -> Iterator[Order]:
    """A task of two trials of a simulated sweep."""
    wanted = sweep(points="3,5")
    job = Job(wanted, 0.0, dry_run=True)
    manifest = json.loads(json.dumps(new_manifest(wanted, job.records, job.networks)))
    planned = plan.make(job.sweep, job.facts, job.networks)
    recorded, code = wanted.model_dump(mode="json"), parcels.code()[1]
    yield Order("k", "s", "run", "simulated-2", recorded, manifest, planned.trials, planned.rounds, 0, code)
    job.close()


def test_it_sends_each_trial_whole_and_stops_when_nobody_wants_the_rest(order: Order) -> None:
    member = Alone(most=1)
    member.measure(order)
    member.close()
    (one,) = member.trials
    assert one["row"]["testbed"] == "simulated-2"
    assert one["row"]["round"] == 1
    assert one["place"] == 0
    assert len(one["stages"]) == 2
    assert one["links"]
    assert one["requests"].startswith(b"PAR1")
    begun, ended = (message["record"] for message in member.sent if "record" in message)
    assert "ended_at" not in begun
    assert ended["trials"] == 1
    assert ended["testbed_name"] == "simulated-2"


def test_it_keeps_its_testbed_open_for_one_driver(order: Order) -> None:
    member = Alone()
    for session in ("s", "s", "another's"):
        member.measure(replace(order, session=session))
    member.close()
    assert [line.partition(" ")[0] for line in member.said] == ["measuring", "put"] * 2
    assert len({each["opened"] for each in member.trials}) <= 2
    assert len(member.trials) == 3 * len(order.trials)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"code": "another"}, "another version"),
        ({"sweep": sweep().model_dump(mode="json") | {"testbed": "local"}}, "real ones"),
        ({"then": {"models": {"net.small": {"graph_digest": "another"}}, "profiles": {}}}, "graph"),
    ],
)
def test_it_refuses_what_is_not_as_the_drivers(order: Order, changed: dict[str, Any], words: str) -> None:
    member = Alone()
    with pytest.raises(RuntimeError, match=words):
        member.measure(replace(order, **changed))
    assert member.sent == []
    assert member.session == ""


def test_a_row_has_pythons_own_numbers() -> None:
    sent: Messages = []
    outbox = Outbox("run", "then", sent.append)
    outbox.append_link({"rtt_s": np.float64(0.5)})
    outbox.append_trial({"round": np.int64(1), "status": "ok"})
    (one,) = sent
    assert [type(value) for value in (*one["row"].values(), *one["links"][0].values())] == [int, str, float]
