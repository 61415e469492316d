"""The program that tells a host's facts, run for real on this machine, and asked through a way to it."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts.connection import ThisMachine, Unreachable
from pareto.hosts.inventory import HostEntry, Side
from pareto.hosts.setup import checkup as judge
from pareto.remote.worker import checkup
from tests import REPOSITORY

ASKED = {
    "data_address": "127.0.0.1",
    "peers": ["127.0.0.9"],
    "device": "cpu",
    "folder": "/nowhere/.pareto",
    "launcher": "/nowhere/pareto-link",
}
SIDES = (Side("127.0.0.1", "", "127.0.0.9"),)
HERE = HostEntry("pi", "edge", "local", "127.0.0.1", python=sys.executable)
Tool = Callable[[str, str], Path]


def put(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a program by that name before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    return lambda name, script: put(tmp_path / "tools" / name, script)


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: root would start the privileged program, to ask what it can."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def told(*options: str) -> tuple[dict[str, Any], str]:
    """The facts of a program of its own, and its stderr."""
    done = subprocess.run(
        [sys.executable, *options, "-m", "pareto.remote.worker.checkup"],
        cwd=REPOSITORY,
        input=json.dumps(ASKED),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    facts: dict[str, Any] = json.loads(line)
    return facts, done.stderr


def now_s() -> float:
    """By the clock that another process reads, too: for an order."""
    return time.time()  # noqa: TID251


def test_what_this_machine_tells_by_nothing_heavy() -> None:
    before_s = now_s()
    facts, imported = told("-X", "importtime")
    modules = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "json" in modules
    assert not modules & {"torch", "numpy", "psutil", "pyroute2"}
    expected = {"python": platform.python_version(), "executable": sys.executable, "listens": True}
    expected |= {"kernel": platform.release(), "uid": os.getuid(), "cuda": None}
    expected["routes"] = {"127.0.0.9": {"source": "127.0.0.1", "interface": "lo"}}
    assert {name: facts[name] for name in expected} == expected
    assert facts["packages"]["torch"].startswith("2.")
    assert facts["netem"] in ("loaded", "built in", "module", "absent", None)
    (loopback,) = (each for each in facts["interfaces"] if each["name"] == "lo")
    assert loopback["addresses"] == ["127.0.0.1/8"]
    assert (loopback["up"], loopback["carrier"], loopback["wireless"]) == (True, True, False)
    assert facts["disk_free_bytes"] > 1_000_000
    assert 1 << 28 < facts["memory_available_bytes"] <= facts["memory_bytes"]
    assert before_s <= facts["clock_s"] <= now_s()
    assert facts["privileged"]["installed"] is False


def test_it_needs_no_package_and_says_itself_that_a_python_is_too_old() -> None:
    facts, _ = told("-S")
    assert facts["python"] == platform.python_version()
    assert set(facts["packages"].values()) == {None}
    assert facts["torch_cuda"] is None
    assert facts["listens"] is True
    for file in (
        "remote/worker/checkup.py",
        *(f"{at}__init__.py" for at in ("remote/worker/", "remote/", "")),
    ):
        ast.parse((REPOSITORY / "pareto" / file).read_text(), feature_version=(3, 7))


def test_addresses_that_are_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets to an address of this host itself leave by no card."""
    monkeypatch.setattr(checkup, "_addresses", lambda: [("eth9", "127.0.0.1/8")])
    peers = ["127.0.0.1", "127.0.0.9", "no address"]
    facts = checkup.facts({**ASKED, "data_address": "203.0.113.77", "peers": peers})
    assert "assign" in facts["listens"]
    ways = [way and (way["source"], way["interface"]) for way in map(facts["routes"].get, peers)]
    assert ways == [("127.0.0.1", "lo"), ("127.0.0.1", "eth9"), None]


def test_whatever_a_host_lacks_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("strange")

    for name in ("run", "_read", "_addresses", "_route"):
        monkeypatch.setattr(checkup, name, fail)
    facts = checkup.facts({})
    assert (facts["python"], facts["interfaces"]) == (platform.python_version(), None)


