"""netem and tbf on a kernel that has them: every field as the kernel reads it, and as packets feel it."""

from __future__ import annotations

import math
import platform
import shutil
import socket
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyroute2 import IPRoute

from pareto.remote.link import netem, player, qdisc
from pareto.remote.link.netem import QdiscError
from pareto.remote.link.profile import Bucket, Direction, Gilbert
from pareto.remote.link.trace import Step, Trace
from tests.vm import wire
from tests.vm.kernel import CACHE

pytestmark = pytest.mark.vm

ALL = (1 << 32) - 1
CHANCE = {"loss": Gilbert(0.01, 0.2, 0.9, 0.001), "duplicate": 0.02, "reorder": 0.03, "corrupt": 0.04}
EVERYTHING = Direction(0.02, 8e6, jitter_s=0.004, jitter_correlation=0.25, limit_bytes=90_000, **CHANCE)


@pytest.fixture(scope="module", autouse=True)
def link() -> Iterator[None]:
    with wire.veth():
        yield


@pytest.fixture
def control() -> Iterator[qdisc.TrafficControl]:
    with qdisc.TrafficControl() as control:
        yield control
        qdisc.remove(control, qdisc.index_of("data0"))


def apply(control: qdisc.TrafficControl, direction: Direction, bucket: Bucket | None = None) -> list[Any]:
    chain = netem.layers(direction, bucket)
    qdisc.apply(control, "data0", chain)
    return chain


def decoded() -> list[Any]:
    """What pyroute2 itself makes of the qdiscs."""
    with IPRoute() as ip:
        return [q for q in ip.get_qdiscs(index=qdisc.index_of("data0")) if q["handle"]]


def test_this_is_debians_kernel_and_has_netem() -> None:
    assert socket.gethostname() == "guest"
    assert (CACHE / "kernel" / "lib" / "modules" / platform.release()).is_dir()
    assert qdisc.supported()


def test_every_field_as_another_reader_sees_it(control: qdisc.TrafficControl) -> None:
    apply(control, EVERYTHING)
    (found,) = decoded()
    options = found.get_attr("TCA_OPTIONS")
    assert (found["handle"], found["parent"]) == (0x70610000, 0xFFFFFFFF)
    assert [options[name] for name in ("delay", "jitter", "loss", "gap")] == [312_500, 62_500, 0, 1]
    assert options["duplicate"] == round(0.02 * ALL)
    assert options["limit"] == math.ceil((1e6 * 0.024 + 90_000) / 1514)
    assert options.get_attr("TCA_NETEM_RATE")["rate"] == 1_000_000
    assert options.get_attr("TCA_NETEM_CORR")["delay_corr"] == round(0.25 * ALL)
    assert options.get_attr("TCA_NETEM_REORDER")["prob_reorder"] == round(0.03 * ALL)
    assert options.get_attr("TCA_NETEM_CORRUPT")["prob_corrupt"] == round(0.04 * ALL)
    if shutil.which("tc"):
        told = subprocess.run(["tc", "qdisc", "show", "dev", "data0"], capture_output=True, text=True).stdout
        assert "loss gemodel p 1% r 20% 1-h 90% 1-k 0.1%" in told


@pytest.mark.parametrize(
    "direction",
    [
        EVERYTHING,
        Direction(loss=0.031),
        Direction(0.1, 34e9),
        Direction(0.05, jitter_s=0.05),
        Direction(60.0, 1e3),
        Direction(2.5, jitter_s=2.1),
        Direction(0.01, 8e6, overhead_bytes=24).with_line(8e6),
        Direction(0.01, 8e6, overhead_bytes=10, atm=True).with_line(8e6),
    ],
)
def test_what_is_asked_is_read_back(control: qdisc.TrafficControl, direction: Direction) -> None:
    chain = apply(control, direction)
    found = qdisc.read(control, qdisc.index_of("data0"))
    assert found == chain
    values = netem.reading(found)
    for name, value in direction.to_dict().items():
        if name == "loss" and isinstance(value, dict):
            assert values[name] == pytest.approx(value, abs=1e-9)
        elif name != "limit_bytes":
            assert values[name] == pytest.approx(value, rel=1e-6, abs=1e-9)


