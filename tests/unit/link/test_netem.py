"""Seconds, bit/s and shares in netem's and tbf's units, and back; chains, refusals and the journal. No kernel needed.

What the journal undoes: tests/integration/test_link.py.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import journal, netem, offload, player, qdisc, steering
from pareto.remote.link.netem import Netem, Prio, QdiscError, Tbf, pack, unpack
from pareto.remote.link.profile import Bucket, Direction, Gilbert
from pareto.remote.link.qdisc import Node, TrafficControl
from pareto.remote.link.trace import MAX_DELAY_S, MAX_RATE_BPS, Step, Trace
from tests.unit.refusals import refusal

ALL = (1 << 32) - 1
GREATEST = round(MAX_RATE_BPS / 8)
EVERYTHING = Direction(
    *(0.02, 8e6, 0.004, 0.25, Gilbert(0.01, 0.2, 0.9, 0.001)),
    **{"duplicate": 0.02, "reorder": 0.03, "corrupt": 0.04},  # type: ignore[arg-type]
)


def stairs(*steps: tuple[float, float, float], period_s: float = 1.0) -> Trace:
    return Trace("t", period_s, tuple(Step(*step) for step in steps))


def test_ticks_bytes_and_shares() -> None:
    """The kernel's h is what the bad state keeps."""
    found = Netem.of(EVERYTHING)
    assert (found.delay_ticks, found.jitter_ticks, found.rate_bytes) == (312_500, 62_500, 1_000_000)
    shares = (found.jitter_correlation, found.duplicate, found.reorder, found.corrupt)
    assert shares == tuple(round(share * ALL) for share in (0.25, 0.02, 0.03, 0.04))
    assert Netem.of(Direction(loss=1.0)).loss == ALL
    p, r, h, k1 = (value / ALL for value in found.gilbert or ())
    assert (p, r, h, k1) == pytest.approx((0.01, 0.2, 0.1, 0.001))
    # Jitter gets a rate which keeps the order.
    assert Netem.of(Direction(0.05, jitter_s=0.01)).rate_bytes == GREATEST
    assert Netem.of(Direction(0.05, jitter_s=0.01)).direction.rate_bps is None
    assert Netem.of(Direction(0.05, 5e6, jitter_s=0.01)).rate_bytes == 625_000
    assert Netem.of(Direction(0.05)).rate_bytes == 0
    # The limit holds what is in flight and full windows or the buffer beside it.
    for direction in (Direction(0.2, 5e6), Direction(0.1, 1e9), Direction(0.2)):
        in_flight = (direction.rate_bps or 1e9) / 8 * direction.delay_s / 1514
        assert Netem.of(direction).limit_packets > in_flight + 10_000
    limited = Direction(0.1, 8e6, jitter_s=0.02, limit_bytes=30_000)
    assert Netem.of(limited).limit_packets == math.ceil((1e6 * 0.12 + 30_000) / 1514)
    # A trace's delay is said and its buffer is not netem's. A moment of it may have less delay than jitter.
    trace = stairs((0, 0.1, 1e6))
    found = Netem.of(Direction(jitter_s=0.001, limit_bytes=3028, trace=trace), 0.02)
    assert (found.delay_ticks, found.rate_bytes) == (312_500, GREATEST)
    assert found.limit_packets > 20_000
    way = Direction(jitter_s=0.01, jitter_correlation=0.5, reorder=0.1, trace=trace)
    at = [Netem.of(way, delay_s).direction for delay_s in (0.0, 0.004)]
    told = [(each.delay_s, each.jitter_s, bool(each.reorder)) for each in at]
    assert told == [(0, 0, False), (0.004, 0.004, True)]


