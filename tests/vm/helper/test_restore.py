"""Nothing stays: what the helper changed comes back, however it ends. Every way to end: unit/link/test_guard.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from pyroute2 import IPRoute

from pareto.remote.link import __main__ as link_program
from pareto.remote.link import journal, offload, qdisc, steering
from pareto.remote.link.profile import Direction
from pareto.remote.link.trace import Step, Trace
from tests.program import ended, wait_until
from tests.vm import wire
from tests.vm.wire import Helper, tc

pytestmark = pytest.mark.vm

SLOW = Direction(0.1, 5e6).to_dict()

LEFT = "its root qdisc is now a pfifo, set by somebody else: it is left alone"
FOREIGN = {
    "tbf": "root handle 8001: tbf rate 7mbit burst 20kb latency 300ms",
    "fq_codel": "root handle 5: fq_codel limit 500 flows 256",
    "netem": "root handle 1: netem delay 3ms loss 1%",
    "htb": "root handle 1: htb default 20",
}


def told_by_tc() -> str:
    commands = (["tc", "-d", what, "show", "dev", "data0"] for what in ("qdisc", "class"))
    done = (subprocess.run(each, capture_output=True, text=True, check=True) for each in commands)
    return "".join(each.stdout for each in done)


@pytest.mark.parametrize("kind", FOREIGN)
def test_somebodys_root_qdisc_is_refused_and_left_alone(helper: Helper, kind: str) -> None:
    tc(f"qdisc add dev data0 {FOREIGN[kind]}")
    before = told_by_tc()
    reply = helper.reply("apply", interface="data0", address=wire.HERE, egress=SLOW)
    assert f"data0 already has a root qdisc {kind}" in reply["error"]
    assert "(tc qdisc del dev data0 root)" in reply["error"]
    assert "\n" not in reply["error"]
    assert told_by_tc() == before
    tc("qdisc del dev data0 root")


def test_a_helper_that_was_killed_is_repaired_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = told_by_tc()
    helper = Helper()
    helper.apply(egress=SLOW, ingress=SLOW, peer=wire.PEER)
    helper.kill()
    assert told_by_tc() != before
    assert journal.leftovers() == ["interface data0 is still shaped"]
    monkeypatch.setattr(sys, "argv", ["pareto.remote.link", "--repair"])
    link_program.main()
    assert capsys.readouterr().out == "data0: put back as it was\n"
    assert told_by_tc() == before


def test_a_helper_that_was_killed_is_repaired_by_the_next(helper: Helper) -> None:
    found = offload.read("data0")
    dead = Helper()
    dead.apply(egress=SLOW, peer=wire.PEER, filtered=True, ingress=SLOW)
    dead.kill()
    assert helper.apply(egress={"delay_s": 0.01})["offloads"] == found
    assert [kind for kind, *_ in wire.shown()] == ["netem"]


def test_a_qdisc_put_there_meanwhile_is_left_alone(helper: Helper) -> None:
    helper.apply(egress=SLOW)
    tc("qdisc replace dev data0 root handle 9: pfifo limit 9")
    reply = helper.reply("apply", interface="data0", address=wire.HERE, egress=SLOW)
    assert "data0 already has a root qdisc pfifo" in reply["error"]
    assert [kind for kind, *_ in wire.shown()] == ["pfifo"]
    tc("qdisc del dev data0 root")
    helper.ask("restore")
    helper.apply(egress=SLOW)
    tc("qdisc replace dev data0 root handle 9: pfifo limit 9")
    assert helper.ask("restore")["left"] == [LEFT]
    assert [kind for kind, *_ in wire.shown()] == ["pfifo"]
    tc("qdisc del dev data0 root")


def test_what_fails_half_way_leaves_nothing_and_numbers_that_do_not_fit_are_refused(helper: Helper) -> None:
    before = told_by_tc()
    # The egress is on when the ingress turns out to be more than netem can do.
    where, ingress = {"interface": "data0", "address": wire.HERE}, {"delay_s": 5.0, "jitter_s": 5.0}
    reply = helper.reply("apply", **where, egress=SLOW, ingress=ingress)
    assert "jitter 5 s is more than netem can do" in reply["error"]
    assert told_by_tc() == before
    assert not list(journal.FOLDER.glob("*"))
    bucket = {"burst_bytes": 1 << 30, "latency_s": 0.4}
    reply = helper.reply("apply", **where, egress=Direction(0.1, 1e3).to_dict(), bucket=bucket)
    assert "does not fit the kernel's 32 bits" in reply["error"]


# However it ends, while a trace is played

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