def test_what_is_no_longer_set_is_gone(control: qdisc.TrafficControl) -> None:
    apply(control, EVERYTHING)
    assert not qdisc.apply(control, "data0", netem.layers(Direction(0.01))), "it was changed, not made anew"
    (found,) = decoded()
    options = found.get_attr("TCA_OPTIONS")
    assert options["delay"] == 156_250
    assert [options[name] for name in ("jitter", "loss", "gap", "duplicate")] == [0] * 4
    kept = {name: dict(value) for name, value in options["attrs"] if name != "UNKNOWN"}
    assert "TCA_NETEM_LOSS" not in kept
    for name, value in kept.items():
        assert not any(number for key, number in value.items() if key != "header"), name


def test_a_chain_with_a_bucket_is_what_published_experiments_make(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(0.2, 5e6), Bucket(32 << 10, 0.4))
    index = qdisc.index_of("data0")
    found = [(node.kind, node.options) for node in qdisc.ours(control, index)]
    first, second = decoded()
    assert first.get_attr("TCA_OPTIONS")["limit"] == 1000
    assert first.get_attr("TCA_OPTIONS").get_attr("TCA_NETEM_RATE")["rate"] == 0
    parms = second.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    assert (parms["rate"], parms["limit"], parms["buffer"]) == (625_000, 282_768, 819_200)
    assert (second["handle"], second["parent"]) == (0x70620000, 0x70610001)
    if shutil.which("tc"):
        qdisc.remove(control, index)
        for command in (
            "root handle 1: netem delay 200ms",
            "parent 1:1 handle 10: tbf rate 5mbit burst 32kb latency 400ms",
        ):
            subprocess.run(["tc", "qdisc", "add", "dev", "data0", *command.split()], check=True)
        by_tc = [(node.kind, node.options) for node in control.qdiscs(index)]
        subprocess.run(["tc", "qdisc", "del", "dev", "data0", "root"], check=True)
        assert found == by_tc


def test_netem_with_a_bucket_becomes_netem_alone(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(0.01, 5e6), Bucket())
    apply(control, Direction(0.01, 5e6))
    assert [kind for kind, *_ in wire.shown()] == ["netem"]


