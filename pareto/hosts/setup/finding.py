"""Findings of a host's examination; here on its Python, the worker's packages and its GPU."""

from __future__ import annotations

import hashlib
import re
import shlex
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.requirements import Requirement

from pareto import COMMAND, DATA
from pareto.hosts.inventory import HostEntry, Side

REQUIREMENTS = DATA / "requirements-worker.txt"
OF_ENGINES = DATA / "requirements-onnx.txt"
"""The file of the packages that engines need."""
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
"""The interpreters to look for, in this order."""
OLDEST_CUDA = 12
"""The oldest version that today's builds of torch are for."""
TESTED = ("torch", "torchvision")
"""Packages of which another version computes something else, or nothing."""
NOT_EVERYWHERE = ("pyroute2", "nvidia-ml-py", "blosc2", "lz4", "zstandard")
"""Packages for shaping as root, for a GPU's power, and for codecs: an interpreter of the user's own may lack them."""
RED_HATS = ("fedora", "rhel", "centos", "rocky", "almalinux")


@dataclass(frozen=True)
class Finding:
    """`fix` is the command or the step that helps; empty where nothing is wrong. fatal: no sweep runs until then."""

    what: str
    words: str
    fix: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Case:
    """A host under examination: its entry in `testbed`, its sides of links, its facts; None: not to be had."""

    entry: HostEntry
    sides: tuple[Side, ...]
    facts: Mapping[str, Any]
    testbed: str

    def __getitem__(self, fact: str) -> Any:
        return self.facts.get(fact)

    def owners(self, address: str) -> list[str]:
        """The interfaces that have an address."""
        there = self["interfaces"] or ()
        return [one["name"] for one in there if address in (ip.partition("/")[0] for ip in one["addresses"])]

    def interface(self, side: Side) -> str:
        """The interface that the file names, else the one that has the address; empty where none has."""
        return side.interface or next(iter(self.owners(side.address)), "")

    @property
    def set_up(self) -> str:
        """The command that installs everything that is missing."""
        return f"{COMMAND} hosts setup --testbed {self.testbed}"

    def install(self, package: str) -> str:
        """The command that installs a package of the distribution's."""
        if self["system"] in RED_HATS:
            return f"sudo dnf install -y {package}"
        return f"sudo apt-get install -y {package}" + (" python3-venv" if package == "python3" else "")


def digest(wanted: bytes) -> str:
    """The content of the file beside requirements that are installed."""
    return hashlib.sha256(wanted).hexdigest()


def of_engines(device: str) -> bytes:
    """The requirements of engines on that device."""
    wanted = OF_ENGINES.read_bytes()
    return wanted if device == "cpu" else re.sub(rb"(?m)^onnxruntime==", b"onnxruntime-gpu==", wanted)


_PARSING = threading.Lock()
"""Hosts are looked at in threads, and Python 3.11 fails where two parse a literal at once (CPython's issue 106905)."""


def requirements(text: str) -> list[Requirement]:
    """The requirements in the text of a file for pip."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    with _PARSING:
        return [Requirement(line) for line in lines if line]


def _pinned(case: Case) -> dict[str, str]:
    """The host's requirements by name, as pip takes them."""
    here = {"python_version": ".".join(map(str, _numbers(str(case["python"]))))}
    wanted = requirements(REQUIREMENTS.read_text())
    wanted = [one for one in wanted if not one.marker or one.marker.evaluate(here)]
    return {one.name: f"{one.name}{one.specifier}" for one in wanted}


def of_python(case: Case) -> Iterator[Finding]:
    """Python's version and the packages; or why no Python works."""
    version, own = case["python"], case.entry.python
    if version is not None and _numbers(version) >= (3, 10):
        yield Finding("python", f"{version} ({case['executable']})")
        yield from _packages(case)
        return
    if version is not None:
        words = f"{version} is too old: 3.10 or later is needed"
        fix = "upgrade the system: Debian 12, Raspberry Pi OS 12 and Ubuntu 22.04 have one"
        if case["system"] == "ubuntu":
            newer = case.install("python3.12 python3.12-venv")
            fix = f"sudo add-apt-repository -y ppa:deadsnakes/ppa && {newer}"
    elif case["fault"]:
        words, fix = f"{own or 'python3'} does not work: {case['fault']}", case.set_up
    elif own:
        words, fix = f"there is no {own}", f"leave python: out of {case.testbed}, then {case.set_up}"
    else:
        words, fix = "there is no python3", case.install("python3")
    yield Finding("python", words, fix, fatal=True)


