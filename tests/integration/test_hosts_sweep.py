"""Sweeps on hosts of an ordinary testbed file, with nothing of the local testbed's privileges; and hosts that fail."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.integration.conftest import processes, wait_until
from tests.integration.test_sweep import only_run, read
from tests.lab import Lab, open_lab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
    pytest.mark.usefixtures("nothing_left"),
]

FIRST_TRIAL_S = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path / "lab") as lab:
        yield lab


def sweep(lab: Lab, out: Path, *arguments: str) -> subprocess.Popen[str]:
    where = ("--testbed", str(lab.testbed()), "--out", str(out))
    return lab.pareto("--model", "alexnet", "--netem", "none", *where, *arguments)


def rows_in(out: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in out.glob("*/trials.csv"))


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Until so many trials have ended: the next is at work."""
    assert wait_until(lambda: rows_in(out) >= count or process.poll() is not None, 180)
    assert process.poll() is None, process.communicate()


def test_from_a_finished_testbed_file_to_a_front(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "results"
    began = time.monotonic()
    process = sweep(lab, out, "--points", "0,13,15", "--quick", "--sample", "50ms")
    wait_for_rows(process, out, 1)
    first_s = time.monotonic() - began
    print(f"from the command to the first trial's end: {first_s:.1f} s")
    assert first_s < FIRST_TRIAL_S
    said, err = process.communicate(timeout=240)
    assert process.returncode == 0, said + err
    assert "the link itself: round trip" in said
    rows = read(only_run(out) / "trials.csv")
    assert Counter(row["status"] for row in rows) == {"ok": 6}
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
    assert int(by_point["0"]["server_rss_bytes"]) - int(by_point["15"]["server_rss_bytes"]) > 150e6
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
    out = tmp_path / "results"
    job = ("--model", "squeezenet1_1", "--points", "3", "--quick")
    process = sweep(lab, out, *job, "--congestion", "reno")
    said, err = process.communicate(timeout=240)
    assert process.returncode in (0, 1), said + err
    rows = {row["backend"]: row for row in read(only_run(out) / "trials.csv")}
    assert {backend: row["congestion"] for backend, row in rows.items()} == {"tcp": "reno", "rpc": "reno"}
    (session,) = json.loads((only_run(out) / "manifest.json").read_text())["sessions"]
    assert {host["congestion_control"] for host in session["hosts"].values()} == {"reno"}


def test_a_congestion_control_that_a_host_does_not_allow_is_one_line(lab: Lab, tmp_path: Path) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    wanted = next((name for name in ("cubic", "bbr", "reno") if name not in allowed), None)
    if wanted is None:
        pytest.skip("this kernel allows all")
    out = tmp_path / "results"
    process = sweep(lab, out, "--model", "squeezenet1_1", "--points", "3", "--congestion", wanted)
    said, err = process.communicate(timeout=120)
    assert process.returncode == 2, said + err
    (line,) = err.splitlines()
    assert f"congestion control {wanted} is not allowed here" in line
    assert f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{" ".join(allowed)} {wanted}"' in line
    assert not list(out.glob("*"))


def test_three_faults_cost_three_trials(lab: Lab, tmp_path: Path) -> None:
    """A worker that is killed, a host that loses its power, a data cable that is pulled."""
    out = tmp_path / "results"
    pi, gpu = lab.host("pi"), lab.host("gpu")
    job = ("--points", "3,13", "--backend", "tcp", "--quick", "--trials", "6")
    process = sweep(lab, out, *job)

    wait_for_rows(process, out, 2)
    (worker,) = (pid for pid in pi.pids("-m pareto.worker --threads") if not is_shell(pid))
    os.kill(worker, 9)
    wait_for_rows(process, out, 4)

    gpu.power_off()
    gpu.power_on()
    wait_for_rows(process, out, 7)

    lab.link_down()
    wait_for_rows(process, out, 8)
    lab.link_up()
    said, err = process.communicate(timeout=240)
    assert process.returncode == 1, said + err
    rows = read(only_run(out) / "trials.csv")
    assert Counter(row["status"] for row in rows) == {"ok": 9, "failed": 3}, said
    reasons = [row["reason"] for row in rows if row["status"] == "failed"]
    assert "killed by signal 9" in reasons[0]
    assert all(reason and "\n" not in reason and "Traceback" not in reason for reason in reasons)
    assert said.count("failed: alexnet") >= 3

    process = lab.pareto("--resume", str(only_run(out)))
    said, err = process.communicate(timeout=240)
    assert process.returncode == 0, said + err
    assert Counter(row["status"] for row in read(only_run(out) / "trials.csv")) == {"ok": 12}


def is_shell(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name in ("sh", "dash", "bash")


def test_a_disk_that_is_full_fails_the_trials_that_need_room(lab: Lab, tmp_path: Path) -> None:
    out = tmp_path / "results"
    gpu = lab.host("gpu")
    gpu.small_disk(".pareto", "220m")  # less than alexnet's weights
    process = sweep(
        lab, out, "--model", "squeezenet1_0,alexnet", "--points", "0", "--backend", "tcp", "--quick"
    )
    said, err = process.communicate(timeout=240)
    assert process.returncode == 1, said + err
    rows = {row["model"]: row for row in read(only_run(out) / "trials.csv")}
    assert rows["squeezenet1_0"]["status"] == "ok"
    assert rows["alexnet"]["status"] == "failed"
    assert "No space left on device" in rows["alexnet"]["reason"]
    assert "gpu" in rows["alexnet"]["reason"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("off", "gpu (pi@"),
        ("key", "shows another host key"),
        ("user", "takes none of these keys"),
        ("netem", "pi: netem: the kernel"),
        ("address", "pi: data link: "),
        ("cuda", "gpu: gpu: "),
        ("shell", "its login shell says 'Welcome' by itself"),
    ],
)
def test_a_host_that_cannot_be_used_is_one_line(lab: Lab, tmp_path: Path, fault: str, says: str) -> None:
    gpu, member, netem = lab.host("gpu"), {}, "none"
    if fault == "off":
        gpu.power_off()
    elif fault == "key":
        gpu.change_host_key()
    elif fault == "user":
        member = {"gpu": {"user": "root", "ssh": gpu.address}}
    elif fault == "netem":
        netem = "lte"
        if gpu.run("modprobe -n sch_netem 2>/dev/null && echo there || :"):
            pytest.skip("this kernel has sch_netem")
    elif fault == "address":
        member = {"pi": {"data_address": "198.19.99.1"}}
    elif fault == "shell":
        loud = "'#!/bin/sh\\necho Welcome\\nexec /bin/sh \"$@\"\\n'"
        gpu.run(f"printf {loud} > /etc/loud && chmod 755 /etc/loud && usermod -s /etc/loud pi")
    elif fault == "cuda":
        member = {"gpu": {"device": "cuda:0"}}
    job = ("--model", "squeezenet1_1", "--netem", netem, "--points", "0", "--out", str(tmp_path / "out"))
    process = lab.pareto(*job, "--testbed", str(lab.testbed(**member)))
    said, err = process.communicate(timeout=120)
    assert process.returncode == 2, said + err
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert not list((tmp_path / "out").glob("*")), "a run that measured nothing leaves no folder"


def test_the_drivers_machine_is_one_of_the_hosts(lab: Lab, tmp_path: Path) -> None:
    """No SSH to itself; and the data link is the one over which SSH goes to the other host."""
    pi, out, folder = lab.host("pi"), tmp_path / "results", tmp_path / "here"
    route = subprocess.run(["ip", "-j", "route", "get", pi.address], capture_output=True, check=True)
    (way,) = json.loads(route.stdout)
    here = {"ssh": "local", "data_address": way["prefsrc"], "data_interface": None, "folder": str(folder)}
    there = {"data_address": pi.address, "data_interface": "mgmt0"}
    where = ("--testbed", str(lab.testbed(pi=there, gpu=here)), "--out", str(out))
    process = lab.pareto("--model", "squeezenet1_0", "--netem", "none", "--points", "5", "--quick", *where)
    said, err = process.communicate(timeout=240)
    assert process.returncode == 0, said + err
    (manifest,) = out.glob("*/manifest.json")
    (session,) = json.loads(manifest.read_text())["sessions"]
    assert session["testbed"]["hosts"]["server"]["data_interface"] == way["dev"]
    assert session["hosts"]["server"]["hostname"] == os.uname().nodename
    assert session["hosts"]["edge"]["hostname"] == "pi"
    assert list(folder.glob("*.safetensors"))
    assert not [command for _, command in processes() if "pareto.worker" in command]
