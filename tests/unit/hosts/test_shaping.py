"""Which host is told to shape which way, and what happens when one of the helpers is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import EDGE, SERVER, End, TestbedError
from pareto.hosts.session import Session, SessionError
from pareto.hosts.shapers import LinkState, NetemShaper, RelayShaper, Shaper, who_shapes
from pareto.protocol.jsonlines import SILENCE_LIMIT_S
from pareto.protocol.validation import read
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.requests import Apply, Restart, Seed, Stats, Supported
from tests.unit.far_end import HOSTS, FarEnd

OUT, BACK = Direction(0.2, 5e6), Direction(0.03, None)
QUEUED = replace(OUT, queue_bytes=287_500)
PROFILE = Profile("200ms-5mbit", OUT, BACK)
NEAR, FAR = (End(role, host.data_address, host.data_interface) for role, host in HOSTS.items())


@dataclass
class Helpers:
    """Both hosts' helpers, the newest of each last."""

    netem: dict[str, bool] = field(default_factory=lambda: {EDGE: True, SERVER: True})
    stats: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {role: {"dropped": 3 + n, "position_s": None} for n, role in enumerate(HOSTS)}
    )
    old: tuple[str, ...] = ()
    """whose kernels take no seed"""
    of: dict[str, list[FarEnd]] = field(default_factory=lambda: {EDGE: [], SERVER: []})

    def start(self, role: str) -> Session:
        answers: dict[type[Any], Any] = {
            Supported: self.netem[role],
            Apply: {"shaper": "netem", "by": role},
            Stats: self.stats[role],
            Restart: {},
            Seed: role not in self.old,
        }

        def answer(declared: type[Any], request: dict[str, Any]) -> Any:
            """As the helper: what it does not know it refuses."""
            read(declared, {key: value for key, value in request.items() if key != "op"})
            return answers[declared]

        end = FarEnd({declared.op: partial(answer, declared) for declared in answers})
        self.of[role].append(end)
        return Session(HOSTS[role].name, end)

    def shaper(self, *roles: str, filtered: bool = True) -> NetemShaper:
        starts = {role: partial(self.start, role) for role in roles}
        return NetemShaper(NEAR, FAR, starts, filtered=filtered)

    def applied(self, role: str) -> list[Apply]:
        return [read(Apply, fields) for fields in self.asked(role, "apply")]

    def asked(self, role: str, op: str) -> list[dict[str, Any]]:
        """Of the newest helper on that host."""
        return self.of[role][-1].of(op)


@pytest.fixture
def helpers() -> Helpers:
    return Helpers()


def test_each_host_shapes_what_it_sends(helpers: Helpers) -> None:
    told = helpers.shaper(EDGE, SERVER).apply(PROFILE)
    assert told == {role: {"shaper": "netem", "by": role} for role in (EDGE, SERVER)}
    for role, own, peer, sends in ((EDGE, NEAR, FAR, QUEUED), (SERVER, FAR, NEAR, BACK)):
        asked = Apply(own.interface, own.address, sends, peer=peer.address, filtered=True)
        assert helpers.applied(role) == [asked]
    # Bucket and offset are for both.
    helpers.shaper(EDGE, SERVER).apply(Profile("tbf", OUT, OUT, Bucket(40_000, 0.3), 12.5))
    for role in HOSTS:
        (asked,) = helpers.asked(role, "apply")
        assert (asked["bucket"], asked["offset_s"]) == ({"burst_bytes": 40_000, "latency_s": 0.3}, 12.5)
    # Alone a host shapes what arrives too. What hosts pass on, too, where the link is ours: it comes from
    # others than the peer.
    for role, ways in ((EDGE, (QUEUED, BACK)), (SERVER, (BACK, QUEUED))):
        assert list(helpers.shaper(role).apply(PROFILE)) == [role]
        (applied,) = helpers.applied(role)
        assert (applied.egress, applied.ingress) == ways
        assert helpers.shaper(role).facts() == {"netem": {"at": [role]}}
    helpers.shaper(EDGE, filtered=False).apply(PROFILE)
    (asked,) = helpers.asked(EDGE, "apply")
    assert (asked["peer"], asked["filtered"]) == (None, False)
    assert who_shapes("middle1", "server", "both") == ("middle1", "server")
    assert who_shapes("middle1", "server", "edge") == ("middle1",)


