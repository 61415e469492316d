"""A sweep over two hosts by real sshds: one loses its power, its cable or its worker; and hosts that cannot be used."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory
from pareto.hosts.ssh.testbed import open_ssh_testbed
from tests.integration.own_machine import processes
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import Lab
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command, measured, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900), needs_networks]
pytestmark += [pytest.mark.usefixtures("known")]
NET = Path(__file__).parents[1] / "faults" / "net.py"
SMALL = f"--model {NET}:build --netem none --quick --figures none --points 1 --only --backend tcp"
HEAVY = """
from torch import nn

input_shape = (3, 32, 32)


def build():
    stem = nn.Sequential(nn.Conv2d(3, 8, 2, stride=2), nn.ReLU())
    return nn.Sequential(stem, nn.Flatten(), nn.Linear(2048, 4400), nn.Linear(4400, 10))
"""
HEAVY_BYTES = 4 * 2048 * 4400
"""Its largest layer, which nearly all of it is."""
CUT, WHOLE = "1", "3"
JOB = f"--netem none --points {CUT},{WHOLE} --only --quick --figures none --trials 2"
CEILING_S = 240.0
"""Against hanging."""


def is_shell(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name in ("sh", "dash", "bash")


@pytest.mark.parametrize("lost", ["power", pytest.param("cable", marks=pytest.mark.deep)])
def test_a_worker_that_is_killed_costs_its_trial_and_lost_hosts_cost_none(
    lab: Lab, tmp_path: Path, lost: str
) -> None:
    """It begins when the driver before it is done. Then gpu's power is cut; or a worker killed, and the data cable
    pulled, which takes a minute to be noticed: what a host was doing is done again once it is back."""
    out, pi, gpu = tmp_path / "out", lab.host("pi"), lab.host("gpu")
    out.mkdir()
    where = ("--testbed", str(lab.testbed()), "--out", str(out))
    (lab.folder / "heavy.py").write_text(HEAVY)
    with closing(open_ssh_testbed(inventory.load(lab.testbed()), shaped=False)) as before:
        other = command("run", *SMALL.split(), *where)
        assert other.code == 2, other
        (line,) = other.err.splitlines()
        assert re.search(r"measures there, from [0-9.]+, for \d.*--wait", line)
        assert not list(out.iterdir())
        rest = ("--model", f"{lab.folder}/heavy.py:build", "--sample", "50ms", "--congestion", "reno")
        process = lab.pareto("run", *JOB.split(), *LENIENT, *rest, *where, "--wait", "5min")
        assert process.stdout is not None
        assert any("waiting for " in line for line in process.stdout)
        lab.link_down()
        assert "no carrier on data0" in before.lost()
        lab.link_up()
        assert before.lost() == ""

    def wait_for(trials: int) -> None:
        """Until so many have ended: the next is at work."""
        assert wait_until(lambda: len(rows_in(out)) >= trials or process.poll() is not None, CEILING_S)
        assert process.poll() is None, process.communicate()

    wait_for(1)
    if lost == "power":
        gpu.power_off()
        gpu.power_on()
    else:
        (worker,) = (pid for pid in pi.pids("-m pareto.remote.worker --threads") if not is_shell(pid))
        os.kill(worker, 9)
        wait_for(3)
        lab.link_down()
    said = ""
    for line in process.stdout:
        said += line
        if "carrier" in line:
            lab.link_up()
    rows, run = rows_in(out), only_run(out)
    assert process.wait(CEILING_S) == exit_code(rows), said
    cells = [
        (point, backend, number) for point in (CUT, WHOLE) for backend in ("tcp", "rpc") for number in "12"
    ]
    assert Counter((row["point"], row["backend"], row["round"]) for row in rows) == Counter(cells)
    killed, reasons = int(lost == "cable"), [row["reason"] for row in rows if not sound(row)]
    assert ["killed by signal 9" in reason for reason in reasons] == [True] * killed, said
    assert said.count("the testbed is built or reached again") == 1
    manifest = json.loads((run / "manifest.json").read_text())
    (session,) = manifest["sessions"]
    (rebuilt,) = session["rebuilt"]
    assert rebuilt["reason"].startswith("pi: no carrier on data0" if killed else "gpu "), rebuilt
    says_on_what_it_was_measured(run, [row for row in rows if sound(row)], manifest, session)
    assert "the link itself: round trip" in said
    assert wait_until(lambda: not any(host.pids("pareto.remote.worker") for host in lab.hosts.values()))
    assert wait_until(lambda: not [it for _, it in processes() if "pareto.remote.worker" in it])


def says_on_what_it_was_measured(
    run: Path, rows: list[dict[str, str]], manifest: dict[str, Any], session: dict[str, Any]
) -> None:
    """Each host's memory and load, the congestion control on both backends' sockets, the link as it is."""
    for row in rows:
        assert int(row["edge_peak_rss_bytes"]) >= 0.9 * int(row["edge_rss_bytes"])
        assert row["edge_energy_j"] == row["edge_throttled"] == ""  # these hosts have no sensors
        cell = f"k{int(row['point']):02d}-{row['backend']}"
        series = parquet.read_table(next(run.glob(f"devices/*{cell}*r{int(row['round']):02d}*")))
        served = {"server"} if row["point"] != WHOLE else set()
        assert set(series["host"].to_pylist()) == {"edge", *served}
        if row["point"] == CUT:
            # On the sockets of both backends, for the hosts' users may not set the system's.
            assert row["congestion"] == "reno"
    # Who has not got the large layer needs its bytes less.
    by_point = {row["point"]: row for row in rows}
    for role, more, less in (("edge", WHOLE, CUT), ("server", CUT, WHOLE)):
        held, spared = (int(by_point[point][f"{role}_rss_bytes"]) for point in (more, less))
        assert held - spared > 0.65 * HEAVY_BYTES
    assert {row["backend"] for row in rows if row["point"] == CUT} == {"tcp", "rpc"}
    assert manifest["testbed"] == "edge pi (cpu), server gpu (cpu)"
    assert session["testbed"]["shaper"] == "none"
    assert {host["congestion_control"] for host in session["hosts"].values()} == {"reno"}
    assert min(session["bare_links"]["edge-server"][name] for name in ("rtt_s", "rate_bps")) > 0
    assert session["sampling"]["edge"]["cpu_percent"] > 0
    assert session["hosts"]["edge"]["sensors"]["cpu_percent"]


def refused(lab: Lab, out: Path, *options: str, **members: dict[str, object]) -> str:
    """The one line of a sweep that measures nothing, in which what differs from run to run is cut out."""
    done = measured(*SMALL.split(), *options, "--testbed", str(lab.testbed(**members)), "--out", str(out))
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert not list(out.glob("*")), "a run that measured nothing leaves no folder"
    line = re.sub(r"198\.1([89])\.\d+\.", r"198.1\1.SLOT.", line.replace(str(lab.folder), "LAB"))
    return re.sub(r"kernel \S+", "kernel ...", re.sub(r"SHA256:\S+?(?=[\s;,)])", "SHA256:...", line))


def test_a_host_that_cannot_be_used_is_one_line(
    lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Its address and shell; its key comes last, for then it is known no more."""
    gpu, lines = lab.host("gpu"), list[str]()
    lines.append(refused(lab, tmp_path, pi={"data_address": "198.19.0.1"}))
    loud = "'#!/bin/sh\\necho Welcome\\nexec /bin/sh \"$@\"\\n'"
    gpu.run(f"printf {loud} > /etc/loud && chmod 755 /etc/loud && usermod -s /etc/loud pi")
    try:
        lines.append(refused(lab, tmp_path))
    finally:
        gpu.run("usermod -s /bin/bash pi")
    gpu.change_host_key()
    try:
        lines.append(refused(lab, tmp_path))
    finally:
        lab.know_hosts()
    assert lines == snapshot