def test_a_difference_removes_ours(control: qdisc.TrafficControl, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = netem.layers(Direction(0.2, 5e6))
    monkeypatch.setattr(netem.Netem, "options", lambda _: netem_options(0.1))
    with pytest.raises(QdiscError, match="the kernel reports"):
        qdisc.apply(control, "data0", asked)
    assert wire.shown() == []


def netem_options(delay_s: float) -> bytes:
    monkey = netem.Netem(round(delay_s * 1e9 / 64), 1000)
    words = (monkey.delay_ticks, monkey.limit_packets, 0, 0, 0, 0)
    return b"".join(word.to_bytes(4, "little") for word in words)


# As packets feel it, by the guest's own clock, which no other program delays


def test_delay_and_rate(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(0.05, 8e6))
    arrivals = wire.datagrams(100, 0.0)
    assert 0.0515 < arrivals[0].delay_s < 0.06
    took_s = arrivals[-1].at_s - arrivals[0].at_s
    assert 99 * 1514 * 8 / took_s == pytest.approx(8e6, rel=0.01)


def test_what_does_not_fit_is_dropped_and_counted_once(control: qdisc.TrafficControl) -> None:
    buffer = Direction(0.01, 8e6, limit_bytes=30 * 1514)
    trace = Trace("test", 1.0, (Step(0, 0.01, 8e6),))
    two_netems = Direction(loss=Gilbert(1e-9, 1.0), limit_bytes=30 * 1514, trace=trace)
    for chain, least, most in (
        (
            netem.layers(buffer, None),
            30,
            30 + math.ceil(1e6 * 0.01 / 1514) + 20,
        ),  # some leave while they come
        (netem.layers(Direction(0.01, 8e6), Bucket(3028, 0.03)), 0, 99),
        (player.chain(two_netems, 0.0), 0, 99),
    ):
        qdisc.apply(control, "data0", chain)
        arrivals = wire.datagrams(200, 0.0)
        assert least <= len(arrivals) <= most
        assert qdisc.drops(control, qdisc.index_of("data0")) == 200 - len(arrivals)
        qdisc.remove(control, qdisc.index_of("data0"))


DEVIATIONS = 6.5
"""Standard deviations that chance may be off: this kernel's netem takes no seed. More is one case in 10^10."""


def between(hits: int, tries: int, share: float) -> bool:
    """Whether that many hits are what the share promises."""
    return abs(hits - tries * share) <= DEVIATIONS * math.sqrt(tries * share * (1 - share))


def test_loss(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(loss=0.3))
    lost = 1000 - len(wire.datagrams(1000, 0.0, size=100))
    assert between(lost, 1000, 0.3), lost
    assert qdisc.drops(control, qdisc.index_of("data0")) == lost  # netem counts them as drops


def test_losses_come_in_bursts(control: qdisc.TrafficControl) -> None:
    loss = Gilbert(good_to_bad=0.05, bad_to_good=0.2)
    apply(control, Direction(loss=loss))
    count = 5000
    got = {arrival.number for arrival in wire.datagrams(count, 0.0, size=100)}
    lost = [number not in got for number in range(count)]
    bursts = sum(lost[i] and not lost[i - 1] for i in range(1, count))
    correlation = 1 - loss.good_to_bad - loss.bad_to_good
    of_chain = (1 + correlation) / (1 - correlation)  # of a Markov chain's mean
    spread = math.sqrt(loss.mean * (1 - loss.mean) / count * of_chain)
    print(f"gilbert: {sum(lost) / count:.4f} lost ({loss.mean:.4f}), {sum(lost) / bursts:.2f} in a burst (5)")
    assert sum(lost) / count == pytest.approx(loss.mean, abs=DEVIATIONS * spread)
    # Geometric, not normal: 6.5 deviations would be one case in 10^8.
    assert sum(lost) / bursts == pytest.approx(1 / loss.bad_to_good, rel=8 * 0.9 / math.sqrt(bursts))


def test_in_bad_and_in_good_are_the_shares_that_are_lost(control: qdisc.TrafficControl) -> None:
    # Every other packet finds the good state, but for one in 2^32.
    apply(control, Direction(loss=Gilbert(1.0, 1.0, in_bad=0.8, in_good=0.3)))
    got = {arrival.number for arrival in wire.datagrams(1000, 0.0, size=100)}
    for first, share in enumerate((0.3, 0.8)):
        lost = sum(number not in got for number in range(first, 1000, 2))
        assert between(lost, 500, share), lost


def test_duplicate(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(duplicate=0.3))
    arrivals = wire.datagrams(1000, 0.0, size=100)
    assert len({arrival.number for arrival in arrivals}) == 1000
    assert between(len(arrivals) - 1000, 1000, 0.3), len(arrivals)


def test_reorder(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(delay_s=0.02, reorder=0.3))
    arrivals = wire.datagrams(1000, 0.0002, size=100)
    overtook = sum(arrival.delay_s < 0.01 for arrival in arrivals)
    assert between(overtook, 1000, 0.3), overtook


def test_corrupt(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(corrupt=0.3))
    arrivals = wire.datagrams(1000, 0.0, size=1514)
    # A flipped bit in the headers, 46 of 1514 bytes, loses the packet or its number.
    damaged = 1000 - sum(arrival.intact for arrival in arrivals)
    assert between(damaged, 1000, 0.3), damaged


@pytest.mark.parametrize("rate_bps", [None, 50e6])
def test_jitter_keeps_order(control: qdisc.TrafficControl, rate_bps: float | None) -> None:
    apply(control, Direction(delay_s=0.03, jitter_s=0.01, rate_bps=rate_bps))
    arrivals = wire.datagrams(300, 0.0005, size=200)
    assert [arrival.number for arrival in arrivals] == list(range(300))


def test_jitter_is_uniform_within_its_bounds(control: qdisc.TrafficControl) -> None:
    apply(control, Direction(delay_s=0.03, jitter_s=0.01))
    # So far apart that none waits for the one before. None of 80 in a third of the range: one case in 10^14.
    delays = [arrival.delay_s for arrival in wire.datagrams(80, 0.025, size=200)]
    assert 0.02 <= min(delays) < 0.0267
    assert 0.0333 < max(delays) < 0.042
    assert statistics.stdev(delays) == pytest.approx(0.01 / math.sqrt(3), rel=0.4)
