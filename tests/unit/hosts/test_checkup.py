"""What a host's facts mean for a sweep: each fault by itself, with the command that mends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pareto.hosts import checkup, packages
from pareto.hosts.finding import Finding
from pareto.hosts.inventory import Member, Side
from tests.unit import checkup_facts
from tests.unit.checkup_facts import DIGEST, GPU, NOW_S, PI, interface

SET_UP = "./pareto.sh hosts setup --testbed lab.yaml"
SUDOERS = "echo 'pi ALL=(root) NOPASSWD: /usr/local/sbin/pareto-link' | sudo tee -a /etc/sudoers.d/pareto"
ROUTE = "sudo ip route replace 192.168.7.1 dev eth0 src 192.168.7.2"
LOOPBACK = interface("lo", "127.0.0.1/8")


def side(member: Member) -> Side:
    """Of the one link between the two hosts."""
    peer = GPU.data_address if member.name == "pi" else PI.data_address
    return Side(member.data_address, member.data_interface, peer)


def judged(facts: dict[str, Any], member: Member = PI, *, shaped: bool = True) -> list[Finding]:
    return checkup.findings(
        member, (side(member),), facts, shaped=shaped, helper_digest=DIGEST, now_s=NOW_S, testbed="lab.yaml"
    )


def the_one(facts: dict[str, Any], member: Member = PI, *, shaped: bool = True) -> Finding:
    """The only finding that is not fine."""
    (found,) = [one for one in judged(facts, member, shaped=shaped) if one.mend or one.fatal]
    return found


def without(package: str) -> dict[str, Any]:
    return {**checkup_facts.pi()["packages"], package: None}


def other(package: str, version: str) -> dict[str, Any]:
    return {**checkup_facts.pi()["packages"], package: version}


@pytest.mark.parametrize(("facts", "member"), [(checkup_facts.pi(), PI), (checkup_facts.gpu(), GPU)])
def test_of_healthy_hosts_all_that_was_looked_at_is_said(facts: dict[str, Any], member: Member) -> None:
    found = judged(facts, member)
    assert [one for one in found if one.mend or one.fatal] == []
    whats = {one.what for one in found}
    looked_at = "python packages netem rights route listening disk memory governor clock tcp"
    assert whats >= {*looked_at.split(), "data link"}
    assert ("gpu" in whats, "energy" in whats, "throttling" in whats) == (
        (True, True, False) if member is GPU else (False, False, True)
    )


FATAL = [
    ({"python": "3.9.2"}, "python", "3.9.2 is too old", "upgrade the system: Debian 12"),
    ({"python": "3.8.10", "system": "ubuntu"}, "python", "3.8.10 is too old", "ppa:deadsnakes/ppa"),
    ({"packages": without("torch")}, "packages", "not set up: torch missing", SET_UP),
    ({"packages": without("psutil")}, "packages", "not set up: psutil missing", SET_UP),
    ({"packages": None}, "packages", "torch, torchvision, safetensors, psutil, numpy missing", SET_UP),
    ({"packages": without("pyroute2"), "uid": 0}, "packages", "pyroute2 missing", SET_UP),
    ({"netem_supported": False}, "netem", "does not load", "sudo modprobe sch_netem"),
    ({"netem_supported": False, "netem": None}, "netem", "modules of the kernel", "sudo reboot"),
    (
        {"netem_supported": None, "netem": "absent", "board": None},
        "netem",
        "has no sch_netem",
        "sudo apt-get install -y linux-image-arm64 && sudo reboot",
    ),
    (
        {"netem_supported": False, "netem": "absent", "system": "ubuntu", "kernel": "6.8.0-60-generic"},
        "netem",
        "has no sch_netem",
        "sudo apt-get install -y linux-modules-extra-6.8.0-60-generic",
    ),
    (
        {"privileged": {"sudo": True, "installed": False, "allowed": None, "digest": None, "words": ""}},
        "rights",
        "is not installed",
        SET_UP,
    ),
    (
        {"privileged": {"sudo": True, "installed": True, "allowed": True, "digest": "0ld", "words": ""}},
        "rights",
        "an older version",
        SET_UP,
    ),
    (
        {"privileged": {"sudo": True, "installed": True, "allowed": False, "digest": None, "words": "no"}},
        "rights",
        "sudo does not let pi start /usr/local/sbin/pareto-link unasked",
        SUDOERS,
    ),
    (
        # sudo lists a command as allowed also where it would ask for a password first.
        {
            "privileged": {
                "sudo": True,
                "installed": True,
                "allowed": True,
                "digest": None,
                "words": "sudo: a password is required",
            }
        },
        "rights",
        "unasked",
        SUDOERS,
    ),
    (
        {
            "privileged": {
                "sudo": True,
                "installed": True,
                "allowed": True,
                "digest": None,
                "words": "cat: no",
            }
        },
        "rights",
        "does not work: cat: no",
        SET_UP,
    ),
    (
        {"privileged": {"sudo": False, "installed": False, "allowed": None, "digest": None, "words": ""}},
        "rights",
        "no sudo",
        "su -c 'apt-get install -y sudo'",
    ),
    ({"user": "MACHINE"}, "rights", "cannot stand in a line of sudoers", "say user: for pi"),
    (
        {"interfaces": [LOOPBACK, interface("wlan0", "10.0.0.17/24", wireless=True), interface("eth0")]},
        "data link",
        "192.168.7.2 is not on this host, which has 10.0.0.17/24 on wlan0",
        "sudo ip address add 192.168.7.2/24 dev eth0",
    ),
    ({"interfaces": [LOOPBACK]}, "data link", "which has none", "192.168.7.2/24 dev eth0"),
    (
        {"interfaces": [interface("eth0", "192.168.7.2/24", up=False)]},
        "data link",
        "eth0 is down",
        "sudo ip link set eth0 up",
    ),
    (
        {"interfaces": [interface("eth0", "192.168.7.2/24", carrier=False)]},
        "data link",
        "no carrier",
        "plug in the cable of eth0",
    ),
    ({"routes": {"192.168.7.1": None}}, "route", "no route to 192.168.7.1", ROUTE),
    (
        {"routes": {"192.168.7.1": {"source": "10.0.0.17", "interface": "wlan0"}}},
        "route",
        "leave through wlan0 (10.0.0.17), not through eth0",
        ROUTE,
    ),
    (
        {"routes": {"192.168.7.1": {"source": "192.168.7.1", "interface": "lo"}}},
        "route",
        "192.168.7.1 is an address of this host itself",
        "say the other host's own data_address in lab.yaml",
    ),
    ({"listens": "Permission denied"}, "listening", "Permission denied", "ip address show dev eth0"),
    ({"disk_free_bytes": 150_000_000}, "disk", "0.1 GB free", "sudo apt-get clean"),
]


@pytest.mark.parametrize(("changed", "what", "words", "mend"), FATAL)
def test_what_no_sweep_runs_with(changed: dict[str, Any], what: str, words: str, mend: str) -> None:
    found = [one for one in judged(checkup_facts.pi(**changed)) if one.fatal]
    (one,) = found
    assert one.what == what
    assert words in one.words
    assert mend in one.mend


WARNINGS = [
    ({"packages": other("torch", "2.12.1+cpu")}, "packages", "torch 2.12.1+cpu, and 2.13.0 is", SET_UP),
    ({"packages": other("torchvision", "0.27.0")}, "packages", "torchvision 0.27.0, and 0.28.0 is", SET_UP),
    ({"requirements": "0ther"}, "packages", "set up for other versions", SET_UP),
    (
        {"netem_supported": None, "netem": None},
        "netem",
        "cannot be seen",
        "sudo modprobe sch_netem",
    ),
    (
        {"left_shaped": ["eth0"]},
        "left behind",
        "eth0 is still shaped",
        "./pareto.sh doctor --testbed lab.yaml",
    ),
    ({"disk_free_bytes": 900_000_000}, "disk", "0.9 GB free", "sort -h"),
    ({"memory_available_bytes": 300 << 20}, "memory", "0.3 GiB available of 8.0", "ps -eo"),
    (
        {"governors": ["ondemand", "performance"]},
        "governor",
        "ondemand, performance",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ),
    (
        {"throttled": 0x50005},
        "throttling",
        "right now: under-voltage, throttled",
        "power supply",
    ),
    ({"throttled": 0x80008}, "throttling", "right now: soft temperature limit", "cool it"),
    (
        {"throttled": 0x10000},
        "throttling",
        "not now, but since it was started: under-voltage",
        "power supply",
    ),
    ({"vcgencmd": "denied", "throttled": None}, "sensors", "vcgencmd", "sudo usermod -aG video pi"),
    (
        {"rapl": "unreadable"},
        "energy",
        "RAPL",
        "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj",
    ),
    ({"clock_s": NOW_S + 12}, "clock", "12 s ahead of", "sudo timedatectl set-ntp true"),
    ({"clock_s": NOW_S - 3600}, "clock", "3600 s behind", "sudo timedatectl set-ntp true"),
    (
        {"slow_start_after_idle": 1},
        "tcp",
        "cubic congestion control; after each pause",
        "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
    ),
    (
        {"interfaces": [interface("eth0", "192.168.7.2/24", wireless=True)]},
        "data link",
        "eth0 is wireless",
        "by a cable",
    ),
]


@pytest.mark.parametrize(("changed", "what", "words", "mend"), WARNINGS)
def test_what_a_sweep_runs_with_all_the_same(
    changed: dict[str, Any], what: str, words: str, mend: str
) -> None:
    one = the_one(checkup_facts.pi(**changed))
    assert (one.what, one.fatal) == (what, False)
    assert words in one.words
    assert mend in one.mend


def test_what_a_killed_run_left_matters_where_nothing_will_put_it_back() -> None:
    facts = checkup_facts.pi(left_shaped=["eth0"])
    assert not the_one(facts, shaped=True).fatal
    assert the_one(facts, shaped=False).fatal


BUILD_CUDA_12 = "pip_index: under gpu in lab.yaml, an index with builds for CUDA 12"


@pytest.mark.parametrize(
    ("changed", "device", "words", "mend"),
    [
        ({"cuda": None, "gpus": None}, "cuda:0", "no NVIDIA driver", "sudo ubuntu-drivers install"),
        ({"cuda": {"devices": 0, "version": "0.0"}}, "cuda:0", "no NVIDIA driver", "ubuntu-drivers"),
        ({"cuda": None, "system": "debian"}, "cuda:0", "no NVIDIA", "apt-get install -y nvidia-driver"),
        ({}, "cuda:1", "device is cuda:1, there is cuda:0", "say device: cuda:0 for gpu in lab.yaml"),
        ({"torch_cuda": None}, "cuda:0", f"without CUDA; say {BUILD_CUDA_12}", SET_UP),
        (
            {"torch_cuda": "13.0"},
            "cuda:0",
            f"CUDA 13.0, and the driver has 12.4; say {BUILD_CUDA_12}",
            SET_UP,
        ),
        (
            {"torch_cuda": "13.0", "cuda": {"devices": 1, "version": "11.4"}},
            "cuda:0",
            "a newer driver is needed",
            "sudo ubuntu-drivers install",
        ),
    ],
)
def test_a_gpu_that_torch_cannot_use(changed: dict[str, Any], device: str, words: str, mend: str) -> None:
    one = the_one({**checkup_facts.gpu(), **changed}, replace(GPU, device=device))
    assert (one.what, one.fatal) == ("gpu", True)
    assert words in one.words
    assert mend in one.mend


def test_a_gpu_is_of_no_interest_to_a_host_that_computes_on_its_processor() -> None:
    facts = {**checkup_facts.gpu(), "cuda": None, "torch_cuda": None}
    assert [one for one in judged(facts, replace(GPU, device="cpu")) if one.mend] == []


def test_an_early_cuda_of_the_same_major_version_will_do() -> None:
    facts = {**checkup_facts.gpu(), "torch_cuda": "12.6", "cuda": {"devices": 2, "version": "12.2"}}
    assert [one for one in judged(facts, replace(GPU, device="cuda:1")) if one.mend] == []


def test_a_gpu_whose_power_cannot_be_measured() -> None:
    facts = checkup_facts.gpu()
    facts["packages"] = {**facts["packages"], "nvidia-ml-py": None}
    one = the_one(facts, GPU)
    assert (one.what, one.fatal) == ("packages", False)
    assert one.mend == "/home/ada/.pareto/venv/bin/python -m pip install nvidia-ml-py"


@pytest.mark.parametrize(
    "changed",
    [
        {"netem_supported": False, "netem": "absent"},
        {"netem_supported": False, "netem": "module"},
        {"netem_supported": False, "netem": None},
        {"privileged": {"sudo": False}},
        {"privileged": None},
    ],
)
def test_a_link_that_is_not_shaped_needs_neither_netem_nor_root(changed: dict[str, Any]) -> None:
    assert the_one(checkup_facts.pi(**changed), shaped=True).fatal
    assert not the_one(checkup_facts.pi(**changed), shaped=False).fatal


def test_root_needs_no_sudo() -> None:
    facts = checkup_facts.pi(uid=0, user="root", privileged={"sudo": False, "installed": False})
    assert [one for one in judged(facts) if one.mend] == []


@pytest.mark.parametrize(
    ("facts", "member", "words", "mend"),
    [
        (
            {"python": None, "fault": ""},
            PI,
            "there is no python3",
            "sudo apt-get install -y python3 python3-venv",
        ),
        (
            {"python": None, "fault": ""},
            replace(PI, python="/opt/py"),
            "there is no /opt/py",
            "leave python: out",
        ),
        ({"python": None, "fault": "boom"}, PI, "python3 does not work: boom", SET_UP),
        ({"python": "3.6"}, PI, "3.6 is too old", "upgrade the system"),
    ],
)
def test_without_a_python_that_can_tell_nothing_else_is_said(
    facts: dict[str, Any], member: Member, words: str, mend: str
) -> None:
    (one,) = judged(facts, member)
    assert (one.what, one.fatal) == ("python", True)
    assert words in one.words
    assert mend in one.mend


def test_an_interpreter_that_the_user_named_is_the_users() -> None:
    named = replace(PI, python="/opt/my env/bin/python")
    facts = checkup_facts.pi(requirements=None)
    assert [one for one in judged(facts, named) if one.mend] == []
    one = the_one({**facts, "packages": without("torchvision")}, named)
    assert one.mend == "'/opt/my env/bin/python' -m pip install torchvision==0.28.0"
    one = the_one({**facts, "packages": other("torch", "2.9.0")}, named)
    assert one.mend == "'/opt/my env/bin/python' -m pip install torch==2.13.0"
    one = the_one({**checkup_facts.gpu(), "torch_cuda": None}, replace(GPU, python="/opt/python"))
    assert one.mend == (
        "/opt/python -m pip install --force-reinstall torch==2.13.0 torchvision==0.28.0 --index-url INDEX"
    )


def test_nothing_that_could_be_found_out_raises_nothing() -> None:
    told = dict.fromkeys(checkup_facts.pi())
    found = judged({**told, "python": "3.11.2", "uid": 1000, "user": "pi"})
    assert {one.what for one in found if one.fatal} == {"packages", "rights", "data link"}


def test_versions_that_differ_between_the_hosts() -> None:
    gpu = checkup_facts.gpu(python="3.12.3")
    (one,) = checkup.differences({"pi": checkup_facts.pi(), "gpu": gpu}, "lab.yaml")
    assert (one.words, one.mend) == ("python 3.11.2 on pi, 3.12.3 on gpu: no matter", "")
    gpu = checkup_facts.gpu()
    gpu["packages"] = {**gpu["packages"], "torch": "2.12.0+cu126", "torchvision": None}
    (one,) = checkup.differences({"pi": checkup_facts.pi(python="3.11.9"), "gpu": gpu}, "lab.yaml")
    assert (one.words, one.mend) == ("torch 2.13.0+cpu on pi, 2.12.0+cu126 on gpu", SET_UP)
    assert checkup.differences({"pi": {"python": None}, "gpu": gpu}, "lab.yaml") == []
    three = {"pi": checkup_facts.pi(), "mid": checkup_facts.pi(), "gpu": gpu}
    assert checkup.differences(three, "lab.yaml")[0].words == (
        "torch 2.13.0+cpu on pi, 2.13.0+cpu on mid, 2.12.0+cu126 on gpu"
    )


def test_the_versions_that_are_asked_for_are_the_workers() -> None:
    wanted = packages.REQUIREMENTS.read_text()
    healthy = checkup_facts.pi()["packages"]
    assert f"torch=={healthy['torch'].partition('+')[0]}\n" in wanted
    assert f"torchvision=={healthy['torchvision']}\n" in wanted
