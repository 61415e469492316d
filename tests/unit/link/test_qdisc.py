"""Chains of qdiscs, netlink's bytes, what the kernel's refusals mean; no kernel needed."""

from __future__ import annotations

import errno
from typing import cast

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import netem, offload, qdisc, steering
from pareto.remote.link.netem import Prio, QdiscError
from pareto.remote.link.profile import Bucket, Direction, Gilbert
from pareto.remote.link.qdisc import Node, TrafficControl
from pareto.remote.link.trace import Step, Trace


def test_a_chain_hangs_from_the_root_by_its_classes() -> None:
    chain = [Prio(), *netem.layers(Direction(0.1, 5e6), Bucket())]
    places = [(node.kind, f"{node.handle >> 16:x}:", node.parent) for node in qdisc.nodes(chain)]
    assert places == [
        ("prio", "7061:", qdisc.ROOT),
        ("netem", "7062:", 0x70610002),
        ("tbf", "7063:", 0x70620001),
    ]


@pytest.mark.parametrize(
    ("code", "kind", "named"),
    [
        (errno.ENOENT, "netem", "sch_netem"),
        (errno.ENOENT, "tbf", "modprobe sch_tbf"),
        (errno.ENOENT, "u32", "cls_u32"),
        (errno.ENOENT, "mirred", "act_mirred"),
        (errno.EOPNOTSUPP, "ifb", "ifb"),
        (errno.EPERM, "netem", "data0"),
        (errno.EINVAL, "tbf", "burst 0"),
    ],
)
def test_refusals_are_one_line(code: int, kind: str, named: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(QdiscError) as raised, qdisc.explained("data0", kind):
        raise NetlinkError(code, "burst 0")
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value) == snapshot


class Rooted:
    def at(self, *_: int) -> Node:
        return Node("fq", 0x80010000, qdisc.ROOT)


def test_only_what_somebody_chose_is_foreign(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    for root in (
        None,
        Node("mq", 0, qdisc.ROOT),
        Node("netem", 0x70610000, qdisc.ROOT),
        Node("prio", 0x70610000, qdisc.ROOT),
    ):
        assert qdisc.foreign(root) == ""
    monkeypatch.setattr(qdisc, "index_of", lambda _: 1)
    with pytest.raises(QdiscError, match=r"data0 .*fq") as refused:
        qdisc.refuse_foreign(cast(TrafficControl, Rooted()), "data0")
    assert str(refused.value) == snapshot


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        (steering.Scope(), "interface"),
        (steering.Scope(peer="198.19.0.2"), "interface"),
        (steering.Scope(True, "198.19.0.2"), "peer 198.19.0.2"),
        (steering.Scope(True, "198.19.0.2", 22), "peer 198.19.0.2, TCP port 22 spared"),
    ],
)
def test_a_scope_in_words(scope: steering.Scope, told: str) -> None:
    assert str(scope) == told


@pytest.mark.parametrize(
    ("direction", "coarse"),
    [
        (Direction(rate_bps=5e6), True),
        (Direction(rate_bps=199e6), True),
        (Direction(rate_bps=200e6), False),
        (Direction(delay_s=0.1), False),
        (Direction(rate_bps=1e9, loss=0.001), True),
        (Direction(loss=Gilbert(0.01, 0.5)), True),
        (Direction(trace=Trace("t", 2.0, (Step(0, 0.0, 50e6), Step(1, 0.0, 250e6)))), True),
        (Direction(trace=Trace("t", 20.0, (Step(0, 0.0, 50e6), Step(1, 0.0, 900e6)))), True),
        (Direction(rate_bps=1e9, limit_bytes=65536), True),
        (Direction(trace=Trace("t", 2.0, (Step(0, 0.0, 250e6), Step(1, 0.0, 250e6)))), False),
    ],
)
def test_slow_or_lossy_links_want_no_super_packets(direction: Direction, coarse: bool) -> None:
    assert offload.too_coarse(direction) is coarse
