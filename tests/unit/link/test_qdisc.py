"""Chains of qdiscs, netlink's bytes, what the kernel's refusals mean; no kernel needed."""

from __future__ import annotations

import errno
import struct

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from syrupy.assertion import SnapshotAssertion

from pareto.link import netem, offload, qdisc, snapshot, steering, tc
from pareto.link.netem import Prio, QdiscError
from pareto.link.profile import Bucket, Direction, Gilbert
from pareto.link.tc import Node
from pareto.link.trace import Step, Trace


def test_a_chain_hangs_from_the_root_by_its_classes() -> None:
    chain = [Prio(), *netem.layers(Direction(0.1, 5e6), Bucket())]
    places = [(node.kind, f"{node.handle >> 16:x}:", node.parent) for node in qdisc.nodes(chain)]
    assert places == [
        ("prio", "7061:", tc.ROOT),
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


def test_only_what_somebody_chose_is_foreign(snapshot: SnapshotAssertion) -> None:
    for root in (
        None,
        Node("mq", 0, tc.ROOT),
        Node("netem", 0x70610000, tc.ROOT),
        Node("prio", 0x70610000, tc.ROOT),
    ):
        qdisc.refuse_foreign("data0", root)
    with pytest.raises(QdiscError, match=r"data0 .*fq") as refused:
        qdisc.refuse_foreign("data0", Node("fq", 0x80010000, tc.ROOT))
    assert str(refused.value) == snapshot


def test_attributes_there_and_back() -> None:
    attributes = {1: b"abc", 5: b"", 7: tc.pack({2: b"12345678"})}
    packed = tc.pack(attributes)
    assert len(packed) % 4 == 0
    assert tc.unpack(packed) == attributes
    assert tc.unpack(tc.pack({0x8005: b"abcd"})) == {5: b"abcd"}  # NLA_F_NESTED


@pytest.mark.parametrize("set_us", [1, 5_000, 7_000, 90_000, 100_000, 123_457])
def test_codels_rounding_is_undone(set_us: int) -> None:
    kept = set_us * 1000 >> 10
    told = kept * 1024 // 1000
    asked = struct.unpack("=I", tc.unpack(settable(told))[1])[0]
    assert asked * 1000 >> 10 == kept


def settable(target_us: int) -> bytes:
    found = Node("fq_codel", 0x50000, tc.ROOT, tc.pack({1: struct.pack("=I", target_us)}), info=2)
    assert snapshot.settable(found).info == 0  # the kernel's count of references
    return snapshot.settable(found).options


def test_a_snapshot_survives_its_journal() -> None:
    root = Node("htb", 0x10000, tc.ROOT, b"\1\2")
    found = snapshot.Snapshot((root,), (Node("htb", 0x10001, tc.ROOT, b"\3"),))
    assert snapshot.Snapshot.from_dict(found.to_dict()) == found


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