def test_a_raspberry_pis_firmware_and_gpus(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    for script, said in (
        ("", ("absent", None)),
        ('[ "$1" = get_throttled ] && echo throttled=0x50005', ("readable", 0x50005)),
        ('echo "Can\'t open device file: /dev/vcio" >&2; exit 255', ("denied", None)),
    ):
        if script:
            tool("vcgencmd", script)
        facts = checkup.facts(ASKED)
        assert (facts["vcgencmd"], facts["throttled"]) == said
    tool("nvidia-smi", 'echo "NVIDIA RTX A4000, 550.54.14, 16376 MiB"')
    (gpu,) = checkup.facts(ASKED)["gpus"]
    assert gpu == {"name": "NVIDIA RTX A4000", "driver": "550.54.14", "memory": "16376 MiB"}
    tool("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    assert checkup.facts(ASKED)["gpus"] == []
    on_cuda = {**ASKED, "device": "cuda:1"}
    for script, cuda in (
        ("print(2, 12, 4)", {"devices": 2, "version": "12.4"}),
        ("import os; os.abort()", None),
    ):
        monkeypatch.setattr(checkup, "_ASK_CUDA", script)
        assert [checkup.facts(asked)["cuda"] for asked in (on_cuda, ASKED)] == [cuda, None]


def test_the_cuda_that_torch_was_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for line, cuda in (
        *(("cuda: Optional[str] = '12.6'", "12.6"), ("cuda = '13.0'", "13.0")),
        ("cuda: Optional[str] = None", None),
    ):
        (package / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip: Optional[str] = None\n")
        assert checkup.facts(ASKED)["torch_cuda"] == cuda


def test_what_sudo_lets_the_user_do(tool: Tool) -> None:
    launcher = tool("pareto-link", '[ "$1" = --digest ] && echo d1ge57 || echo True')
    asked = {**ASKED, "launcher": str(launcher)}
    tool("sudo", '[ "$1" = -n ] && shift; [ "$1" = -l ] && exit 0; exec "$@"')
    facts = checkup.facts(asked)
    allowed = {"sudo": True, "installed": True, "allowed": True, "digest": "d1ge57", "words": ""}
    assert (facts["privileged"], facts["netem_supported"]) == (allowed, True)
    assert checkup.facts(ASKED)["privileged"]["installed"] is False
    tool("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    facts = checkup.facts(asked)
    assert facts["privileged"]["digest"] is None
    assert facts["privileged"]["words"] == "sudo: a password is required"
    assert facts["netem_supported"] is None


def test_netem_by_the_files_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, str] = {}

    def read_text(path: Path, *_: object, **__: object) -> str:
        if str(path) not in files:
            raise FileNotFoundError
        return files[str(path)]

    monkeypatch.setattr(Path, "exists", lambda path: str(path) in files)
    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(Path, "read_bytes", read_text)
    monkeypatch.setattr(platform, "release", lambda: "6.12")
    assert checkup._netem() is None
    for path, text, found in (
        ("/boot/config-6.12", "CONFIG_NET_SCH_NETEM=m\n", None),
        ("/boot/config-6.12", "CONFIG_NET_SCH_NETEM=y\n", "built in"),
        ("/boot/config-6.12", "# CONFIG_NET_SCH_NETEM is not set\n", "absent"),
        ("/lib/modules/6.12/modules.dep", "kernel/net/sched/sch_netem.ko.xz:\n", "module"),
        ("/lib/modules/6.12/modules.dep", "kernel/net/sched/sch_tbf.ko:\n", "absent"),
        ("/lib/modules/6.12/modules.builtin", "kernel/net/sched/sch_netem.ko\n", "built in"),
        ("/sys/module/sch_netem", "", "loaded"),
    ):
        files[path] = text
        assert checkup._netem() == found


def test_what_a_living_program_shapes_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "JOURNAL", str(tmp_path))
    for name in ("4026531840-eth0.json", "4026531840-eth1.json", ".4026531840-eth2.json.17"):
        (tmp_path / name).write_text("{}")
    with (tmp_path / "4026531840-eth1.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert checkup.facts(ASKED)["left_shaped"] == ["eth0"]


def test_asked_over_a_way(tmp_path: Path) -> None:
    before_s = now_s()
    facts = judge.ask(ThisMachine(), replace(HERE, folder=str(tmp_path / "of it")), SIDES)
    assert -(now_s() - before_s) <= facts["clock_off_s"] <= 0
    assert facts["executable"] == sys.executable
    assert list(facts["routes"]) == ["127.0.0.9"]
    assert before_s <= facts["clock_s"] <= now_s()
    with pytest.raises(Unreachable):  # a folder that cannot be made
        judge.ask(ThisMachine(), replace(HERE, folder="/proc/none"), SIDES)
    # The environment that was set up goes before the system's Python.
    put(tmp_path / "venv/bin/python", f'touch {tmp_path}/used\nexec {sys.executable} "$@"')
    (tmp_path / "venv/.requirements").write_text("5ha")
    facts = judge.ask(ThisMachine(), replace(HERE, folder=str(tmp_path), python=""), SIDES)
    assert (tmp_path / "used").exists()
    assert facts["requirements"] == "5ha", "the stamp of what is installed"


PYTHONS = {
    "echo 'cannot open shared object file' >&2; exit 1": (None, "cannot open shared object file"),
    '[ "$1" = -c ] && exit 0; echo boom >&2; exit 1': (None, "boom"),
    '[ "$1" = -c ] && exit 0; echo "no JSON"': (None, "no JSON"),
    "exit 0": (None, "exit status 0"),
    "": (None, ""),  # it is not there
    """[ "$1" = -c ] || exit 1; echo '{"python": "3.6"}' >&2; exit 1""": (
        "3.6",
        None,
    ),  # older than the program
    # What a shell says when it starts is passed over.
    f'[ "$1" = -c ] || echo "Welcome to pi"; exec {sys.executable} "$@"': (platform.python_version(), None),
}


@pytest.mark.parametrize("script", PYTHONS)
def test_a_python_that_does_not_work_is_not_there_or_is_too_old(tmp_path: Path, script: str) -> None:
    python = tmp_path / "python"
    if script:
        put(python, script)
    facts = judge.ask(ThisMachine(), replace(HERE, folder=str(tmp_path), python=str(python)), SIDES)
    assert (facts["python"], facts.get("fault")) == PYTHONS[script]
    assert ("executable" in facts) == ("Welcome" in script)
