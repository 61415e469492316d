"""Nothing stays: what the helper changed comes back, whoever is killed, and what is somebody's is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pareto.link import journal, offload, qdisc
from pareto.link.profile import Direction
from tests.program import wait_until
from tests.vm import wire
from tests.vm.wire import Helper, delay_s, tc

pytestmark = pytest.mark.vm

SLOW = Direction(0.1, 5e6).to_dict()
CLIENT = "10.77.0.9"  # of an SSH session that comes in through data0


FOREIGN = {
    "tbf": ["root handle 8001: tbf rate 7mbit burst 20kb latency 300ms"],
    "fq_codel": ["root handle 5: fq_codel limit 500 flows 256 target 7ms interval 90ms quantum 600 noecn"],
    "pfifo": ["root handle 6: pfifo limit 77"],
    "prio": ["root handle 6: prio bands 4"],
    "netem": ["root handle 1: netem delay 3ms loss 1% rate 5mbit limit 300 duplicate 2% reorder 3%"],
    "netem with bursts and tbf": [
        "root handle 1: netem delay 3ms loss gemodel 1% 10% 70% 0.1%",
        "parent 1:1 handle 10: tbf rate 5mbit burst 32kb latency 400ms",
    ],
    "htb": [
        "root handle 1: htb default 20 r2q 20",
        "class parent 1: classid 1:1 htb rate 10mbit ceil 12mbit burst 20k",
        "class parent 1:1 classid 1:10 htb rate 4mbit ceil 10mbit prio 1",
        "class parent 1:1 classid 1:20 htb rate 6mbit quantum 3000",
        "parent 1:10 handle 30: pfifo limit 50",
        "parent 1:20 handle 40: fq_codel target 3ms",
    ],
}


def add(lines: list[str]) -> None:
    for line in lines:
        what, _, rest = (
            ("class", "", line.removeprefix("class ")) if line.startswith("class") else ("qdisc", "", line)
        )
        tc(f"{what} add dev data0 {rest}")


def told_by_tc() -> str:
    commands = (["tc", "-d", what, "show", "dev", "data0"] for what in ("qdisc", "class"))
    return "".join(
        subprocess.run(each, capture_output=True, text=True, check=True).stdout for each in commands
    )


@pytest.mark.parametrize("name", FOREIGN)
def test_somebodys_root_qdisc_comes_back_as_it_was(helper: Helper, name: str) -> None:
    add(FOREIGN[name])
    before = told_by_tc(), [(kind, handle) for kind, handle, _ in wire.shown()]
    assert helper.apply(egress={"delay_s": 0.05, "duplicate": 0.01})["restored_root"] == name.split()[0]
    assert delay_s() == pytest.approx(0.05, abs=0.02)
    assert helper.ask("restore") == {"left": []}
    assert (told_by_tc(), [(kind, handle) for kind, handle, _ in wire.shown()]) == before
    tc("qdisc del dev data0 root")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["root handle 1: prio"], "for its filters cannot be put back"),
        (
            ["root handle 1: htb", "class parent 1: classid 1:1 htb rate 1mbit"],
            "for its filters cannot be put back",
        ),
        (["root handle 1: sfq"], "for a sfq cannot be put back as it was"),
        (["root handle 1: netem delay 5ms 1ms distribution normal"], "for the distribution of its jitter"),
        (
            ["stab overhead 10 mtu 1000 tsize 128 linklayer ethernet root handle 1: pfifo"],
            "for its size table",
        ),
    ],
)
def test_what_could_not_come_back_is_left_alone(helper: Helper, lines: list[str], reason: str) -> None:
    add(lines)
    if "filters" in reason:
        tc("filter add dev data0 parent 1: protocol ip prio 1 u32 match ip dst 1.1.1.1 flowid 1:1")
    before = told_by_tc()
    reply = helper.reply("apply", interface="data0", address=wire.HERE, egress=SLOW)
    assert "data0 already has a root qdisc" in reply["error"]
    assert reason in reply["error"]
    assert "\n" not in reply["error"]
    assert told_by_tc() == before
    tc("qdisc del dev data0 root")


def test_a_helper_that_was_killed_is_repaired_by_hand() -> None:
    add(FOREIGN["htb"])
    before = told_by_tc()
    helper = Helper()
    helper.apply(egress=SLOW, ingress=SLOW, peer=wire.PEER)
    helper.kill()
    assert told_by_tc() != before
    assert journal.leftovers() == ["interface data0 is still shaped"]
    done = subprocess.run(
        [sys.executable, "-m", "pareto.link", "--repair"], cwd=wire.REPO, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "data0: put back as it was\n"), done.stderr
    assert told_by_tc() == before
    tc("qdisc del dev data0 root")


def test_a_helper_that_was_killed_is_repaired_by_the_next(helper: Helper) -> None:
    found = offload.read("data0")
    dead = Helper()
    dead.apply(egress=SLOW, peer=wire.PEER, filtered=True, ingress=SLOW)
    dead.kill()
    assert helper.apply(egress={"delay_s": 0.01})["offloads"] == found
    assert [kind for kind, *_ in wire.shown()] == ["netem"]


def test_a_driver_that_is_killed_leaves_nothing() -> None:
    code = (
        "import sys, time\n"
        "from subprocess import PIPE, Popen\n"
        "helper = Popen([sys.executable, '-m', 'pareto.link'], stdin=PIPE, stdout=PIPE)\n"
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


def test_a_qdisc_put_there_meanwhile_is_left_alone_at_the_end(helper: Helper) -> None:
    helper.apply(egress=SLOW)
    tc("qdisc replace dev data0 root handle 9: pfifo limit 9")
    assert helper.ask("restore")["left"] == [
        "its root qdisc is now a pfifo, set by somebody else: it is left alone"
    ]
    assert [kind for kind, *_ in wire.shown()] == ["pfifo"]
    tc("qdisc del dev data0 root")


def test_what_fails_half_way_leaves_nothing(helper: Helper) -> None:
    add(FOREIGN["pfifo"])
    before = told_by_tc()
    # The egress is on when the ingress turns out to be more than netem can do.
    reply = helper.reply(
        "apply", interface="data0", address=wire.HERE, egress=SLOW, ingress={"delay_s": 5.0, "jitter_s": 5.0}
    )
    assert "jitter 5 s is more than netem can do" in reply["error"]
    assert told_by_tc() == before
    assert not list(journal.FOLDER.glob("*"))
    tc("qdisc del dev data0 root")


def test_numbers_that_do_not_fit_are_refused(helper: Helper) -> None:
    bucket = {"burst_bytes": 1 << 30, "latency_s": 0.4}
    reply = helper.reply(
        "apply", interface="data0", address=wire.HERE, egress=Direction(0.1, 1e3).to_dict(), bucket=bucket
    )
    assert "does not fit the kernel's 32 bits" in reply["error"]


def test_netem_is_known_to_be_there() -> None:
    assert qdisc.supported()
