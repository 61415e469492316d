"""The privileged helper on a kernel with netem: whom it shapes, and what it plays."""

from __future__ import annotations

import contextlib
import itertools
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pareto.remote.link import offload, qdisc, steering
from pareto.remote.link.profile import Direction, Gilbert
from pareto.remote.link.trace import Step, Trace
from tests.program import wait_until
from tests.vm import wire
from tests.vm.helper.test_restore import LEFT
from tests.vm.wire import Helper, delay_s, tc

pytestmark = pytest.mark.vm

SLOW = Direction(0.1, 5e6).to_dict()
CLIENT = "10.77.0.9"  # of an SSH session that comes in through data0


def test_it_says_what_is_in_force(helper: Helper) -> None:
    told = helper.apply(egress=SLOW)
    assert told == {
        "shaper": "netem",
        "scope": "interface",
        "egress": {"delay_s": 0.1, "rate_bps": 5e6, "limit_packets": 20_082},
        "ingress": None,
        "offloads": {"tso": False, "gso": False, "gro": False},
        "without_effect": [],
    }
    assert helper.ask("stats", interface="data0") == {"dropped": 0, "position_s": None}
    told = helper.apply(egress=SLOW, bucket={"burst_bytes": 32768, "latency_s": 0.4})
    assert told["shaper"] == "netem+tbf"
    assert told["egress"]["bucket"] == {"burst_bytes": 32768, "latency_s": 0.4}
    assert (told["egress"]["rate_bps"], told["egress"]["limit_packets"]) == (5e6, 1000)
    told = helper.apply(egress={})
    assert (told["shaper"], told["egress"]) == ("none", None)
    assert wire.shown() == []


def test_lossy_links_want_no_super_packets_however_fast(helper: Helper) -> None:
    found = offload.read("data0")
    assert found["tso"]
    assert not any(helper.apply(egress={"loss": 0.01})["offloads"].values())
    assert helper.apply(egress={"delay_s": 0.01})["offloads"] == found


def test_towards_one_host_only(helper: Helper) -> None:
    told = helper.apply(egress={"delay_s": 0.1}, peer=wire.PEER, filtered=True)
    assert told["scope"] == f"peer {wire.PEER}, TCP port 22 spared"
    assert delay_s(to=wire.PEER) == pytest.approx(0.1, abs=0.02)
    assert delay_s(to=wire.OTHER) < 0.02
    helper.apply(egress={"delay_s": 0.05}, peer=wire.OTHER, filtered=True)
    assert delay_s(to=wire.OTHER) == pytest.approx(0.05, abs=0.02)
    assert delay_s(to=wire.PEER) < 0.02


