"""Python, its packages, and whether torch can use the GPU that is asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pareto.hosts import packages
from pareto.hosts.checkup.case import Case
from pareto.hosts.finding import Finding

OLDEST_PYTHON = (3, 10)
OLDEST_CUDA = 12
"""What today's builds of torch are for."""
TESTED = ("torch", "torchvision")
"""Packages of which another version computes something else, or nothing."""


def no_python(case: Case) -> Finding:
    python, fault = case.member.python, case["fault"]
    if fault:
        return Finding("python", f"{python or 'python3'} does not work: {fault}", case.set_up, fatal=True)
    if python:
        without = f"leave python: out of {case.testbed}, then {case.set_up}"
        return Finding("python", f"there is no {python}", without, fatal=True)
    return Finding("python", "there is no python3", _install(case, "python3"), fatal=True)


def python(case: Case) -> Iterator[Finding]:
    version = str(case["python"])
    if _numbers(version) < OLDEST_PYTHON:
        yield Finding("python", f"{version} is too old: 3.10 or later is needed", _newer(case), fatal=True)
        return
    yield Finding("python", f"{version} ({case['executable']})")
    yield from _packages(case)


def gpu(case: Case) -> Iterator[Finding]:
    for each in case["gpus"] or ():
        yield Finding("gpu", f"{each['name']}, {each['memory']}, driver {each['driver']}")
    kind, _, index = case.member.device.partition(":")
    if kind != "cuda":
        return
    cuda, built, device = case["cuda"], case["torch_cuda"], case.member.device
    if cuda is None or not cuda["devices"]:
        words = f"device is {device}, and there is no NVIDIA driver that works"
        yield Finding("gpu", words, _driver(case), fatal=True)
    elif int(index) >= cuda["devices"]:
        there = ", ".join(f"cuda:{number}" for number in range(cuda["devices"]))
        mend = f"say device: {there.partition(',')[0]} for {case.member.name} in {case.testbed}"
        yield Finding("gpu", f"device is {device}, there is {there}", mend, fatal=True)
    elif not (case["packages"] or {}).get("torch"):
        return  # said already
    elif built is None:
        yield _other_build(case, "torch is built without CUDA", cuda["version"])
    elif _numbers(built)[0] > _numbers(cuda["version"])[0]:
        words = f"torch is built for CUDA {built}, and the driver has {cuda['version']}"
        yield _other_build(case, words, cuda["version"])
    else:
        yield Finding("gpu", f"torch for CUDA {built}, driver with CUDA {cuda['version']}")


def differences(facts: Mapping[str, Mapping[str, Any]], testbed: str) -> list[Finding]:
    """What is not the same on all hosts, `facts` by their names."""
    found = []
    for what in ("python", *TESTED):
        there = {
            name: version
            for name, told in facts.items()
            if (version := (told if what == "python" else told.get("packages") or {}).get(what))
        }  # of a host that lacks it that is said already
        words = f"{what} " + ", ".join(f"{version} on {name}" for name, version in there.items())
        if what == "python":
            if len({_numbers(version) for version in there.values()}) > 1:
                found.append(Finding("versions", f"{words}: no matter"))
        elif len({_public(version) for version in there.values()}) > 1:
            found.append(Finding("versions", words, f"./pareto.sh hosts setup --testbed {testbed}"))
    return found


def _packages(case: Case) -> Iterator[Finding]:
    there, pins = case["packages"] or {}, _pins()
    missing = [name for name in pins if name not in packages.NOT_EVERYWHERE and not there.get(name)]
    # As root there is no program with its own pyroute2: it runs from the code that travels.
    missing += ["pyroute2"] if case["uid"] == 0 and not there.get("pyroute2") else []
    given = case.member.python
    wanted = shlex.join([f"{name}=={pins[name]}" if pins.get(name) else name for name in missing])
    if missing and given:
        words = f"{given} lacks {', '.join(missing)}"
        yield Finding("packages", words, f"{shlex.quote(given)} -m pip install {wanted}", fatal=True)
        return
    if missing:
        words = f"not set up: {', '.join(missing)} missing"
        yield Finding("packages", words, case.set_up, fatal=True)
        return
    others = [name for name in TESTED if _public(there[name]) != pins[name]]
    for name in others:
        mend = f"{shlex.quote(given)} -m pip install {name}=={pins[name]}" if given else case.set_up
        yield Finding("packages", f"{name} {there[name]}, and {pins[name]} is what is tested", mend)
    if not others and not given and case["requirements"] != packages.wanted():
        words = "set up for other versions of the packages than are asked for now"
        yield Finding("packages", words, case.set_up)
    elif not others:
        yield Finding("packages", ", ".join(f"{name} {there[name]}" for name in TESTED))
    if case.member.device.startswith("cuda") and not there.get("nvidia-ml-py"):
        mend = f"{case['executable']} -m pip install nvidia-ml-py"
        yield Finding("packages", "without nvidia-ml-py the GPU's power and load are not measured", mend)


def _pins() -> dict[str, str]:
    """The worker's packages, with the version where it is the same for every Python."""
    found = re.findall(r"^([\w.-]+)==([^;\s]+)[ \t]*(;?)", packages.REQUIREMENTS.read_text(), re.MULTILINE)
    return {name: "" if marker else version for name, version, marker in found}


def _other_build(case: Case, words: str, version: str) -> Finding:
    """`version`: the newest CUDA that the driver has."""
    if _numbers(version)[0] < OLDEST_CUDA:
        return Finding("gpu", f"{words}: a newer driver is needed", _driver(case), fatal=True)
    given, wanted = case.member.python, " ".join(f"{name}=={_pins()[name]}" for name in TESTED)
    # CUDA promises that a program built for an early release of a major version runs with all its later drivers.
    index = f"an index with builds for CUDA {_numbers(version)[0]} (PyTorch's installation page names it)"
    if given:
        pip = f"{shlex.quote(given)} -m pip install --force-reinstall {wanted} --index-url INDEX"
        return Finding("gpu", f"{words}; INDEX is {index}", pip, fatal=True)
    place = f"under {case.member.name} in {case.testbed}"
    return Finding("gpu", f"{words}; say pip_index: {place}, {index}, then", case.set_up, fatal=True)


def _driver(case: Case) -> str:
    if case.system == "ubuntu":
        return "sudo ubuntu-drivers install && sudo reboot"
    return _install(case, "nvidia-driver") + " && sudo reboot"


def _newer(case: Case) -> str:
    if case.system == "ubuntu":
        return "sudo add-apt-repository -y ppa:deadsnakes/ppa && sudo apt-get install -y python3.12 python3.12-venv"
    return "upgrade the system: Debian 12, Raspberry Pi OS 12 and Ubuntu 22.04 have one"


def _install(case: Case, package: str) -> str:
    if case.system in ("fedora", "rhel", "centos", "rocky", "almalinux"):
        return f"sudo dnf install -y {package}"
    return f"sudo apt-get install -y {package}" + (" python3-venv" if package == "python3" else "")


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _public(version: str) -> str:
    """Without the build: 2.13.0 of 2.13.0+cu130."""
    return version.partition("+")[0]
