"""The stand-ins for real hosts are what they pretend to be, as OpenSSH's client and paramiko see them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import paramiko
import pytest
from pyroute2 import IPRoute, netns

from pareto.hosts import inventory
from tests import REPOSITORY
from tests.lab import Lab, LabError, open_lab
from tests.lab.boot import EMPTY_AT_BOOT, hidden
from tests.lab.disk import MIRRORED, OWN
from tests.lab.lab import MEMORY
from tests.less_than_root import needs_networks
from tests.program import wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

SECONDS_OF_SILENCE = ("-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1")
QUICKLY = ("-o", "ConnectTimeout=1", "-o", "ConnectionAttempts=1")
PATIENTLY = ("-o", "ConnectTimeout=10")
"""Where the host is to answer: a busy machine may need more than a second for all of SSH's greetings."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with open_lab(tmp_path) as lab:
        yield lab


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = lab.ssh(host, command)
    argv[1:1] = options
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


def session(lab: Lab, host: str, options: Sequence[str] = SECONDS_OF_SILENCE) -> subprocess.Popen[str]:
    """An SSH session that is up, and gives a silent host up after a second or two, unless it has other options."""
    argv = lab.ssh(host, "echo up; exec sleep 1000")
    argv[1:1] = options
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def interfaces() -> set[str]:
    with IPRoute() as ip:
        return {str(link.get_attr("IFLA_IFNAME")) for link in ip.get_links()}


def traces(lab: Lab) -> list[str]:
    """What there is of that lab on this machine now."""
    slot = lab.host("pi").namespace.removeprefix("pareto-lab").partition("-")[0]
    found = [name for name in netns.listnetns() if name.startswith(f"pareto-lab{slot}-")]
    found += [name for name in interfaces() if name.startswith(f"paretolab{slot}m")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(lab.folder) in line]
    found += [
        str(path)
        for path in (lab.folder / "disks", MEMORY / f"pareto-lab{slot}", Path("/run/pareto", slot))
        if path.exists()
    ]
    return found


@pytest.mark.deep
def test_a_login_with_the_key_is_an_unprivileged_users(lab: Lab) -> None:
    for name in ("pi", "gpu"):
        assert ssh(lab, name, "hostname; whoami; pwd").stdout.split() == [name, "pi", "/home/pi"]
    assert "Permission denied" in ssh(lab, "pi", "cat /etc/shadow").stderr
    assert "password is required" in ssh(lab, "pi", "sudo -n true").stderr
    assert ssh(lab, "pi", "kill -0 1").returncode == 1
    refused = ssh(lab, "pi", "true", "-o", "User=root")
    assert "Permission denied" in refused.stderr


@pytest.mark.deep
def test_paramiko_logs_in_too(lab: Lab) -> None:
    with closing(paramiko.SSHClient()) as client:
        client.load_host_keys(str(lab.known_hosts))
        host = lab.host("gpu")
        client.connect(host.address, username=host.user, key_filename=str(lab.key), allow_agent=False)
        _, out, _ = client.exec_command("hostname", timeout=10)
        assert out.read() == b"gpu\n"
        with client.open_sftp() as sftp:
            assert sftp.normalize(".") == "/home/pi"


@pytest.mark.deep
def test_sudo_allows_what_the_sudoers_file_says_and_nothing_else(lab: Lab) -> None:
    lab.host("pi").sudoers("pi ALL=(root) NOPASSWD: /usr/local/sbin/tool")
    lab.host("pi").run(
        "printf '#!/bin/sh\\nid -u\\n' >/usr/local/sbin/tool && chmod 755 /usr/local/sbin/tool"
    )
    assert ssh(lab, "pi", "sudo -n tool").stdout == "0\n"
    assert "password is required" in ssh(lab, "pi", "sudo -n id").stderr
    assert ssh(lab, "gpu", "sudo -n tool; ls /usr/local/sbin/tool").returncode != 0
    with pytest.raises(ValueError, match="sudoers"):
        lab.host("pi").sudoers("pi may do as he likes")
    lab.host("pi").sudoers("")
    assert "password is required" in ssh(lab, "pi", "sudo -n tool").stderr


