"""However the helper ends while a trace is played on a link, that is as before. Every way: unit/link/test_guard.py."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from pyroute2 import IPRoute

from pareto.remote.link import journal, offload, qdisc, steering
from pareto.remote.link.profile import Direction
from pareto.remote.link.trace import Step, Trace
from tests.program import ended, wait_until
from tests.vm import wire
from tests.vm.wire import Helper

pytestmark = pytest.mark.vm

AT_ONCE_S = 20.0  # beyond the guard's grace
PLAYED = Direction(trace=Trace("test", 0.1, (Step(0, 0.5, 1e6), Step(0.05, 0.3, 2e6)))).to_dict()


@pytest.fixture
def shaped() -> Iterator[Helper]:
    """By a helper of its own, in both directions."""
    before, offloads = wire.shown(), offload.read("data0")
    helper = Helper()
    helper.apply(egress=PLAYED, ingress={"delay_s": 0.1, "loss": 1.0}, peer=wire.PEER)
    assert wire.shown() != before
    yield helper
    assert wait_until(lambda: wire.shown() == before, AT_ONCE_S)
    assert wait_until(lambda: not journal.FOLDER.exists(), AT_ONCE_S)
    assert offload.read("data0") == offloads
    with IPRoute() as ip:
        assert not ip.link_lookup(ifname=steering.ifb_name(qdisc.index_of("data0")))


def end_of_file(helper: Helper) -> None:
    assert helper.process.stdin is not None
    helper.process.stdin.close()


def hang_up(helper: Helper) -> None:
    helper.process.send_signal(signal.SIGHUP)


def kill_the_guard(helper: Helper) -> None:
    helper.process.kill()


def kill_the_worker(helper: Helper) -> None:
    helper.worker.kill()


@pytest.mark.parametrize("end", [end_of_file, hang_up, kill_the_guard, kill_the_worker])
def test_the_link_is_put_back(shaped: Helper, end: Callable[[Helper], None]) -> None:
    worker = shaped.worker
    end(shaped)
    shaped.process.wait(AT_ONCE_S)
    assert ended([worker], AT_ONCE_S)


def test_the_link_is_put_back_by_the_guard_where_the_worker_hangs(shaped: Helper) -> None:
    worker = shaped.worker
    worker.suspend()
    end_of_file(shaped)
    assert shaped.process.wait(AT_ONCE_S) == 1
    assert ended([worker], AT_ONCE_S)


def test_a_request_that_is_none_neither_ends_it_nor_touches_the_link(shaped: Helper) -> None:
    before = wire.shown()
    for op in ([1], {}, None):
        assert "unknown request" in shaped.reply(op)["error"]  # type: ignore[arg-type]
    one_lap = {"name": "x", "period_s": 1e-9, "steps": [{"at_s": 0, "delay_s": 0.0, "rate_bps": 1e6}]}
    refused = shaped.reply("apply", interface="data0", address=wire.HERE, egress={"trace": one_lap})
    assert "too short" in refused["error"]
    assert [kind for kind, *_ in wire.shown()] == [kind for kind, *_ in before]
    assert shaped.ask("stats", interface="data0")["position_s"] > 0
    assert shaped.close() == 0


def test_what_was_left_on_another_interface_is_put_back_by_the_next_helper(helper: Helper) -> None:
    before = wire.shown()
    dead = Helper()
    dead.apply(egress={"delay_s": 0.5, "loss": 1.0})
    dead.kill()
    still_shaped = ["interface data0 is still shaped"]
    assert wait_until(lambda: journal.leftovers() == still_shaped)  # a thread may outlive its process' first
    with IPRoute() as ip:
        ip.link("add", ifname="other0", kind="veth", peer="other1")
        ip.addr("add", index=qdisc.index_of("other0"), address="10.79.0.1", prefixlen=24)
    try:
        told = helper.ask("apply", interface="other0", address="10.79.0.1", egress={"delay_s": 0.1})
        assert told["egress"]["delay_s"] == 0.1
        assert wire.shown() == before
        helper.ask("restore")
    finally:
        with IPRoute() as ip:
            ip.link("del", index=qdisc.index_of("other0"))


@pytest.mark.parametrize(
    ("interface", "address", "why"),
    [
        ("lo", "127.0.0.1", "loopback"),
        ("data0", wire.PEER, "does not carry"),
        ("data0", "::1", "does not carry"),
    ],
)
def test_what_is_not_the_data_link_is_not_shaped(
    helper: Helper, interface: str, address: str, why: str
) -> None:
    reply = helper.reply("apply", interface=interface, address=address, egress={"delay_s": 0.5})
    assert why in reply["error"]
    assert wire.shown("lo") == wire.shown() == []
