"""Sweeps on hosts of an ordinary testbed file, with nothing of the local testbed's privileges; and hosts that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import checkup
from pareto.hosts.testbed import open_testbed
from tests.integration.own_machine import processes
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import Lab, give_up_soon, open_lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, Ended, command, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
]

SMALL = ("--model", "squeezenet1_1", "--netem", "none", "--quick", "--figures", "none")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """With the driver's home; whatever a test does, no worker is left on a host a moment later."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield hosts
    assert wait_until(lambda: not [it for _, it in processes() if "pareto.worker" in it])


def sweep(lab: Lab, out: Path, *arguments: str) -> Ended:
    return command(*arguments, "--testbed", str(lab.testbed()), "--out", str(out))


def test_from_a_finished_testbed_file_to_a_front(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "results"
    job = (
        "--model",
        "alexnet",
        "--netem",
        "none",
        "--points",
        "13,15",
        "--only",
        "--quick",
        "--sample",
        "50ms",
    )
    done = sweep(lab, out, *job, *LENIENT, "--figures", "none", "--congestion", "reno")
    rows = rows_in(out)
    assert done.code == exit_code(rows), done
    assert "the link itself: round trip" in done.out
    assert len(rows) == 4
    assert all(map(sound, rows)), done
    for row in rows:
        assert int(row["edge_peak_rss_bytes"]) >= 0.9 * int(row["edge_rss_bytes"])
        assert row["edge_energy_j"] == row["edge_throttled"] == ""  # these hosts have no sensors
        series = parquet.read_table(
            next(only_run(out).glob(f"devices/*k{int(row['point']):02d}-{row['backend']}*"))
        )
        served = {"server"} if row["point"] != "15" else set()
        assert set(series["host"].to_pylist()) == {"edge", *served}
    # alexnet's classifier is most of it: who has not got it needs hundreds of megabytes less.
    by_point = {row["point"]: row for row in rows}
    assert int(by_point["15"]["edge_rss_bytes"]) - int(by_point["13"]["edge_rss_bytes"]) > 150e6
    assert int(by_point["13"]["server_rss_bytes"]) - int(by_point["15"]["server_rss_bytes"]) > 150e6
    manifest = json.loads((only_run(out) / "manifest.json").read_text())
    (session,) = manifest["sessions"]
    assert manifest["testbed"] == "edge pi (cpu), server gpu (cpu)"
    assert session["testbed"]["shaper"] == "none"
    # On the sockets of both backends, for the hosts' users may not set the system's.
    crossing = {row["backend"]: row["congestion"] for row in rows if row["point"] == "13"}
    assert crossing == {"tcp": "reno", "rpc": "reno"}
    assert {host["congestion_control"] for host in session["hosts"].values()} == {"reno"}
    assert session["bare_links"]["edge-server"]["rtt_s"] < 0.01
    assert session["bare_links"]["edge-server"]["rate_bps"] > 1e8
    assert session["sampling"]["edge"]["cpu_percent"] > 0
    assert session["hosts"]["edge"]["sensors"]["cpu_percent"]
    assert not any(host.pids("pareto.worker") for host in lab.hosts.values())


def test_a_congestion_control_that_a_host_does_not_allow_is_one_line(lab: Lab, tmp_path: Path) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    wanted = next((name for name in ("cubic", "bbr", "reno") if name not in allowed), None)
    if wanted is None:
        pytest.skip("this kernel allows all")
    done = sweep(lab, tmp_path, *SMALL, "--points", "7", "--only", "--congestion", wanted)
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert f"congestion control {wanted} is not allowed here" in line
    assert f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{" ".join(allowed)} {wanted}"' in line
    assert not list(tmp_path.glob("*"))


def test_a_host_is_for_one_driver_and_the_next_is_refused_or_waits(lab: Lab, tmp_path: Path) -> None:
    job = (*SMALL, "--points", "7", "--only", "--testbed", str(lab.testbed()), "--out", str(tmp_path))
    with closing(open_testbed(str(lab.testbed()), [], shape_at="both")):
        refused = command("run", *job)
        assert refused.code == 2, refused
        (line,) = refused.err.splitlines()
        assert re.search(r"measures there, from [0-9.]+, for \d.*--wait", line)
        waiting = lab.pareto("run", *job, "--wait", "2min")
        assert waiting.stdout is not None
        assert any("waiting for " in line for line in waiting.stdout)
    assert waiting.wait(120) == exit_code(rows_in(tmp_path))


def test_a_worker_that_is_killed_costs_its_trial_and_lost_hosts_cost_none(lab: Lab, tmp_path: Path) -> None:
    """What a host was doing when it lost its power, or its data cable was pulled, is done again once it is back."""
    out = tmp_path / "results"
    pi, gpu = lab.host("pi"), lab.host("gpu")
    job = (*SMALL, *LENIENT, "--points", "7", "--only", "--backend", "tcp", "--trials", "5")
    where = ("--testbed", str(lab.testbed()), "--out", str(out))
    process = lab.pareto(*job, *where)

    def wait_for(trials: int) -> None:
        """Until so many have ended: the next is at work."""
        assert wait_until(lambda: len(rows_in(out)) >= trials or process.poll() is not None, 240)
        assert process.poll() is None, process.communicate()

    wait_for(1)
    (worker,) = (pid for pid in pi.pids("-m pareto.worker --threads") if not is_shell(pid))
    os.kill(worker, 9)
    wait_for(3)
    gpu.power_off()
    gpu.power_on()
    wait_for(4)
    lab.link_down()
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "carrier" in line:
            lab.link_up()
    assert process.wait(20) == 1, said
    rows = rows_in(out)
    assert Counter(row["round"] for row in rows) == {str(number): 1 for number in range(1, 6)}
    reasons = [row["reason"] for row in rows if not sound(row)]
    assert len(reasons) == 1, said
    assert "killed by signal 9" in reasons[0]
    assert said.count("the testbed is built or reached again") == 2
    (session,) = json.loads((only_run(out) / "manifest.json").read_text())["sessions"]
    assert [it["reason"].partition(" ")[0] for it in session["rebuilt"]] == ["gpu", "pi:"], session["rebuilt"]


def is_shell(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name in ("sh", "dash", "bash")


def test_a_disk_with_too_little_room_is_one_line_before_anything_is_sent(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "LEAST_DISK_BYTES", 1e6)  # or so small a disk would be turned away at once
    gpu = lab.host("gpu")
    gpu.run("rm -rf .pareto", gpu.user)
    gpu.small_disk(".pareto", "30m")  # less than resnet18's weights
    job = (
        "--model",
        "squeezenet1_1,resnet18",
        "--netem",
        "none",
        "--points",
        "0",
        "--only",
        "--backend",
        "tcp",
    )
    try:
        done = sweep(lab, tmp_path, *job, "--quick", "--figures", "none", *LENIENT)
    finally:
        # What was started there may still be ending.
        gpu.run(f"umount --lazy {gpu.home}/.pareto")
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert re.search(r"gpu .*: \d\d MB are free for .*/\.pareto, and \d\d MB are to come$", line), line
    assert not list(tmp_path.glob("*"))


class TestAHostThatCannotBeUsedIsOneLine:
    @pytest.fixture(autouse=True)
    def _before(
        self, lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.lab, self.out, self.snapshot, self.monkeypatch = lab, tmp_path / "out", snapshot, monkeypatch

    def refused(self, netem: str = "none", **members: dict[str, object]) -> str:
        """The line, in which what differs from run to run is cut out."""
        job = (
            "--model",
            "squeezenet1_1",
            "--netem",
            netem,
            "--points",
            "0",
            "--only",
            "--out",
            str(self.out),
        )
        done = command(*job, "--testbed", str(self.lab.testbed(**members)))
        assert done.code == 2, done
        (line,) = done.err.splitlines()
        assert line.startswith("error: ")
        assert not list(self.out.glob("*")), "a run that measured nothing leaves no folder"
        line = line.replace(str(self.lab.folder), "LAB")
        return re.sub(r"SHA256:\S+?(?=[\s;,)])", "SHA256:...", line)

    def test_it_is_off(self) -> None:
        gpu = self.lab.host("gpu")
        give_up_soon(self.monkeypatch, gpu)
        gpu.power_off()
        try:
            assert f"gpu (pi@{gpu.address})" in self.refused()
        finally:
            gpu.power_on()
            self.lab.wait_for_link()

    def test_its_key_is_another(self) -> None:
        self.lab.host("gpu").change_host_key()
        try:
            assert self.refused() == self.snapshot
        finally:
            self.lab.know_hosts()

    def test_its_user_is_another(self) -> None:
        member = {"user": "root", "ssh": self.lab.host("gpu").address}
        assert self.refused(gpu=member) == self.snapshot

    def test_its_kernel_has_no_netem(self) -> None:
        if self.lab.host("gpu").run("modprobe -n sch_netem 2>/dev/null && echo there || :"):
            pytest.skip("this kernel has sch_netem")
        assert re.sub(r"kernel \S+", "kernel ...", self.refused("lte")) == self.snapshot

    def test_its_address_is_another(self) -> None:
        assert self.refused(pi={"data_address": "198.19.99.1"}) == self.snapshot

    def test_it_has_no_gpu(self) -> None:
        assert "gpu: gpu: " in self.refused(gpu={"device": "cuda:0"})

    def test_its_shell_talks(self) -> None:
        gpu = self.lab.host("gpu")
        loud = "'#!/bin/sh\\necho Welcome\\nexec /bin/sh \"$@\"\\n'"
        gpu.run(f"printf {loud} > /etc/loud && chmod 755 /etc/loud && usermod -s /etc/loud pi")
        try:
            assert self.refused() == self.snapshot
        finally:
            gpu.run("usermod -s /bin/bash pi")


def test_the_drivers_machine_is_one_of_the_hosts(lab: Lab, tmp_path: Path) -> None:
    """No SSH to itself; and the data link is the one over which SSH goes to the other host."""
    pi, out, folder = lab.host("pi"), tmp_path / "results", tmp_path / "here"
    route = subprocess.run(["ip", "-j", "route", "get", pi.address], capture_output=True, check=True)
    (way,) = json.loads(route.stdout)
    here = {"ssh": "local", "data_address": way["prefsrc"], "data_interface": None, "folder": str(folder)}
    there = {"data_address": pi.address, "data_interface": "mgmt0"}
    where = ("--testbed", str(lab.testbed(pi=there, gpu=here)), "--out", str(out))
    done = command(*SMALL, *LENIENT, "--points", "7", "--only", "--backend", "tcp", *where)
    assert all(map(sound, rows_in(out))), done
    (session,) = json.loads((only_run(out) / "manifest.json").read_text())["sessions"]
    assert session["testbed"]["hosts"]["server"]["data_interface"] == way["dev"]
    assert session["hosts"]["server"]["hostname"] == os.uname().nodename
    assert session["hosts"]["edge"]["hostname"] == "pi"
    assert list(folder.glob("*.safetensors"))