def test_there_and_back() -> None:
    plain = (Direction(), Direction(0.2, 5e6), Direction(loss=0.01), Direction(0.05, jitter_s=0.05))
    for direction in (EVERYTHING, *plain, Direction(MAX_DELAY_S, MAX_RATE_BPS)):
        asked = Netem.of(direction)
        found = Netem.read(asked.options())
        assert found == asked, direction
        assert isinstance(found, Netem)
        assert set(found.direction.to_dict()) == set(direction.to_dict())
        assert found.direction.delay_s == pytest.approx(direction.delay_s, abs=1e-7)
        assert found.direction.mean_loss == pytest.approx(direction.mean_loss, abs=1e-9)
    for line in ({"overhead_bytes": 24}, {"overhead_bytes": 24, "atm": True}, {"atm": True}):
        (asked,) = netem.layers(direction := Direction(0.01, 8e6, **line).with_line(8e6))
        assert asked == Netem.read(asked.options())
        assert isinstance(asked, Netem)
        assert (asked.rate_bytes, asked.direction) == (1_000_000, direction), (
            "the kernel counts what is on the line"
        )
        sent = struct.unpack("=4I", unpack(asked.options()[24:])[6])
        assert sent == (1_000_000, direction.overhead_bytes, *((48, 5) if direction.atm else (0, 0)))
    # Where super-packets pass, each of which counts as one, the rate has the overhead of each packet in it.
    (asked,) = netem.layers(Direction(rate_bps=984e6, overhead_bytes=24))
    assert asked == netem.layers(Direction(rate_bps=984e6))[0]
    attributes = {1: b"abc", 5: b"", 7: pack({2: b"12345678"})}
    packed = pack(attributes)
    assert len(packed) % 4 == 0
    assert unpack(packed) == attributes
    assert unpack(pack({0x8005: b"abcd"})) == {5: b"abcd"}  # NLA_F_NESTED
    # Every attribute is sent even when it is zero and what we never set is told.
    options = Netem.of(Direction(0.01)).options()
    sent = unpack(options[24:])
    assert set(sent) == {1, 3, 4, 6}  # TCA_NETEM_CORR, _REORDER, _CORRUPT, _RATE
    assert not any(b"".join(sent.values()))
    strange = bytearray(options)
    strange[12] = 3  # a gap without reordering
    found = Netem.read(bytes(strange))
    assert not isinstance(found, Netem)
    assert strange.hex() in str(found)
    # A seed goes to the kernel and is read back.
    seeded = replace(Netem.of(EVERYTHING), seed=(1 << 63) + 5)
    found = Netem.read(seeded.options())
    assert isinstance(found, Netem)
    assert found.seed == (1 << 63) + 5
    assert found == Netem.of(EVERYTHING)  # one that the kernel made up is not another shape
    bare = Netem.read(Netem.of(EVERYTHING).options())  # an older kernel would not know it, and reports none
    assert isinstance(bare, Netem)
    assert bare.seed is None


def test_a_bucket_in_tbfs_units(snapshot: SnapshotAssertion) -> None:
    free, tbf = netem.layers(Direction(0.2, 5e6), Bucket(32 << 10, 0.4))
    assert free == Netem(delay_ticks=3_125_000, limit_packets=1000)
    assert tbf == Tbf(rate_bytes=625_000, burst_ticks=819_200, limit_bytes=282_768)
    assert Tbf.read(tbf.options()) == tbf
    assert netem.layers(Direction(0.2), Bucket()) == [free], "without a rate netem is alone"
    for rate_bps in (1e6, 7.77e6, 3e8, 34e9):
        whole = Tbf.holding(rate_bps, 1514, 30_000)
        assert whole.burst_ticks * 64 * whole.rate_bytes // 1_000_000_000 >= 1514, "a packet fits the burst"
    # Values that the kernel would cut short are refused.
    jitter = refusal(QdiscError, Netem.of, Direction(3.0, jitter_s=2.5))
    assert "2.5 s" in jitter
    assert [jitter, refusal(QdiscError, Tbf.holding(1e3, 1 << 30, 1 << 31).options)] == snapshot
    # A reading is the whole chain. Also of one that a trace changes.
    told = netem.reading(netem.layers(Direction(0.2, 5e6, loss=0.01), Bucket(32 << 10, 0.4)))
    assert told.pop("loss") == pytest.approx(0.01)
    bucket = {"burst_bytes": 32768, "latency_s": 0.4}
    assert told == {"delay_s": 0.2, "rate_bps": 5e6, "limit_packets": 1000, "bucket": bucket}
    way = Direction(loss=Gilbert(0.1, 0.5), trace=stairs((0, 0.1, 1e6)))
    bursts = player.chain(way, 0.0)[0]
    changing = [bursts, Netem(1_562_500, 1000), Tbf.holding(1e6, 1514, 30_000_000)]
    told = netem.reading(changing)
    assert (told["delay_s"], told["rate_bps"]) == (0.1, 1e6)
    assert told["loss"]["bad_to_good"] == pytest.approx(0.5)
    assert told["bucket"]["latency_s"] == pytest.approx(240, rel=0.01)
    # A chain hangs from the root by its classes.
    chain = [Prio(), *netem.layers(Direction(0.1, 5e6), Bucket())]
    places = [(node.kind, node.handle >> 16, node.parent) for node in qdisc.nodes(chain)]
    assert places == [
        ("prio", 0x7061, qdisc.ROOT),
        ("netem", 0x7062, 0x70610002),
        ("tbf", 0x7063, 0x70620001),
    ]


