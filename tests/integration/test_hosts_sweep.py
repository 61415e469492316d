"""Sweeps on hosts of an ordinary testbed file, with nothing of the local testbed's privileges; and hosts that fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from tests.integration.own_machine import processes
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import Lab, open_lab
from tests.program import LENIENT, Ended, command, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
    pytest.mark.usefixtures("nothing_left"),
]

SMALL = ("--model", "squeezenet1_1", "--netem", "none", "--quick", "--figures", "none")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """With the driver's home."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return hosts


def sweep(lab: Lab, out: Path, *arguments: str) -> Ended:
    return command(*arguments, "--testbed", str(lab.testbed()), "--out", str(out))


def test_from_a_finished_testbed_file_to_a_front(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "results"
    job = ("--model", "alexnet", "--netem", "none", "--points", "13,15", "--quick", "--sample", "50ms")
    done = sweep(lab, out, *job, *LENIENT, "--figures", "none")
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
    assert session["bare_links"]["edge-server"]["rtt_s"] < 0.01
    assert session["bare_links"]["edge-server"]["rate_bps"] > 1e8
    assert session["sampling"]["edge"]["cpu_percent"] > 0
    assert session["hosts"]["edge"]["sensors"]["cpu_percent"]
    assert not any(host.pids("pareto.worker") for host in lab.hosts.values())


def test_hosts_set_the_congestion_control_that_was_asked_for(lab: Lab, tmp_path: Path) -> None:
    """On the sockets of both backends, for the hosts' users may not set the system's."""
    done = sweep(lab, tmp_path, *SMALL, *LENIENT, "--points", "7", "--congestion", "reno")
    rows = {row["backend"]: row for row in rows_in(tmp_path)}
    assert all(map(sound, rows.values())), done
    assert {backend: row["congestion"] for backend, row in rows.items()} == {"tcp": "reno", "rpc": "reno"}
    (session,) = json.loads((only_run(tmp_path) / "manifest.json").read_text())["sessions"]
    assert {host["congestion_control"] for host in session["hosts"].values()} == {"reno"}


def test_a_congestion_control_that_a_host_does_not_allow_is_one_line(lab: Lab, tmp_path: Path) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    wanted = next((name for name in ("cubic", "bbr", "reno") if name not in allowed), None)
    if wanted is None:
        pytest.skip("this kernel allows all")
    done = sweep(lab, tmp_path, *SMALL, "--points", "7", "--congestion", wanted)
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert f"congestion control {wanted} is not allowed here" in line
    assert f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{" ".join(allowed)} {wanted}"' in line
    assert not list(tmp_path.glob("*"))


def test_three_faults_cost_three_trials(lab: Lab, tmp_path: Path) -> None:
    """A worker that is killed, a host that loses its power, a data cable that is pulled."""
    pi, gpu = lab.host("pi"), lab.host("gpu")
    job = (*SMALL, *LENIENT, "--points", "7,8", "--backend", "tcp", "--trials", "5")
    process = lab.pareto(*job, "--testbed", str(lab.testbed()), "--out", str(tmp_path))

    wait_for_rows(process, tmp_path, 2)
    (worker,) = (pid for pid in pi.pids("-m pareto.worker --threads") if not is_shell(pid))
    os.kill(worker, 9)
    wait_for_rows(process, tmp_path, 4)

    gpu.power_off()
    gpu.power_on()
    wait_for_rows(process, tmp_path, 7)

    lab.link_down()
    wait_for_rows(process, tmp_path, 8)
    lab.link_up()
    said, err = process.communicate(timeout=240)
    assert process.returncode == 1, said + err
    rows = rows_in(tmp_path)
    assert len(rows) == 10
    reasons = [row["reason"] for row in rows if not sound(row)]
    assert len(reasons) == 3, said
    assert "killed by signal 9" in reasons[0]
    assert all(reason and "\n" not in reason and "Traceback" not in reason for reason in reasons)
    assert said.count("failed: squeezenet1_1") >= 3

    done = command("--resume", str(only_run(tmp_path)), "--figures", "none")
    rows = rows_in(tmp_path)
    assert done.code == exit_code(rows), done
    assert all(map(sound, rows)), done
    assert Counter((row["point"], row["round"]) for row in rows) == {
        (point, str(number)): 1 for point in ("7", "8") for number in range(1, 6)
    }


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Until so many trials have ended: the next is at work."""
    assert wait_until(lambda: len(rows_in(out)) >= count or process.poll() is not None, 240)
    assert process.poll() is None, process.communicate()


def is_shell(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name in ("sh", "dash", "bash")


def test_a_disk_that_is_full_fails_the_trials_that_need_room(lab: Lab, tmp_path: Path) -> None:
    gpu = lab.host("gpu")
    gpu.run("rm -rf .pareto", gpu.user)
    gpu.small_disk(".pareto", "30m")  # less than resnet18's weights
    job = ("--model", "squeezenet1_1,resnet18", "--netem", "none", "--points", "0", "--backend", "tcp")
    try:
        done = sweep(lab, tmp_path, *job, "--quick", "--figures", "none", *LENIENT)
    finally:
        gpu.run(f"umount {gpu.home}/.pareto")
    assert done.code == 1, done
    rows = {row["model"]: row for row in rows_in(tmp_path)}
    assert sound(rows["squeezenet1_1"])
    assert rows["resnet18"]["status"] == "failed"
    assert "No space left on device" in rows["resnet18"]["reason"]
    assert "gpu" in rows["resnet18"]["reason"]


class TestAHostThatCannotBeUsedIsOneLine:
    @pytest.fixture(autouse=True)
    def _before(self, lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
        self.lab, self.out, self.snapshot = lab, tmp_path / "out", snapshot

    def refused(self, netem: str = "none", **members: dict[str, object]) -> str:
        """The line, in which what differs from run to run is cut out."""
        job = ("--model", "squeezenet1_1", "--netem", netem, "--points", "0", "--out", str(self.out))
        done = command(*job, "--testbed", str(self.lab.testbed(**members)))
        assert done.code == 2, done
        (line,) = done.err.splitlines()
        assert line.startswith("error: ")
        assert not list(self.out.glob("*")), "a run that measured nothing leaves no folder"
        line = line.replace(str(self.lab.folder), "LAB")
        return re.sub(r"SHA256:\S+?(?=[\s;,)])", "SHA256:...", line)

    def test_it_is_off(self) -> None:
        gpu = self.lab.host("gpu")
        gpu.power_off()
        try:
            assert self.refused() == self.snapshot
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
        assert self.refused("lte") == self.snapshot

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
    done = command(*SMALL, *LENIENT, "--points", "7", *where)
    assert all(map(sound, rows_in(out))), done
    (session,) = json.loads((only_run(out) / "manifest.json").read_text())["sessions"]
    assert session["testbed"]["hosts"]["server"]["data_interface"] == way["dev"]
    assert session["hosts"]["server"]["hostname"] == os.uname().nodename
    assert session["hosts"]["edge"]["hostname"] == "pi"
    assert list(folder.glob("*.safetensors"))
    assert not [it for _, it in processes() if "pareto.worker" in it]