@contextlib.contextmanager
def echo(port: int) -> Iterator[None]:
    """A TCP server here that returns what it gets."""
    with socket.create_server((wire.HERE, port)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def round_trip_s(port: int, busy: bool = False) -> float:
    """The median over TCP from the peer to a server here, while packets wait for the shaped line if `busy`."""
    with echo(port), wire.in_peer(), socket.create_connection((wire.HERE, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(3):
            if busy:
                wire_packets()
            begin = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.perf_counter() - begin)
        return statistics.median(times)


def wire_packets() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(20):
            with contextlib.suppress(OSError):
                sender.sendto(bytes(1400), (wire.PEER, wire.PORT))


def test_ssh_on_the_same_interface_is_spared() -> None:
    helper = Helper(ssh=CLIENT)
    for bucket in (None, {"burst_bytes": 3028, "latency_s": 0.4}):
        told = helper.apply(egress=Direction(0.2, 5e6).to_dict(), peer=wire.PEER, bucket=bucket)
        assert told["scope"] == f"peer {wire.PEER}, TCP port 22 spared"
        assert [kind for kind, *_ in wire.shown()] == ["prio", "netem"] + ["tbf"] * bool(bucket)
        assert round_trip_s(port=22, busy=True) < 0.05
        assert round_trip_s(port=2222) > 0.2
        assert delay_s(to=wire.PEER) == pytest.approx(0.2, abs=0.03)
        assert delay_s(to=wire.OTHER) < 0.02
    helper.apply(egress={"delay_s": 0.1}, ingress={"delay_s": 0.1}, peer=wire.PEER)
    assert round_trip_s(port=22) < 0.05
    assert round_trip_s(port=2222) == pytest.approx(0.2, abs=0.05)
    helper.process.terminate()  # SIGTERM restores, too
    assert helper.process.wait(20) == 0


# What arrives


def test_what_arrives_is_shaped_here(helper: Helper) -> None:
    with wire.in_peer():
        found = offload.write("data1", offload.OFF)
    as_it_was = offload.write("data0", {"gro": True})
    told = helper.apply(ingress={"delay_s": 0.1, "rate_bps": 8e6}, peer=wire.PEER)
    assert not any(offload.read(steering.ifb_name(qdisc.index_of("data0"))).values())
    assert told["egress"] is None
    assert told["ingress"]["delay_s"] == 0.1
    assert told["offloads"]["gro"] is False

    arrivals = wire.datagrams(100, 0.0, back=True)
    assert 0.1015 < arrivals[0].delay_s < 0.11
    assert 99 * 1514 * 8 / (arrivals[-1].at_s - arrivals[0].at_s) == pytest.approx(8e6, rel=0.01)
    assert delay_s() < 0.02
    told = helper.apply(egress={"delay_s": 0.05}, ingress={"delay_s": 0.03})
    assert delay_s(back=True) == pytest.approx(0.03, abs=0.02)
    assert delay_s() == pytest.approx(0.05, abs=0.02)
    helper.apply(egress={"delay_s": 0.05})
    assert delay_s(back=True) < 0.02
    assert helper.apply(ingress={"delay_s": 0.03})["offloads"]["gro"] is True
    helper.ask("restore")
    offload.write("data0", as_it_was)
    with wire.in_peer():
        offload.write("data1", found)


def test_what_is_dropped_on_arrival_is_counted(helper: Helper) -> None:
    helper.apply(ingress=Direction(0.01, 8e6, limit_bytes=20 * 1514).to_dict())
    arrivals = wire.datagrams(200, 0.0, back=True)
    assert helper.ask("stats", interface="data0")["dropped"] == 200 - len(arrivals) > 0


def test_somebodys_ingress_is_left_alone(helper: Helper) -> None:
    tc("qdisc add dev data0 clsact")
    reply = helper.reply("apply", interface="data0", address=wire.HERE, egress=SLOW, ingress=SLOW)
    assert "data0 already has a clsact qdisc" in reply["error"]
    assert [kind for kind, *_ in wire.shown()] == ["clsact"]
    tc("qdisc del dev data0 clsact")


# Traces


def rate_bps(arrivals: list[wire.Arrival], from_s: float, to_s: float) -> float:
    return sum(from_s <= each.at_s < to_s for each in arrivals) * 1514 * 8 / (to_s - from_s)


def test_a_traces_rates_and_outage_are_seen(helper: Helper) -> None:
    """By the gaps between arrivals, in their order: when a step was played is not read from a clock."""
    steps = (Step(0, 0.02, 2e6), Step(1, 0.02, 8e6), Step(2, 0.02, 0.0), Step(2.5, 0.02, 8e6))
    way = Direction(limit_bytes=8 * 1514, trace=Trace("test", 4.0, steps))

    helper.apply(egress=way.to_dict(), offset_s=0.0)
    arrivals = wire.datagrams(2000, 0.00125, size=1514, wait_s=0.6)  # 9.7 Mbit/s for 2.5 s
    gaps_s = [after.at_s - before.at_s for before, after in itertools.pairwise(arrivals)]
    outage = gaps_s.index(max(gaps_s))
    slow, fast = (
        1514 * 8 / statistics.median(part) for part in (gaps_s[10:100], gaps_s[outage - 500 : outage - 10])
    )
    print(f"trace: {slow / 1e6:.3f} of 2, {fast / 1e6:.3f} of 8 Mbit/s, {gaps_s[outage]:.3f} s of outage")
    assert slow == pytest.approx(2e6, rel=0.05)
    assert fast == pytest.approx(8e6, rel=0.05)
    assert gaps_s[outage] > 0.25, "half of it, as a step may be played late"


def test_a_queue_follows_the_trace(helper: Helper) -> None:
    """What waits when the line gets fast again leaves fast: the queue was filled at a tenth of the rate."""
    trace = Trace("test", 4.0, (Step(0, 0.02, 0.5e6), Step(0.5, 0.02, 5e6)))
    way = Direction(limit_bytes=30_000, trace=trace)

    helper.apply(egress=way.to_dict(), offset_s=0.0)
    begin = helper.ask("stats", interface="data0")["position_s"]
    arrivals = wire.datagrams(400, 0.003)
    early, late = (rate_bps(arrivals, at_s - begin, at_s + 0.25 - begin) for at_s in (0.6, 0.85))
    print(f"queue: {early / 1e6:.2f} and {late / 1e6:.2f} Mbit/s of 4 offered, of 5")
    assert early == pytest.approx(4.2e6, rel=0.15)
    assert late == pytest.approx(4.04e6, rel=0.1)


@pytest.mark.parametrize("rate_bps", [None, 50e6])
def test_a_trace_loops_from_where_it_is_told_and_begins_anew(helper: Helper, rate_bps: float | None) -> None:
    way = Direction(trace=Trace("test", 2.0, (Step(0, 0.02, rate_bps), Step(1, 0.12, rate_bps))))
    told = helper.apply(egress=way.to_dict(), offset_s=1.1)
    assert told["egress"]["delay_s"] == 0.12
    assert delay_s() == pytest.approx(0.12, abs=0.02)
    time.sleep(max(0.0, 2.1 - helper.ask("stats", interface="data0")["position_s"]))
    assert delay_s() == pytest.approx(0.02, abs=0.02)  # the second lap
    helper.ask("restart", interface="data0", position_s=1.0)
    assert helper.ask("stats", interface="data0")["position_s"] == pytest.approx(1.0, abs=0.2)
    assert delay_s() == pytest.approx(0.12, abs=0.02)


def test_a_trace_that_fails_is_told_once(helper: Helper) -> None:
    way = Direction(trace=Trace("test", 0.2, (Step(0, 0.02, 8e6), Step(0.1, 0.03, 8e6))))
    helper.apply(egress=way.to_dict())
    tc("qdisc del dev data0 root")
    tc("qdisc add dev data0 root handle 5: pfifo")  # there is no netem to change any more
    told: dict[str, Any] = {"ok": True}

    def stopped() -> bool:
        told.update(helper.reply("stats", interface="data0"))
        return not told["ok"]

    assert wait_until(stopped)
    assert "the trace stopped at" in told["error"]
    assert helper.reply("stats", interface="data0")["ok"]
    assert [kind for kind, *_ in wire.shown()] == ["pfifo"]
    assert helper.ask("restore")["left"] == [LEFT]
    tc("qdisc del dev data0 root")


def test_bursts_of_loss_go_on_while_a_trace_is_played(helper: Helper) -> None:
    steps = tuple(Step(number / 50, 0.001 * (1 + number % 2), None) for number in range(50))
    # The first packet finds the good state, and the way back is one packet's in 2^32: each change that began anew would
    # let one pass.
    loss = Gilbert(good_to_bad=1.0, bad_to_good=2.4e-10)
    helper.apply(egress=Direction(loss=loss, trace=Trace("test", 1.0, steps)).to_dict())
    first, *others = wire.datagrams(300, 0.002, size=100)
    assert first.number == 0
    assert len(others) <= 1, "30 changes"


def test_what_netem_takes_and_does_not_do_is_told(helper: Helper) -> None:
    shaky = {"delay_s": 0.03, "jitter_s": 0.005}
    assert helper.apply(egress=shaky)["without_effect"] == []
    told = helper.apply(egress={**shaky, "jitter_correlation": 0.9})
    assert told["without_effect"] == ["jitter_correlation"]
    # Chance alone makes so much of 300 readings in less than one case in 10^10.
    delays = [arrival.delay_s for arrival in wire.datagrams(300, 0.012, size=100)]
    assert abs(statistics.correlation(delays[:-1], delays[1:])) < 0.4