def test_refusals_are_one_line(snapshot: SnapshotAssertion) -> None:
    def refuse(code: int, kind: str) -> None:
        with qdisc.explained("data0", kind):
            raise NetlinkError(code, "burst 0")

    said = []
    for code, kind, named in (
        (errno.ENOENT, "netem", "sch_netem"),
        (errno.ENOENT, "tbf", "modprobe sch_tbf"),
        (errno.ENOENT, "u32", "cls_u32"),
        (errno.ENOENT, "mirred", "act_mirred"),
        (errno.EOPNOTSUPP, "ifb", "ifb"),
        (errno.EPERM, "netem", "data0"),
        (errno.EINVAL, "tbf", "burst 0"),
    ):
        said.append(refusal(QdiscError, refuse, code, kind))
        assert named in said[-1]
    assert said == snapshot


class Rooted:
    def at(self, *_: int) -> Node:
        return Node("fq", 0x80010000, qdisc.ROOT)


def test_what_somebody_chose_is_foreign(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    roots = [Node("mq", 0, qdisc.ROOT), *(Node(kind, 0x70610000, qdisc.ROOT) for kind in ("netem", "prio"))]
    assert {qdisc.foreign(root) for root in (None, *roots)} == {""}
    monkeypatch.setattr(qdisc, "index_of", lambda _: 1)
    said = refusal(QdiscError, qdisc.refuse_foreign, cast(TrafficControl, Rooted()), "data0")
    assert re.search("data0 .*fq", said)
    assert said == snapshot


def test_a_scope_in_words() -> None:
    peer = "198.19.0.2"
    told = {(): "interface", (False, peer): "interface", (True, peer): f"peer {peer}"}
    told |= {(True, peer, 22): f"peer {peer}, TCP port 22 spared"}
    assert {given: str(steering.Scope(*given)) for given in told} == told


def test_slow_or_lossy_links_want_no_super_packets() -> None:
    def changing(slow_bps: float, fast_bps: float, period_s: float = 2.0) -> dict[str, Trace]:
        return {"trace": stairs((0, 0.0, slow_bps), (1, 0.0, fast_bps), period_s=period_s)}

    coarse: list[dict[str, Any]] = [{"rate_bps": 5e6}, {"rate_bps": 199e6}, {"rate_bps": 1e9, "loss": 0.001}]
    coarse += [{"loss": Gilbert(0.01, 0.5)}, {"rate_bps": 1e9, "limit_bytes": 65536}]
    coarse += [changing(50e6, 250e6), changing(50e6, 900e6, 20.0)]
    fine: list[dict[str, Any]] = [{"rate_bps": 200e6}, {"delay_s": 0.1}, changing(250e6, 250e6)]
    for wanted, fields in ((True, coarse), (False, fine)):
        for each in fields:
            assert offload.too_coarse(Direction(**each)) is wanted, each


# The journal's files and folder while many programs come and go.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(journal, "FOLDER", tmp_path / "journal")
    return tmp_path / "journal"


@pytest.mark.parametrize("taken", ["before it is opened", "before it is locked", "and another made"])
def test_a_claim_taken_away_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    """With the empty folder, once or several times."""
    opened, flock, times = os.open, fcntl.flock, iter(range(5))
    path = journal._path("lo")

    def take() -> bool:
        if more := next(times, None) is not None:
            path.unlink(missing_ok=True)
            folder.rmdir()
        return more

    def opening(*arguments: Any) -> int:
        if taken == "before it is opened":
            take()
        return opened(*arguments)

    def locking(*arguments: Any) -> None:
        if taken != "before it is opened" and take() and taken == "and another made":
            folder.mkdir()
            path.touch()
        flock(*arguments)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(fcntl, "flock", locking)
    claim = journal.claim("lo")
    assert next(times, None) is None
    assert [each.name for each in folder.iterdir()] == [path.name]
    assert claim.undo() == []
    assert not folder.exists()


def test_what_cannot_be_put_back_keeps_its_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was killed before it had written leaves nothing to undo."""
    lock, path = journal.claim("lo").lock, journal._path("lo")
    for written in ("", '{"namespace": 1, "interf'):
        path.with_name("1-other0.json").write_text(written)
        assert journal.leftovers() == journal.repair() == []
        assert list(folder.iterdir()) == [path]
    assert lock is not None
    os.close(lock)  # as its death does
    record = path.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "put_back", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            journal.claim("lo")
    assert path.read_text() == record
    journal.claim("lo").undo()
    assert not folder.exists()
    # A journal not written leaves no half of it.
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        journal.claim("lo")
    assert not folder.exists()
    folder.symlink_to("/nowhere/at/all")
    with pytest.raises(QdiscError, match="cannot be made"):
        journal.claim("lo")