def test_what_root_does_on_a_host_stays_there(lab: Lab) -> None:
    files = [Path("/etc", name) for name in ("passwd", "shadow", "group", "sudoers", "hosts", "hostname")]
    folders = [Path("/", part) for part in (*OWN, *MIRRORED, *EMPTY_AT_BOOT)]
    before = [path.read_bytes() for path in files]
    for folder in folders:
        lab.host("pi").run(f"touch {folder}/made-in-a-lab {folder}/passwd; rm -f {folder}/hosts")
        assert not (folder / "made-in-a-lab").exists()
        with pytest.raises(LabError, match="No such file"):
            lab.host("gpu").run(f"ls {folder}/made-in-a-lab")
    for untouchable in ("/usr/bin", "/var/lib", REPOSITORY, sys.prefix):
        with pytest.raises(LabError, match="Read-only"):
            lab.host("pi").run(f"touch {untouchable}/made-in-a-lab")
    assert [path.read_bytes() for path in files] == before


@pytest.mark.deep
def test_the_user_can_run_the_repositorys_python(lab: Lab) -> None:
    code = "import torch, pareto.remote.worker; print(torch.ones(2).sum().item())"
    done = ssh(lab, "pi", f"cd {REPOSITORY} && {sys.executable} -c '{code}'")
    assert done.stdout == "2.0\n", done.stderr


def test_folders_that_only_root_may_pass_are_covered(tmp_path: Path) -> None:
    shut, inner = tmp_path / "shut", tmp_path / "shut" / "open" / "shut"
    wanted = inner / "repository"
    wanted.mkdir(parents=True)
    inner.chmod(0o700)
    # pytest's own folders are shut as well.
    above = hidden([tmp_path / "shut"], [])
    assert hidden([wanted], []) == (above or [inner])
    assert hidden([wanted], [shut]) == above
    assert hidden([wanted], [inner]) == above


@pytest.mark.deep
def test_the_hosts_see_their_own_processes_and_interfaces_only(lab: Lab) -> None:
    assert ssh(lab, "pi", "ls /sys/class/net").stdout.split() == ["data0", "lo", "mgmt0"]
    assert ssh(lab, "pi", "cat /proc/1/comm").stdout == "sshd\n"
    with session(lab, "gpu") as process:
        assert lab.host("pi").pids("sleep 1000") == []
        (pid,) = lab.host("gpu").pids("sleep 1000")
        os.kill(pid, signal.SIGKILL)
        process.wait(10)
    assert lab.host("gpu").pids("sleep 1000") == []


TALK = """
import select, socket
link = socket.create_connection(("{address}", 22), 5)
print(link.recv(4), flush=True)
input()
link.sendall(b"SSH-2.0-lab\\r\\n")
while select.select([link], [], [], 0.5)[0] and link.recv(4096): pass
print("silence", flush=True)
input()
link.sendall(b"\\0" * 1000)
print("again" if select.select([link], [], [], 20)[0] else "still silence", flush=True)
"""