def test_each_link_has_a_relay_of_its_own(snapshot: SnapshotAssertion) -> None:
    """Which of them is meant goes with each request to the program that keeps them all."""
    stats = {"draining_s": 0.0, "dropped": 3, "position_s": 1.5, "cpu_share": 0.2}
    answers = {op: lambda request: stats for op in ("shape", "restart", "stats")}
    builder = FarEnd({**answers, "seed": lambda request: {"seeded": True}})
    shaper = RelayShaper(Session("local testbed", builder), 1)
    shaper.apply(PROFILE)
    shaper.restart(7.5)
    assert shaper.seed(11)
    assert shaper.state() == LinkState(3, 1.5)
    assert shaper.facts() == {"relay": {"cpu_share": 0.2, "dropped": 3}}
    assert builder.asked == snapshot


def test_a_helper_that_was_lost_is_started_again(helpers: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    shaper = helpers.shaper(EDGE, SERVER)
    shaper.revive()
    shaper.apply(PROFILE)
    assert helpers.asked(SERVER, "apply")[0]["patience_s"] == 0.0, "one that answers stays"
    lost = helpers.of[SERVER][0]
    lost.dead = True
    shaper.revive()
    assert (len(helpers.of[EDGE]), len(helpers.of[SERVER])) == (1, 2)
    assert lost.closed
    for _ in range(2):
        shaper.apply(PROFILE)
    # What is left of the lost one may shape until it has heard nothing for so long.
    patience_s = [asked["patience_s"] for asked in helpers.asked(SERVER, "apply")]
    assert patience_s[0] > SILENCE_LIMIT_S
    assert patience_s[1] == 0.0
    # Patience lasts until the profile is on.
    shaper = helpers.shaper(EDGE)
    helpers.of[EDGE][-1].dead = True
    shaper.revive()
    timeouts_s: list[float] = []

    def in_vain(self: Session, pending: object, timeout_s: float = 30.0) -> None:
        timeouts_s.append(timeout_s)
        raise SessionError("pi: another program shapes eth0")

    with monkeypatch.context() as refused:
        refused.setattr(Session, "report", in_vain)
        with pytest.raises(SessionError):
            shaper.apply(PROFILE)
    shaper.apply(PROFILE)
    first, second = (asked["patience_s"] for asked in helpers.asked(EDGE, "apply"))
    assert first == second > SILENCE_LIMIT_S
    assert timeouts_s[0] > first  # the helper answers only then


def test_drops_add_up_and_the_furthest_position_counts(helpers: Helpers) -> None:
    """Traces begin again on both, until the end."""
    shaper = helpers.shaper(EDGE, SERVER)
    assert shaper.state() == LinkState(7, None)
    helpers.stats[SERVER]["position_s"] = 0.0
    assert shaper.state() == LinkState(7, 0.0)
    helpers.stats[EDGE]["position_s"] = 2.5
    assert shaper.state() == LinkState(7, 2.5)
    assert helpers.asked(SERVER, "stats")[0] == {"interface": "enp3s0"}
    shaper.restart(7.5)
    assert [it["position_s"] for role in HOSTS for it in helpers.asked(role, "restart")] == [7.5, 7.5]
    shaper.close()
    assert all(end.closed for role in HOSTS for end in helpers.of[role])


@pytest.mark.parametrize("old", [(), (SERVER,)])
def test_each_direction_has_one_seed_wherever_it_is_shaped(helpers: Helpers, old: tuple[str, ...]) -> None:
    helpers.old = old
    shaper = helpers.shaper(EDGE, SERVER)
    assert "seeded" not in shaper.facts()["netem"]
    assert shaper.seed(7) is not bool(old)
    assert shaper.facts()["netem"]["seeded"] is not bool(old)
    (edge,), (server,) = (helpers.asked(role, "seed") for role in HOSTS)
    assert (edge["egress"], edge["ingress"]) == (server["ingress"], server["egress"])
    assert edge["egress"] != edge["ingress"]
    alone = helpers.shaper(EDGE)
    alone.seed(7)
    assert helpers.asked(EDGE, "seed") == [edge]
    alone.seed(8)
    assert helpers.asked(EDGE, "seed")[1]["egress"] != edge["egress"]


def test_a_link_left_as_it_is() -> None:
    shaper = Shaper()
    assert shaper.apply(Profile("none")) == {}
    assert shaper.state() == LinkState(None, None)
    with pytest.raises(TestbedError, match="200ms-5mbit"):
        shaper.apply(PROFILE)