def _packages(case: Case) -> Iterator[Finding]:
    there, pinned, python = case["packages"] or {}, _pinned(case), case.entry.python
    missing = [name for name in pinned if name not in NOT_EVERYWHERE and not there.get(name)]
    # Root starts the program that shapes the link from the code that travels, without a pyroute2 of its own.
    missing += ["pyroute2"] if case["uid"] == 0 and not there.get("pyroute2") else []

    def install(*names: str) -> str:
        pins = shlex.join(pinned[name] for name in names)
        return f"{shlex.quote(python)} -m pip install {pins}" if python else case.set_up

    if missing:
        names = ", ".join(missing)
        words = f"{python} lacks {names}" if python else f"not set up: {names} missing"
        yield Finding("packages", words, install(*missing), fatal=True)
        return
    others = [name for name in TESTED if f"{name}=={_public(there[name])}" != pinned[name]]
    for name in others:
        tested = pinned[name].removeprefix(f"{name}==")
        yield Finding("packages", f"{name} {there[name]}, and {tested} is what is tested", install(name))
    if not others and not python and case["requirements"] != digest(REQUIREMENTS.read_bytes()):
        words = "set up for other versions of the packages than are asked for now"
        yield Finding("packages", words, case.set_up)
    elif not others:
        yield Finding("packages", ", ".join(f"{name} {there[name]}" for name in TESTED))
    if case.entry.device.startswith("cuda") and not there.get("nvidia-ml-py"):
        fix = f"{case['executable']} -m pip install nvidia-ml-py"
        yield Finding("packages", "without nvidia-ml-py the GPU's power and load are not measured", fix)


def of_gpu(case: Case) -> Iterator[Finding]:
    """Whether torch can use the GPU that the testbed's file names."""
    for each in case["gpus"] or ():
        yield Finding("gpu", f"{each['name']}, {each['memory']}, driver {each['driver']}")
    kind, _, index = case.entry.device.partition(":")
    if kind != "cuda":
        return
    built, device, name = case["torch_cuda"], case.entry.device, case.entry.name
    cuda = case["cuda"] or {"devices": 0, "version": "0"}
    count, version, major = cuda["devices"], cuda["version"], _numbers(cuda["version"])[0]
    new_driver = f"{case.install('nvidia-driver')} && sudo reboot"
    if case["system"] == "ubuntu":
        new_driver = "sudo ubuntu-drivers install && sudo reboot"
    if not count:
        words, fix = f"device is {device}, and there is no NVIDIA driver that works", new_driver
    elif int(index) >= count:
        words = f"device is {device}, there is {', '.join(f'cuda:{number}' for number in range(count))}"
        fix = f"say device: cuda:0 for {name} in {case.testbed}"
    elif not (case["packages"] or {}).get("torch"):
        return  # `_packages` says so
    elif built and _numbers(built)[0] <= major:
        yield Finding("gpu", f"torch for CUDA {built}, driver with CUDA {version}")
        return
    else:
        words, fix = "torch is built without CUDA", new_driver
        if built:
            words = f"torch is built for CUDA {built}, and the driver has {version}"
        # CUDA promises that a program built for an early release of a major version runs with all its later drivers.
        builds = f"an index with builds for CUDA {major} (PyTorch's installation page names it)"
        if major < OLDEST_CUDA:
            words += ": a newer driver is needed"
        elif case.entry.python:
            pins = " ".join(_pinned(case)[name] for name in TESTED)
            words += f"; INDEX is {builds}"
            python = shlex.quote(case.entry.python)
            fix = f"{python} -m pip install --force-reinstall {pins} --index-url INDEX"
        else:
            words += f"; say pip_index: under {name} in {case.testbed}, {builds}, then"
            fix = case.set_up
    yield Finding("gpu", words, fix, fatal=True)


def differences(facts: Mapping[str, Mapping[str, Any]], testbed: str) -> Iterator[Finding]:
    """Findings on versions that are not the same on all hosts. facts: by the hosts' names."""
    for what in ("python", *TESTED):
        has = {name: each if what == "python" else each.get("packages") or {} for name, each in facts.items()}
        # `_packages` names the others.
        versions = {name: each[what] for name, each in has.items() if each.get(what)}
        words = f"{what} " + ", ".join(f"{version} on {name}" for name, version in versions.items())
        if what == "python" and len(set(map(_numbers, versions.values()))) > 1:
            yield Finding("versions", f"{words}: no matter")
        elif what != "python" and len(set(map(_public, versions.values()))) > 1:
            yield Finding("versions", words, f"{COMMAND} hosts setup --testbed {testbed}")


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _public(version: str) -> str:
    """Without the build: 2.13.0 of 2.13.0+cu130."""
    return version.partition("+")[0]
