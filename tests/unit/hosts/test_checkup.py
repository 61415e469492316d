"""What a host's facts mean for a sweep: each fault by itself, with the command that mends it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.inventory import HostEntry, Side
from pareto.hosts.setup import checkup, finding
from pareto.hosts.setup.finding import Case, Finding
from tests.unit import checkup_facts
from tests.unit.checkup_facts import DIGEST, GPU, PI, interface

SET_UP = "./pareto.sh hosts setup --testbed lab.yaml"
LOOPBACK = interface("lo", "127.0.0.1/8")


@pytest.fixture(autouse=True)
def helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pareto.hosts.setup.privileged.digest", lambda: DIGEST)


def side(member: HostEntry) -> Side:
    """Of the one link between the two hosts."""
    peer = GPU.data_address if member.name == "pi" else PI.data_address
    return Side(member.data_address, member.data_interface, peer)


def judged(facts: dict[str, Any], member: HostEntry = PI, *, shaped: bool = True) -> list[Finding]:
    case = Case(member, (side(member),), facts, "lab.yaml")
    return [*checkup.findings(case, shaped=shaped)]


def the_one(facts: dict[str, Any], member: HostEntry = PI, *, shaped: bool = True) -> Finding:
    """The only finding that is not fine."""
    (found,) = [one for one in judged(facts, member, shaped=shaped) if one.fix or one.fatal]
    return found


def without(package: str) -> dict[str, Any]:
    return {**checkup_facts.pi()["packages"], package: None}


def other(package: str, version: str) -> dict[str, Any]:
    return {**checkup_facts.pi()["packages"], package: version}


def privileged(**changed: Any) -> dict[str, Any]:
    return {"privileged": {**checkup_facts.pi()["privileged"], **changed}}


FOUND: dict[str, dict[str, Any]] = {
    "python too old": {"python": "3.9.2"},
    "python too old on Ubuntu": {"python": "3.8.10", "system": "ubuntu"},
    "no torch": {"packages": without("torch")},
    "no psutil": {"packages": without("psutil")},
    "no packages": {"packages": None},
    "no pyroute2 for root": {"packages": without("pyroute2"), "uid": 0},
    "netem does not load": {"netem_supported": False},
    "modules are gone": {"netem_supported": False, "netem": None},
    "no netem": {"netem_supported": None, "netem": "absent", "board": None},
    "no netem on Ubuntu": {
        "netem_supported": False,
        "netem": "absent",
        "system": "ubuntu",
        "kernel": "6.8.0-60-generic",
    },
    "no helper": privileged(installed=False, allowed=None, digest=None),
    "old helper": privileged(digest="0ld"),
    "sudo says no": privileged(allowed=False, digest=None, words="no"),
    # sudo lists a command as allowed also where it would ask for a password first.
    "sudo asks": privileged(digest=None, words="sudo: a password is required"),
    "broken helper": privileged(digest=None, words="cat: no"),
    "no sudo": privileged(sudo=False, installed=False, allowed=None, digest=None),
    "user in capitals": {"user": "MACHINE"},
    "other address": {
        "interfaces": [LOOPBACK, interface("wlan0", "10.0.0.17/24", wireless=True), interface("eth0")]
    },
    "no address": {"interfaces": [LOOPBACK]},
    "interface down": {"interfaces": [interface("eth0", "192.168.7.2/24", up=False)]},
    "no cable": {"interfaces": [interface("eth0", "192.168.7.2/24", carrier=False)]},
    "no route": {"routes": {"192.168.7.1": None}},
    "other route": {"routes": {"192.168.7.1": {"source": "10.0.0.17", "interface": "wlan0"}}},
    "route to itself": {"routes": {"192.168.7.1": {"source": "192.168.7.1", "interface": "lo"}}},
    "cannot listen": {"listens": "Permission denied"},
    "disk full": {"disk_free_bytes": 150_000_000},
    "other torch": {"packages": other("torch", "2.12.1+cpu")},
    "other torchvision": {"packages": other("torchvision", "0.27.0")},
    "other requirements": {"requirements": "0ther"},
    "netem cannot be seen": {"netem_supported": None, "netem": None},
    "left behind": {"left_shaped": ["eth0"]},
    "disk almost full": {"disk_free_bytes": 900_000_000},
    "little memory": {"memory_available_bytes": 300 << 20},
    "governor": {"governors": ["ondemand", "performance"]},
    "throttled now": {"throttled": 0x50005},
    "hot now": {"throttled": 0x80008},
    "throttled before": {"throttled": 0x10000},
    "no vcgencmd": {"vcgencmd": "denied", "throttled": None},
    "no RAPL": {"rapl": "unreadable"},
    "clock ahead": {"clock_off_s": 12.0},
    "clock behind": {"clock_off_s": -3600.0},
    "slow start after idle": {"slow_start_after_idle": 1},
    "wireless": {"interfaces": [interface("eth0", "192.168.7.2/24", wireless=True)]},
}


def test_what_no_sweep_runs_with_and_what_one_runs_with_all_the_same(snapshot: SnapshotAssertion) -> None:
    said = {}
    for name, changed in FOUND.items():
        found = judged(checkup_facts.pi(**changed))
        (one,) = [one for one in found if one.fatal] or [one for one in found if one.fix]
        assert one.fix, name
        said[name] = f"{'fault' if one.fatal else 'fix'}: {one.what}: {one.words}: {one.fix}"
    assert said == snapshot


NO_GPU = {
    "no driver": ({"cuda": None, "gpus": None}, "cuda:0"),
    "no devices": ({"cuda": {"devices": 0, "version": "0.0"}}, "cuda:0"),
    "no driver on Debian": ({"cuda": None, "system": "debian"}, "cuda:0"),
    "no second device": ({}, "cuda:1"),
    "torch without CUDA": ({"torch_cuda": None}, "cuda:0"),
    "torch for a newer driver": ({"torch_cuda": "13.0"}, "cuda:0"),
    "driver too old": ({"torch_cuda": "13.0", "cuda": {"devices": 1, "version": "11.4"}}, "cuda:0"),
}


def test_a_gpu_torch_cannot_use(snapshot: SnapshotAssertion) -> None:
    said = {}
    for name, (changed, device) in NO_GPU.items():
        one = the_one({**checkup_facts.gpu(), **changed}, replace(GPU, device=device))
        assert (one.what, one.fatal, bool(one.fix)) == ("gpu", True, True), name
        said[name] = f"{one.words}: {one.fix}"
    assert said == snapshot


def test_nothing_to_mend() -> None:
    """No GPU where none is needed, an early CUDA of the same major version, root without sudo."""
    early = {"torch_cuda": "12.6", "cuda": {"devices": 2, "version": "12.2"}}
    root = {"uid": 0, "user": "root", **privileged(sudo=False, installed=False)}
    for member, device, changed in (
        (GPU, "cpu", {"cuda": None, "torch_cuda": None}),
        (GPU, "cuda:1", early),
        (PI, "cpu", root),
    ):
        facts = checkup_facts.gpu() if member is GPU else checkup_facts.pi()
        assert [one for one in judged({**facts, **changed}, replace(member, device=device)) if one.fix] == []
    # Nothing that could be found out raises nothing.
    told = dict.fromkeys(checkup_facts.pi())
    found = judged({**told, "python": "3.11.2", "uid": 1000, "user": "pi"})
    assert {one.what for one in found if one.fatal} == {"packages", "rights", "data link"}
    # A GPU whose power cannot be measured.
    facts = checkup_facts.gpu()
    facts["packages"] = {**facts["packages"], "nvidia-ml-py": None}
    one = the_one(facts, GPU)
    fix = f"{facts['executable']} -m pip install nvidia-ml-py"
    assert (one.what, one.fatal, one.fix) == ("packages", False, fix)
    # A link that is not shaped needs neither netem nor root.
    facts = checkup_facts.pi(netem_supported=False, netem="absent", privileged=None)
    assert [one.what for one in judged(facts, shaped=True) if one.fatal] == [*checkup.SHAPING]
    assert [one for one in judged(facts, shaped=False) if one.fix] == []
    # A killed run's leavings matter where nothing will put it back.
    facts = checkup_facts.pi(left_shaped=["eth0"])
    assert [the_one(facts, shaped=shaped).fatal for shaped in (True, False)] == [False, True]


def test_without_a_python_that_can_tell_nothing_else_is_said(snapshot: SnapshotAssertion) -> None:
    said = []
    for facts, member, named in (
        ({"python": None, "fault": ""}, PI, "python3"),
        ({"python": None, "fault": ""}, replace(PI, python="/opt/py"), "/opt/py"),
        ({"python": None, "fault": "boom"}, PI, "boom"),
        ({"python": "3.6"}, PI, "3.6"),
    ):
        (one,) = judged(facts, member)
        assert (one.what, one.fatal, bool(one.fix), named in one.words) == ("python", True, True, True)
        said.append([one.words, one.fix])
    assert said == snapshot


def test_an_interpreter_that_the_user_named_is_the_users() -> None:
    named = replace(PI, python="/opt/my env/bin/python")
    facts = checkup_facts.pi(requirements=None)
    assert [one for one in judged(facts, named) if one.fix] == []
    for packages, wanted in (
        (without("torchvision"), "torchvision==0.28.0"),
        (other("torch", "2.9.0"), "torch==2.13.0"),
    ):
        one = the_one({**facts, "packages": packages}, named)
        assert one.fix == f"'/opt/my env/bin/python' -m pip install {wanted}"
    one = the_one({**checkup_facts.gpu(), "torch_cuda": None}, replace(GPU, python="/opt/python"))
    assert one.fix == (
        "/opt/python -m pip install --force-reinstall torch==2.13.0 torchvision==0.28.0 --index-url INDEX"
    )


def test_versions_that_differ_between_the_hosts(snapshot: SnapshotAssertion) -> None:
    gpu = checkup_facts.gpu(python="3.12.3")
    (python,) = finding.differences({"pi": checkup_facts.pi(), "gpu": gpu}, "lab.yaml")
    assert python.fix == ""
    gpu = checkup_facts.gpu()
    gpu["packages"] = {**gpu["packages"], "torch": "2.12.0+cu126", "torchvision": None}
    (torch,) = finding.differences({"pi": checkup_facts.pi(python="3.11.9"), "gpu": gpu}, "lab.yaml")
    assert torch.fix == SET_UP
    assert list(finding.differences({"pi": {"python": None}, "gpu": gpu}, "lab.yaml")) == []
    three = {"pi": checkup_facts.pi(), "mid": checkup_facts.pi(), "gpu": gpu}
    (of_three,) = finding.differences(three, "lab.yaml")
    assert [each.words for each in (python, torch, of_three)] == snapshot


def test_the_versions_that_are_asked_for_are_the_workers() -> None:
    wanted, healthy = finding.REQUIREMENTS.read_text(), checkup_facts.pi()["packages"]
    assert f"torch=={healthy['torch'].partition('+')[0]}\n" in wanted
    assert f"torchvision=={healthy['torchvision']}\n" in wanted


def test_the_data_interface_is_the_one_with_the_address(snapshot: SnapshotAssertion) -> None:
    one = the_one(checkup_facts.pi(), replace(PI, data_interface="wlan0"))
    assert [one.what, one.fatal, one.words, one.fix] == snapshot
    own = side(PI)
    case = Case(PI, (), checkup_facts.pi(), "lab.yaml")
    sides = own, replace(own, interface="bond0"), replace(own, address="192.168.7.20")
    assert [case.interface(each) for each in sides] == ["eth0", "bond0", ""]
    assert Case(PI, (), {"interfaces": None}, "lab.yaml").interface(own) == ""
    # Both sides of a host in the middle.
    apart = between(BEFORE, AFTER)
    assert [one.what for one in apart] == ["data link", "route", "data link", "route", "listening"]
    assert not any(one.fatal for one in apart)
    together = between(BEFORE, replace(BEFORE, peer="192.168.7.1"), listens="no")
    assert [one.what for one in together] == ["data link", "route", "route", "listening"]
    assert [one.fatal for one in together] == [False, False, True, True]
    assert [[one.words for one in found] for found in (apart, together)] == snapshot
    # Faults on the side of the next host.
    wrong = replace(AFTER, interface="eth0"), replace(AFTER, peer="10.0.0.9")
    interface, route = (found for side in wrong for found in between(BEFORE, side) if found.fatal)
    assert (interface.what, route.what) == ("data link", "route")
    assert "next_interface: eth1 for mid in lab.yaml" in interface.fix
    assert [interface.words, interface.fix, route.words, route.fix] == snapshot


CARDS = [interface("eth0", "192.168.7.3/24"), interface("eth1", "192.168.8.3/24")]
WAYS = {
    "192.168.7.2": {"source": "192.168.7.3", "interface": "eth0"},
    "192.168.8.1": {"source": "192.168.8.3", "interface": "eth1"},
}
BEFORE, AFTER = Side("192.168.7.3", "", "192.168.7.2"), Side("192.168.8.3", "", "192.168.8.1")
MIDDLE = HostEntry("mid", "middle", "mid.lab", "192.168.7.3", next_address="192.168.8.3")


def between(*sides: Side, **changed: Any) -> list[Finding]:
    """What is found of the links of a host in the middle."""
    case = Case(MIDDLE, sides, checkup_facts.pi(interfaces=CARDS, routes=WAYS, **changed), "lab.yaml")
    of_links = ("data link", "route", "listening")
    return [one for one in checkup.findings(case, shaped=True) if one.what in of_links]


def test_threads_parse_requirements_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other within its parsing: together they would both go on."""
    both = threading.Barrier(2)

    def parsed(line: str) -> str:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.1)
            return "beside another"
        return "alone"

    monkeypatch.setattr(finding, "Requirement", parsed)
    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(finding.requirements, ["numpy", "torch"]))
    assert said == [["alone"], ["alone"]]
