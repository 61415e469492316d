"""Real hosts on real netem: each has sshd, sudo and what `hosts setup` put there, and nobody's root but its own."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts import inventory
from pareto.hosts.ssh.testbed import open_ssh_testbed as open_testbed
from pareto.hosts.testbed import Testbed
from pareto.protocol.jsonlines import SILENCE_LIMIT_S
from pareto.remote.link.profile import Direction, Profile
from tests.lab import Lab, LabHost, open_lab
from tests.program import wait_until

pytestmark = [pytest.mark.vm, pytest.mark.deep, pytest.mark.timeout(700)]

LINE = "pi ALL=(root) NOPASSWD: /usr/local/sbin/pareto-link\n"
BOTH_WAYS = Profile("both", Direction(0.03, 5e6), Direction(0.06, 8e6))
# The guest's processor is emulated, twenty times slower than the machine's own: a model costs it no time only if it has
# next to nothing to compute, and a round trip milliseconds.
MODEL = """
from torch import nn
from pareto.partitions.registry import register


@register(input_shape=(3, 32, 32))
def tiny():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
"""
SWEEP = (
    *("--netem", "50ms-5mbit", "--points", "1", "--only", "--trials", "1", "--quick"),
    *("--figures", "none", "--rtt-floor", "25ms", "--rtt-tolerance", "20%", "--tolerance", "20%"),
    *("--slowdown", "100", "--others", "100%"),
)
# How long the emulated processor may take to end what is left, and to look whether it has.
SLACK_S = 15.0


def pareto(lab: Lab, *arguments: str) -> str:
    """What the command said; it must have ended well."""
    began = time.monotonic()
    with lab.pareto(*arguments) as process:
        said, errors = process.communicate(timeout=660)
    print(f"{said}in {time.monotonic() - began:.0f} s")
    assert process.returncode == 0, said + errors
    return said


def shaping(host: LabHost) -> str:
    """What shapes its data link, as tc shows it; empty where nothing does."""
    return host.run("tc qdisc show dev data0 | grep -v noqueue || :")


def of_ours(lab: Lab) -> dict[str, str]:
    """Qdiscs, files, interfaces and processes that a driver has on the hosts now."""
    found = {}
    for name, host in lab.hosts.items():
        told = host.run(
            "tc qdisc show dev data0 | grep -v noqueue; ls -A /run/pareto-link 2>/dev/null; "
            "ls /sys/class/net | grep -vx -e data0 -e lo -e mgmt0; :"
        )
        told += " ".join(map(str, [*helpers(host), *host.pids("pareto.remote.worker")]))
        if told:
            found[name] = told
    return found


def helpers(host: LabHost) -> list[int]:
    """The program that shapes the link, and the shell and the sudo that started it."""
    return host.pids("/pareto-link")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, str]]:
    """Hosts that `hosts setup` made ready while their user was allowed everything, once; and what it said."""
    with open_lab(tmp_path_factory.mktemp("lab")) as lab, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(lab.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        once = "/etc/sudoers.d/once"
        for host in lab.hosts.values():
            host.run(f"echo 'pi ALL=(ALL) NOPASSWD: ALL' >{once} && chmod 440 {once}")
        said = pareto(lab, "hosts", "setup", "--testbed", str(lab.testbed()))
        for host in lab.hosts.values():
            host.run(f"rm {once}")
        yield lab, said


@pytest.fixture
def lab(hosts: tuple[Lab, str]) -> Iterator[Lab]:
    """Whatever the test does, nothing of the shaping is left on the hosts a moment later."""
    lab, _ = hosts
    assert of_ours(lab) == {}
    yield lab
    wait_until(lambda: of_ours(lab) == {}, SLACK_S)
    assert of_ours(lab) == {}


@pytest.fixture(scope="module")
def opened(hosts: tuple[Lab, str]) -> Iterator[Testbed]:
    """Opened once for all that need it, for that takes a while."""
    lab, _ = hosts
    with closing(open_testbed(inventory.load(lab.testbed()), shaped=True)) as testbed:
        yield testbed
    assert of_ours(lab) == {}


@pytest.fixture
def testbed(opened: Testbed) -> Testbed:
    """As it should be, whatever the test before has made of it."""
    opened.revive()
    return opened


def test_what_setup_leaves_lets_the_user_start_one_program_and_nothing_else(hosts: tuple[Lab, str]) -> None:
    lab, said = hosts
    for name, host in lab.hosts.items():
        assert f"{name}: set up\n" in said
        assert host.run("cat /etc/sudoers.d/*") == LINE
        assert host.run("sudo -n pareto-link --digest", "pi").strip()
        assert host.run("sudo -n true 2>&1 || :", "pi") == "sudo: a password is required\n"
        others = (
            "find /usr/local/sbin/pareto-link /usr/local/lib/pareto-link ! -user 0 -o ! -type l -perm /022"
        )
        assert host.run(others) == ""


def test_a_sweep_over_both_backends(lab: Lab, tmp_path: Path) -> None:
    model, out, pi = tmp_path / "net.py", tmp_path / "results", lab.host("pi")
    model.write_text(MODEL)
    asked = ("--model", f"{model}:tiny", *SWEEP, "--testbed", str(lab.testbed()), "--out", str(out))
    with lab.pareto(*asked) as process:
        wait_until(lambda: rows(out) or process.poll() is not None, 600)
        shaped = shaping(pi)  # the next trial is at work
        said = process.communicate(timeout=660)
    assert process.returncode == 0, ([row["reason"] for row in rows(out)], said)
    # As another reader than ours sees it: SSH and all others pass by.
    assert "qdisc prio 7061: root" in shaped
    assert "delay 50ms rate 5Mbit" in shaped
    assert {(row["point"], row["backend"]) for row in rows(out)} == {
        ("1", backend) for backend in ("tcp", "rpc")
    }
    for row in rows(out):
        assert row["status"] == "ok", row["reason"]
        assert float(row["latency_s"]) >= float(row["latency_bound_s"])
    (manifest,) = out.glob("*/manifest.json")
    (session,) = json.loads(manifest.read_text())["sessions"]
    assert (session["testbed"]["kind"], session["testbed"]["shaper"]) == ("hosts", "netem")
    in_force = session["links"]["50ms-5mbit"]["edge-server"]["in_force"]
    assert in_force["edge"]["egress"]["delay_s"] == 0.05
    assert in_force["edge"]["egress"]["rate_bps"] == 5e6
    assert in_force["edge"]["scope"] == f"peer {lab.host('gpu').data_address}, TCP port 22 spared"
    assert in_force["server"]["shaper"] == "none"


def rows(out: Path) -> list[dict[str, str]]:
    """The trials so far."""
    return [row for path in out.glob("*/trials.csv") for row in csv.DictReader(path.open(newline=""))]


def test_a_helper_whose_driver_is_cut_off_takes_its_shaping_off_and_another_puts_it_on(
    hosts: tuple[Lab, str], testbed: Testbed
) -> None:
    lab, _ = hosts
    gpu, pi = lab.host("gpu"), lab.host("pi")
    assert_in_force(testbed.links[0].shaper.apply(BOTH_WAYS))
    heard = time.monotonic()
    gpu.unplug()
    try:
        assert "netem" in shaping(gpu)
        assert wait_until(lambda: not shaping(gpu), SILENCE_LIMIT_S + SLACK_S), "it is still shaped"
        silent_s = time.monotonic() - heard
        print(f"nothing was left {silent_s:.1f} s after the cable was pulled")
        assert silent_s > SILENCE_LIMIT_S - 1
        assert "netem" in shaping(pi), "its own helper is well"
    finally:
        gpu.plug()
    testbed.revive()
    assert_in_force(testbed.links[0].shaper.apply(BOTH_WAYS))
    assert testbed.links[0].shaper.state().dropped == 0
    assert "netem" in shaping(gpu)


def test_a_driver_that_is_back_before_the_old_helper_gave_up_waits_for_the_interface(
    hosts: tuple[Lab, str], testbed: Testbed
) -> None:
    lab, _ = hosts
    gpu = lab.host("gpu")
    testbed.links[0].shaper.apply(BOTH_WAYS)
    heard = time.monotonic()
    old = set(helpers(gpu))
    with forgotten(gpu):
        testbed.revive()
        new = set(helpers(gpu)) - old
        assert new
        assert old < set(helpers(gpu)), "nobody told it that its driver has gone"
        assert "netem" in shaping(gpu)
        assert_in_force(testbed.links[0].shaper.apply(BOTH_WAYS))
        print(
            f"the new helper had the interface {time.monotonic() - heard:.1f} s after the old one was cut off"
        )
        assert wait_until(lambda: set(helpers(gpu)) == new)
    assert testbed.links[0].shaper.state().dropped == 0
    assert "netem" in shaping(gpu)


@contextmanager
def forgotten(host: LabHost) -> Iterator[None]:
    """Nothing more gets there on the connections that there are, as where a router on the way has forgotten them."""
    ss = ["ss", "-Htn", "state", "established", "dst", host.address]
    (connection,) = subprocess.run(ss, capture_output=True, text=True, check=True).stdout.splitlines()
    port = connection.split()[2].rpartition(":")[2]
    rule = ["ipproto", "tcp", "sport", port, "to", host.address, "blackhole"]
    subprocess.run(["ip", "rule", "add", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "rule", "del", *rule], check=True)


def assert_in_force(told: Mapping[str, Any]) -> None:
    assert told["edge"]["egress"]["delay_s"] == 0.03
    assert told["server"]["egress"]["delay_s"] == 0.06
