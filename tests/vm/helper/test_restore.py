"""Nothing stays: what the helper changed comes back, whoever is killed, and what is somebody's is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pareto.remote.link import __main__ as link_program
from pareto.remote.link import journal, offload
from pareto.remote.link.profile import Direction
from tests.program import wait_until
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


def test_a_driver_that_is_killed_leaves_nothing() -> None:
    """The program itself, as the driver starts it."""
    code = (
        "import sys, time\n"
        "from subprocess import PIPE, Popen\n"
        "helper = Popen([sys.executable, '-m', 'pareto.remote.link'], stdin=PIPE, stdout=PIPE)\n"
        'helper.stdin.write(b\'{"op": "apply", "interface": "data0", "address": "10.77.0.1", \')\n'
        'helper.stdin.write(b\'"egress": {"delay_s": 0.1}}\\n\')\n'
        "helper.stdin.flush(); helper.stdout.readline()\n"
        "print('applied', flush=True); time.sleep(60)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], cwd=wire.REPO, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == "applied\n"
    assert [kind for kind, *_ in wire.shown()] == ["netem"]
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert wait_until(lambda: not wire.shown())
    assert wait_until(lambda: not Path(journal.FOLDER).exists())


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