@pytest.mark.deep
def test_the_data_link_goes_down_and_comes_back_under_a_connection(lab: Lab) -> None:
    pi = lab.host("pi")
    talk = TALK.format(address=lab.host("gpu").data_address)
    argv = [*pi.argv('exec python3 -c "$CODE"', "pi")]
    argv[argv.index("env") + 2 : argv.index("env") + 2] = [f"CODE={talk}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "b'SSH-'\n"
        routes = pi.run("ip route show dev data0").split("linkdown")[0].strip()
        lab.link_down()
        assert pi.run("cat /sys/class/net/data0/carrier") == "0\n"
        assert pi.run("ip route show dev data0").split("linkdown")[0].strip() == routes
        print("send", file=process.stdin, flush=True)
        assert process.stdout.readline() == "silence\n"
        assert ssh(lab, "pi", "true").returncode == 0
        lab.link_up()
        print("send", file=process.stdin, flush=True)
        assert process.stdout.readline() == "again\n"


@pytest.mark.deep
def test_an_unplugged_host_falls_silent_and_answers_when_it_is_plugged_in_again(lab: Lab) -> None:
    with session(lab, "gpu") as process:
        lab.host("gpu").unplug()
        _, errors = process.communicate(timeout=20)
        assert "not responding" in errors
    assert ssh(lab, "gpu", "true", *QUICKLY).returncode == 255
    lab.host("gpu").plug()
    assert wait_until(lambda: ssh(lab, "gpu", "true", *PATIENTLY).returncode == 0)


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


@pytest.mark.deep
def test_a_changed_host_key_is_refused_until_it_is_known(lab: Lab) -> None:
    with session(lab, "gpu", ()) as process:
        before = lab.host("gpu").host_key
        assert lab.host("gpu").change_host_key() != before
        refused = ssh(lab, "gpu", "true")
        assert refused.returncode == 255
        assert "IDENTIFICATION HAS CHANGED" in refused.stderr
        lab.know_hosts()
        assert ssh(lab, "gpu", "true").returncode == 0
        assert process.poll() is None
        process.kill()


@pytest.mark.deep
def test_a_small_disk_is_full_until_room_is_made(lab: Lab) -> None:
    pi = lab.host("pi")
    pi.small_disk(".pareto", "1m")
    filling = pi.fill(".pareto")
    assert "No space left" in ssh(lab, "pi", "head -c 8192 /dev/zero >.pareto/more").stderr
    assert ssh(lab, "pi", f"rm {filling} && head -c 8192 /dev/zero >.pareto/more").returncode == 0
    with pytest.raises(LabError):
        pi.fill(".")


@pytest.mark.deep
def test_with_a_jump_host_gpu_is_reached_through_it_only(tmp_path: Path) -> None:
    with open_lab(tmp_path, jump=True) as lab:
        assert ssh(lab, "gpu", "hostname").stdout == "gpu\n"
        assert ssh(lab, "jump", "hostname").stdout == "jump\n"
        assert ssh(lab, "gpu", "true", "-o", "ProxyJump=none", *QUICKLY).returncode == 255
        lab.host("jump").power_off()
        assert ssh(lab, "gpu", "true", *QUICKLY).returncode == 255
        lab.host("jump").power_on()
        assert wait_until(lambda: ssh(lab, "gpu", "true", *PATIENTLY).returncode == 0)
    assert traces(lab) == []


@pytest.mark.deep
def test_a_host_in_the_middle_of_one_network(tmp_path: Path) -> None:
    with open_lab(tmp_path, middle="lan") as lab:
        hosts = inventory.load(lab.testbed()).roles
        assert {role: host.name for role, host in hosts.items()} == {
            "edge": "pi",
            "middle1": "mid",
            "server": "gpu",
        }
        for name in ("pi", "gpu"):
            reach = f"exec 3<>/dev/tcp/{lab.host(name).data_address}/9"
            assert "Connection refused" in ssh(lab, "mid", reach).stderr
        lab.host("mid").power_off()
        lab.host("mid").power_on()
        lab.wait_for_link()
        assert "Connection refused" in ssh(lab, "mid", reach).stderr
    assert traces(lab) == []


@pytest.mark.deep
def test_the_testbed_file_is_one_that_is_understood(lab: Lab) -> None:
    hosts = inventory.load(lab.testbed(gpu={"threads": 2, "python": None})).roles
    assert [(role, host.name, host.threads) for role, host in hosts.items()] == [
        ("edge", "pi", 1),
        ("server", "gpu", 2),
    ]
    assert hosts["edge"].python == sys.executable
    assert hosts["server"].python == ""
    assert lab.environment["HOME"] == str(lab.home)


@pytest.mark.deep
def test_two_labs_do_not_meet(tmp_path: Path) -> None:
    with open_lab(tmp_path / "one") as one, open_lab(tmp_path / "two") as two:
        assert len({host.address for lab in (one, two) for host in lab.hosts.values()}) == 4
        for lab in (one, two):
            assert ssh(lab, "pi", "hostname").stdout == "pi\n"
        assert ssh(one, "pi", "touch here").returncode == 0
        assert ssh(two, "pi", "ls here").returncode != 0


def test_nothing_is_left_whatever_happens_inside(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_lab(tmp_path) as lab:
        pids = [pid for host in lab.hosts.values() for pid in host.pids()]
        with session(lab, "pi"):
            lab.host("gpu").power_off()
            assert traces(lab) != []
            raise KeyboardInterrupt
    assert traces(lab) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


KILLED = """
import sys, time
from pathlib import Path
from tests.lab import open_lab
with open_lab(Path(sys.argv[1])) as lab:
    print(*[pid for host in lab.hosts.values() for pid in host.pids()], flush=True)
    time.sleep(600)
"""


@pytest.mark.deep
def test_the_next_lab_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        process.kill()
    assert len(pids) >= 2
    assert wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids))
    with open_lab(tmp_path / "next") as lab:
        assert not (tmp_path / "killed" / "disks").exists()
        assert ssh(lab, "pi", "hostname").stdout == "pi\n"
    assert traces(lab) == []


@pytest.mark.deep
def test_by_hand(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.lab"]
    with subprocess.Popen(
        argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if "takes all of it away" in line:
                break
        (command,) = [line for line in said if line.startswith("ssh ")]
        done = subprocess.run([*command.split(), "hostname"], capture_output=True, text=True, check=False)
        assert done.stdout == "pi\n", done.stderr
        process.communicate(timeout=20)
    assert process.returncode == 0
