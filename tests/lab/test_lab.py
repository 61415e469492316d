"""The stand-ins for real hosts are what they pretend to be. Links, keys and disks: tests/integration/test_ssh.py and
test_hosts.py."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns

from tests import REPOSITORY
from tests.lab import Lab, LabError, open_lab
from tests.lab.disk import MIRRORED, OWN
from tests.lab.host import EMPTY_AT_BOOT, hidden
from tests.lab.lab import MEMORY
from tests.less_than_root import needs_networks

pytestmark = [pytest.mark.integration, needs_networks]

QUICKLY = ("-o", "ConnectTimeout=1", "-o", "ConnectionAttempts=1")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as lab:
        yield lab


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = lab.ssh(host, command)
    argv[1:1] = options
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def session(lab: Lab, host: str) -> subprocess.Popen[str]:
    """An SSH session that is up."""
    process = subprocess.Popen(lab.ssh(host, "echo up; exec sleep 1000"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def traces(lab: Lab) -> list[str]:
    """What there is of that lab on this machine now."""
    slot = lab.host("pi").namespace.removeprefix("pareto-lab").partition("-")[0]
    found = [name for name in netns.listnetns() if name.startswith(f"pareto-lab{slot}-")]
    with IPRoute() as ip:
        names = [str(link.get_attr("IFLA_IFNAME")) for link in ip.get_links()]
    found += [name for name in names if name.startswith(f"paretolab{slot}m")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(lab.folder) in line]
    folders = (lab.folder / "disks", MEMORY / f"pareto-lab{slot}", Path("/run/pareto", slot))
    return found + [str(path) for path in folders if path.exists()]


@pytest.mark.deep
def test_its_user_is_unprivileged_and_sees_the_host_alone(lab: Lab, tmp_path: Path) -> None:
    for name in ("pi", "gpu"):
        assert ssh(lab, name, "hostname; whoami; pwd").stdout.split() == [name, "pi", "/home/pi"]
    assert "Permission denied" in ssh(lab, "pi", "cat /etc/shadow").stderr
    assert "password is required" in ssh(lab, "pi", "sudo -n true").stderr
    assert ssh(lab, "pi", "kill -0 1").returncode == 1
    assert "Permission denied" in ssh(lab, "pi", "true", "-o", "User=root").stderr
    assert ssh(lab, "pi", "ls /sys/class/net").stdout.split() == ["data0", "lo", "mgmt0"]
    assert ssh(lab, "pi", "cat /proc/1/comm").stdout == "sshd\n"
    with session(lab, "gpu") as process:
        assert lab.host("pi").pids("sleep 1000") == []
        (pid,) = lab.host("gpu").pids("sleep 1000")
        os.kill(pid, signal.SIGKILL)
        process.wait(10)
    with open_lab(tmp_path / "other", jump=True) as other:
        assert len({host.address for each in (lab, other) for host in each.hosts.values()}) == 5
        assert ssh(other, "pi", "touch here").returncode == 0
        assert ssh(lab, "pi", "ls here").returncode != 0
        assert [ssh(other, name, "hostname").stdout for name in ("gpu", "jump")] == ["gpu\n", "jump\n"]
        assert ssh(other, "gpu", "true", "-o", "ProxyJump=none", *QUICKLY).returncode == 255
    assert traces(other) == []


def test_what_root_does_on_a_host_stays_there(lab: Lab) -> None:
    files = [Path("/etc", name) for name in ("passwd", "shadow", "group", "sudoers", "hosts", "hostname")]
    before = [path.read_bytes() for path in files]
    for folder in (Path("/", part) for part in (*OWN, *MIRRORED, *EMPTY_AT_BOOT)):
        lab.host("pi").run(f"touch {folder}/made-in-a-lab {folder}/passwd; rm -f {folder}/hosts")
        assert not (folder / "made-in-a-lab").exists()
        with pytest.raises(LabError, match="No such file"):
            lab.host("gpu").run(f"ls {folder}/made-in-a-lab")
    for untouchable in ("/usr/bin", "/var/lib", REPOSITORY, sys.prefix):
        with pytest.raises(LabError, match="Read-only"):
            lab.host("pi").run(f"touch {untouchable}/made-in-a-lab")
    assert [path.read_bytes() for path in files] == before


def test_folders_that_only_root_may_pass_are_covered(tmp_path: Path) -> None:
    shut, inner = tmp_path / "shut", tmp_path / "shut" / "open" / "shut"
    wanted = inner / "repository"
    wanted.mkdir(parents=True)
    inner.chmod(0o700)
    # pytest's own folders are shut as well.
    above = hidden([tmp_path / "shut"], [])
    assert hidden([wanted], []) == (above or [inner])
    assert hidden([wanted], [shut]) == hidden([wanted], [inner]) == above


def test_a_power_cut_is_silent_and_what_comes_back_has_its_disk_and_its_key(lab: Lab) -> None:
    gpu = lab.host("gpu")
    assert ssh(lab, "gpu", "echo kept >kept; echo gone >/tmp/gone").returncode == 0
    pids = gpu.pids()
    with socket.create_connection((gpu.address, 22), 5) as line:
        assert line.recv(4) == b"SSH-"
        line.settimeout(0.5)
        while not line.recv(1024).endswith(b"\n"):
            pass
        gpu.power_off()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        with pytest.raises(TimeoutError):
            line.recv(1)
        with pytest.raises(LabError, match="off"):
            gpu.run("true")
        assert ssh(lab, "gpu", "true", *QUICKLY).returncode == 255
        gpu.power_on()
        line.settimeout(20)
        with pytest.raises(ConnectionResetError):
            line.sendall(b"SSH-2.0-lab\r\n")
            line.recv(1)
    back = ssh(lab, "gpu", "cat kept; [ ! -e /tmp/gone ] || echo still there")
    assert (back.returncode, back.stdout) == (0, "kept\n")
    reach = f"python3 -c \"import socket; socket.create_connection(('{gpu.data_address}', 22), 5)\""
    assert ssh(lab, "pi", reach).returncode == 0


def test_nothing_is_left_whatever_happens_inside(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_lab(tmp_path) as lab:
        pids = [pid for host in lab.hosts.values() for pid in host.pids()]
        with session(lab, "pi"):
            lab.host("gpu").power_off()
            assert traces(lab) != []
            raise KeyboardInterrupt
    assert traces(lab) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
