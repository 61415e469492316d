"""The one place where seconds, bit/s and shares become netem's and tbf's units, and back."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import netem
from pareto.remote.link.netem import Netem, QdiscError, Tbf, pack, unpack
from pareto.remote.link.profile import Bucket, Direction, Gilbert
from pareto.remote.link.trace import MAX_DELAY_S, MAX_RATE_BPS, Step, Trace

ALL = (1 << 32) - 1
GREATEST = round(MAX_RATE_BPS / 8)
EVERYTHING = Direction(
    delay_s=0.02,
    rate_bps=8e6,
    jitter_s=0.004,
    jitter_correlation=0.25,
    loss=Gilbert(0.01, 0.2, 0.9, 0.001),
    duplicate=0.02,
    reorder=0.03,
    corrupt=0.04,
)


def test_ticks_bytes_and_shares() -> None:
    found = Netem.of(EVERYTHING)
    assert (found.delay_ticks, found.jitter_ticks, found.rate_bytes) == (312_500, 62_500, 1_000_000)
    assert (found.duplicate, found.reorder) == (round(0.02 * ALL), round(0.03 * ALL))
    assert found.jitter_correlation == round(0.25 * ALL)
    assert found.corrupt == round(0.04 * ALL)
    assert Netem.of(Direction(loss=1.0)).loss == ALL


def test_the_kernels_h_is_what_the_bad_state_keeps() -> None:
    p, r, h, k1 = (value / ALL for value in Netem.of(EVERYTHING).gilbert or ())
    assert (p, r, h, k1) == pytest.approx((0.01, 0.2, 0.1, 0.001))


@pytest.mark.parametrize(
    "direction",
    [
        EVERYTHING,
        Direction(),
        Direction(0.2, 5e6),
        Direction(loss=0.01),
        Direction(0.05, jitter_s=0.05),
        Direction(MAX_DELAY_S, MAX_RATE_BPS),
    ],
)
def test_there_and_back(direction: Direction) -> None:
    asked = Netem.of(direction)
    found = Netem.read(asked.options())
    assert found == asked
    assert isinstance(found, Netem)
    assert set(found.direction.to_dict()) == set(direction.to_dict())
    assert found.direction.delay_s == pytest.approx(direction.delay_s, abs=1e-7)
    assert found.direction.mean_loss == pytest.approx(direction.mean_loss, abs=1e-9)


def test_every_attribute_is_sent_even_when_it_is_zero() -> None:
    sent = unpack(Netem.of(Direction(0.01)).options()[24:])
    assert set(sent) == {1, 3, 4, 6}  # TCA_NETEM_CORR, _REORDER, _CORRUPT, _RATE
    assert not any(b"".join(sent.values()))


def test_what_we_never_set_is_told_byte_by_byte() -> None:
    strange = bytearray(Netem.of(Direction(0.01)).options())
    strange[12] = 3  # a gap without reordering
    found = Netem.read(bytes(strange))
    assert not isinstance(found, Netem)
    assert strange.hex() in str(found)


def test_jitter_gets_a_rate_which_keeps_the_order() -> None:
    assert Netem.of(Direction(0.05, jitter_s=0.01)).rate_bytes == GREATEST
    assert Netem.of(Direction(0.05, jitter_s=0.01)).direction.rate_bps is None
    assert Netem.of(Direction(0.05, 5e6, jitter_s=0.01)).rate_bytes == 625_000
    assert Netem.of(Direction(0.05)).rate_bytes == 0


@pytest.mark.parametrize("direction", [Direction(0.2, 5e6), Direction(0.1, 1e9), Direction(0.2)])
def test_the_limit_holds_what_is_in_flight_and_full_windows(direction: Direction) -> None:
    in_flight = (direction.rate_bps or 1e9) / 8 * direction.delay_s / 1514
    assert Netem.of(direction).limit_packets > in_flight + 10_000


def test_a_buffer_is_counted_beside_what_is_in_flight() -> None:
    direction = Direction(0.1, 8e6, jitter_s=0.02, limit_bytes=30_000)
    assert Netem.of(direction).limit_packets == math.ceil((1e6 * 0.12 + 30_000) / 1514)


def test_a_traces_delay_is_said_and_its_buffer_is_not_netems() -> None:
    way = Direction(jitter_s=0.001, limit_bytes=3028, trace=Trace("t", 1.0, (Step(0, 0.1, 1e6),)))
    found = Netem.of(way, 0.02)
    assert (found.delay_ticks, found.rate_bytes) == (312_500, GREATEST)
    assert found.limit_packets > 20_000


def test_a_moment_of_a_trace_may_have_less_delay_than_jitter() -> None:
    way = Direction(
        jitter_s=0.01, jitter_correlation=0.5, reorder=0.1, trace=Trace("t", 1.0, (Step(0, 0, 1e6),))
    )
    at = Netem.of(way, delay_s=0.0).direction, Netem.of(way, delay_s=0.004).direction
    assert [(each.delay_s, each.jitter_s, bool(each.reorder)) for each in at] == [
        (0, 0, False),
        (0.004, 0.004, True),
    ]


def test_jitter_that_netem_would_cut_short_is_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(QdiscError, match=r"2\.5 s") as refused:
        Netem.of(Direction(3.0, jitter_s=2.5))
    assert str(refused.value) == snapshot


# tbf


def test_a_bucket_in_tbfs_units() -> None:
    free, tbf = netem.layers(Direction(0.2, 5e6), Bucket(32 << 10, 0.4))
    assert free == Netem(delay_ticks=3_125_000, limit_packets=1000)
    assert tbf == Tbf(rate_bytes=625_000, burst_ticks=819_200, limit_bytes=282_768)
    assert Tbf.read(tbf.options()) == tbf


@pytest.mark.parametrize("rate_bps", [1e6, 7.77e6, 3e8, 34e9])
def test_a_burst_never_becomes_too_small_for_its_packet(rate_bps: float) -> None:
    tbf = Tbf.holding(rate_bps, 1514, 30_000)
    assert tbf.burst_ticks * 64 * tbf.rate_bytes // 1_000_000_000 >= 1514


def test_a_bucket_without_a_rate_is_netem_alone() -> None:
    assert netem.layers(Direction(0.2), Bucket()) == [Netem(3_125_000, 1000)]


def test_what_does_not_fit_32_bits_is_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(QdiscError) as refused:
        Tbf.holding(1e3, 1 << 30, 1 << 31).options()
    assert str(refused.value) == snapshot


def test_a_reading_is_the_whole_chain() -> None:
    chain = netem.layers(Direction(0.2, 5e6, loss=0.01), Bucket(32 << 10, 0.4))
    told = netem.reading(chain)
    assert told.pop("loss") == pytest.approx(0.01)
    assert told == {
        "delay_s": 0.2,
        "rate_bps": 5e6,
        "limit_packets": 1000,
        "bucket": {"burst_bytes": 32768, "latency_s": 0.4},
    }


def test_a_reading_is_all_of_a_chain_that_a_trace_changes() -> None:
    way = Direction(loss=Gilbert(0.1, 0.5), trace=Trace("t", 1.0, (Step(0, 0.1, 1e6),)))
    told = netem.reading(
        [*netem.before_trace(way), Netem(1_562_500, 1000), Tbf.holding(1e6, 1514, 30_000_000)]
    )
    assert told["loss"]["bad_to_good"] == pytest.approx(0.5)
    assert (told["delay_s"], told["rate_bps"]) == (0.1, 1e6)
    assert told["bucket"]["latency_s"] == pytest.approx(240, rel=0.01)


def test_a_seed_goes_to_the_kernel_and_is_read_back() -> None:
    seeded = replace(Netem.of(EVERYTHING), seed=(1 << 63) + 5)
    found = Netem.read(seeded.options())
    assert isinstance(found, Netem)
    assert found.seed == (1 << 63) + 5
    assert found == Netem.of(EVERYTHING)  # one that the kernel made up is not another shape
    bare = Netem.read(Netem.of(EVERYTHING).options())  # an older kernel would not know it, and reports none
    assert isinstance(bare, Netem)
    assert bare.seed is None


def test_attributes_there_and_back() -> None:
    attributes = {1: b"abc", 5: b"", 7: pack({2: b"12345678"})}
    packed = pack(attributes)
    assert len(packed) % 4 == 0
    assert unpack(packed) == attributes
    assert unpack(pack({0x8005: b"abcd"})) == {5: b"abcd"}  # NLA_F_NESTED
