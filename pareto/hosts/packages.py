"""Python and the worker's packages on a host: what is there (for the doctor), and a virtual environment made there."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pareto import COMMAND, DATA
from pareto.errors import UserError
from pareto.hosts.connection import Connection, Outcome
from pareto.hosts.finding import Case, Finding
from pareto.hosts.inventory import HostEntry

REQUIREMENTS = DATA / "requirements-worker.txt"
Say = Callable[[str], None]

PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
"""The interpreters to look for, in this order."""
OLDEST_PYTHON = (3, 10)
OLDEST_CUDA = 12
"""What today's builds of torch are for."""
TESTED = ("torch", "torchvision")
"""Packages of which another version computes something else, or nothing."""
NOT_EVERYWHERE = ("pyroute2", "nvidia-ml-py")
"""What shaping as root needs, and what reads a GPU's power: an interpreter of the user's own may lack them."""

_QUIET_S = 10.0
"""After this long without a word the user is told what still goes on."""
_LOST_S = 60.0
"""`_watched` makes itself heard every second."""


def digest(requirements: Path = REQUIREMENTS) -> str:
    """What `venv/.requirements` holds when everything is installed."""
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def _wanted(python: str, path: Path = REQUIREMENTS) -> Iterator[Requirement]:
    """The requirements of an interpreter of that version."""
    for line in path.read_text().splitlines():
        if text := line.partition("#")[0].strip():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                yield requirement


def _pinned(case: Case) -> dict[str, str]:
    """The host's requirements by name, as pip takes them."""
    version = ".".join(map(str, _numbers(str(case["python"]))))
    return {each.name: f"{each.name}{each.specifier}" for each in _wanted(version)}


# What the facts of a host mean


def no_python(case: Case) -> Finding:
    """Of a host without a Python that works."""
    python, fault = case.entry.python, case["fault"]
    if fault:
        return Finding("python", f"{python or 'python3'} does not work: {fault}", case.set_up, fatal=True)
    if python:
        without = f"leave python: out of {case.testbed}, then {case.set_up}"
        return Finding("python", f"there is no {python}", without, fatal=True)
    return Finding("python", "there is no python3", case.install("python3"), fatal=True)


def python(case: Case) -> Iterator[Finding]:
    """Python's version and the packages."""
    version = str(case["python"])
    if _numbers(version) >= OLDEST_PYTHON:
        yield Finding("python", f"{version} ({case['executable']})")
        yield from _packages(case)
        return
    fix = "upgrade the system: Debian 12, Raspberry Pi OS 12 and Ubuntu 22.04 have one"
    if case.system == "ubuntu":
        fix = "sudo add-apt-repository -y ppa:deadsnakes/ppa && sudo apt-get install -y python3.12 python3.12-venv"
    yield Finding("python", f"{version} is too old: 3.10 or later is needed", fix, fatal=True)


def _packages(case: Case) -> Iterator[Finding]:
    there, pinned = case["packages"] or {}, _pinned(case)
    missing = [name for name in pinned if name not in NOT_EVERYWHERE and not there.get(name)]
    # Root starts the program that shapes the link from the code that travels, without a pyroute2 of its own.
    missing += ["pyroute2"] if case["uid"] == 0 and not there.get("pyroute2") else []
    given = shlex.quote(case.entry.python)
    pip = f"{given} -m pip install"
    if missing and case.entry.python:
        words = f"{case.entry.python} lacks {', '.join(missing)}"
        fix = f"{pip} {shlex.join(pinned[name] for name in missing)}"
        yield Finding("packages", words, fix, fatal=True)
        return
    if missing:
        yield Finding("packages", f"not set up: {', '.join(missing)} missing", case.set_up, fatal=True)
        return
    others = [name for name in TESTED if f"{name}=={_public(there[name])}" != pinned[name]]
    for name in others:
        fix = f"{pip} {pinned[name]}" if case.entry.python else case.set_up
        tested = pinned[name].removeprefix(f"{name}==")
        yield Finding("packages", f"{name} {there[name]}, and {tested} is what is tested", fix)
    if not others and not case.entry.python and case["requirements"] != digest():
        words = "set up for other versions of the packages than are asked for now"
        yield Finding("packages", words, case.set_up)
    elif not others:
        yield Finding("packages", ", ".join(f"{name} {there[name]}" for name in TESTED))
    if case.entry.device.startswith("cuda") and not there.get("nvidia-ml-py"):
        fix = f"{case['executable']} -m pip install nvidia-ml-py"
        yield Finding("packages", "without nvidia-ml-py the GPU's power and load are not measured", fix)


def gpu(case: Case) -> Iterator[Finding]:
    """Whether torch can use the GPU that is asked for."""
    for each in case["gpus"] or ():
        yield Finding("gpu", f"{each['name']}, {each['memory']}, driver {each['driver']}")
    kind, _, index = case.entry.device.partition(":")
    if kind != "cuda":
        return
    cuda, built, device = case["cuda"], case["torch_cuda"], case.entry.device
    if cuda is None or not cuda["devices"]:
        words = f"device is {device}, and there is no NVIDIA driver that works"
        yield Finding("gpu", words, _driver(case), fatal=True)
    elif int(index) >= cuda["devices"]:
        there = ", ".join(f"cuda:{number}" for number in range(cuda["devices"]))
        fix = f"say device: {there.partition(',')[0]} for {case.entry.name} in {case.testbed}"
        yield Finding("gpu", f"device is {device}, there is {there}", fix, fatal=True)
    elif not (case["packages"] or {}).get("torch"):
        return  # `_packages` says so
    elif built is None:
        yield _other_build(case, "torch is built without CUDA", cuda["version"])
    elif _numbers(built)[0] > _numbers(cuda["version"])[0]:
        words = f"torch is built for CUDA {built}, and the driver has {cuda['version']}"
        yield _other_build(case, words, cuda["version"])
    else:
        yield Finding("gpu", f"torch for CUDA {built}, driver with CUDA {cuda['version']}")


def _other_build(case: Case, words: str, version: str) -> Finding:
    """`version`: the newest CUDA that the driver has."""
    if _numbers(version)[0] < OLDEST_CUDA:
        return Finding("gpu", f"{words}: a newer driver is needed", _driver(case), fatal=True)
    # CUDA promises that a program built for an early release of a major version runs with all its later drivers.
    index = f"an index with builds for CUDA {_numbers(version)[0]} (PyTorch's installation page names it)"
    if case.entry.python:
        pinned = " ".join(_pinned(case)[name] for name in TESTED)
        pip = f"{shlex.quote(case.entry.python)} -m pip install --force-reinstall {pinned} --index-url INDEX"
        return Finding("gpu", f"{words}; INDEX is {index}", pip, fatal=True)
    place = f"under {case.entry.name} in {case.testbed}"
    return Finding("gpu", f"{words}; say pip_index: {place}, {index}, then", case.set_up, fatal=True)


def _driver(case: Case) -> str:
    if case.system == "ubuntu":
        return "sudo ubuntu-drivers install && sudo reboot"
    return case.install("nvidia-driver") + " && sudo reboot"


def differences(facts: Mapping[str, Mapping[str, Any]], testbed: str) -> Iterator[Finding]:
    """What is not the same on all hosts, `facts` by their names."""
    for what in ("python", *TESTED):
        versions = {
            name: version
            for name, report in facts.items()
            if (version := (report if what == "python" else report.get("packages") or {}).get(what))
        }  # `_packages` names the hosts that lack it
        words = f"{what} " + ", ".join(f"{version} on {name}" for name, version in versions.items())
        if what == "python":
            if len({_numbers(version) for version in versions.values()}) > 1:
                yield Finding("versions", f"{words}: no matter")
        elif len({_public(version) for version in versions.values()}) > 1:
            yield Finding("versions", words, f"{COMMAND} hosts setup --testbed {testbed}")


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _public(version: str) -> str:
    """Without the build: 2.13.0 of 2.13.0+cu130."""
    return version.partition("+")[0]


# What `hosts setup` puts there


def provide(
    connection: Connection, entry: HostEntry, folder: str, say: Say, requirements: Path = REQUIREMENTS
) -> bool:
    """See to it that the host's interpreter has the packages; returns whether anything had to be done.

    Raises UserError, Unreachable. The next call goes on from what was done until then.
    """
    if entry.python:
        for line in _check_named(connection, entry.python, requirements):
            say(line)
        changed, python = False, entry.python
    else:
        changed, python = (
            _install(connection, entry, folder, say, requirements),
            f"{folder}/venv/bin/python",
        )
    if entry.device.startswith("cuda"):
        _check_cuda(connection, python, entry.device)
    return changed


def are_there(
    connection: Connection, entry: HostEntry, folder: str, requirements: Path = REQUIREMENTS
) -> bool:
    """Whether `provide` would find nothing to do. Raises Unreachable."""
    if entry.python:
        try:
            _check_named(connection, entry.python, requirements)
        except UserError:
            return False
        return True
    return _state(connection, entry, folder).get("stamp") == digest(requirements)


_INSTALLED = """
import importlib.metadata, json, sys
versions = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions() if each.metadata["Name"]}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "versions": versions}))
"""


def _check_named(connection: Connection, python: str, requirements: Path) -> list[str]:
    """A line for each package of another version than wanted. Raises UserError where one is missing."""
    outcome = connection.run(shlex.join([python, "-c", _INSTALLED]))
    if outcome.status != 0:
        raise UserError(f"python: {python} does not work there: {outcome.words}")
    report = json.loads(outcome.out)
    if _numbers(report["python"]) < OLDEST_PYTHON:
        raise UserError(f"python: {python} is Python {report['python']}: 3.10 or later is needed")
    versions = {canonicalize_name(name): version for name, version in report["versions"].items()}
    lines, missing = [], []
    for wanted in _wanted(report["python"], requirements):
        version = versions.get(canonicalize_name(wanted.name))
        if version is None and wanted.name not in NOT_EVERYWHERE:
            missing.append(f"{wanted.name}{wanted.specifier}")
        elif version is not None and not wanted.specifier.contains(version, prereleases=True):
            lines.append(f"{python} has {wanted.name} {version}, and {wanted.specifier} is what is tested")
    if missing:
        raise UserError(
            f"{python} lacks {', '.join(missing)}: install them there, or leave python: out of the testbed file"
        )
    return lines


_CUDA = """
import importlib.util, pathlib, runpy
folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent
print(runpy.run_path(str(folder / "version.py")).get("cuda") or "")
"""


def _check_cuda(connection: Connection, python: str, device: str) -> None:
    outcome = connection.run(shlex.join([python, "-c", _CUDA]))
    if outcome.status != 0:
        raise UserError(f"cannot see which torch {python} has: {outcome.words}")
    if not outcome.out.strip():
        raise UserError(
            f"torch there is built without CUDA, and device is {device}: in the testbed file, name a package index "
            "that has CUDA builds (pip_index:) or an interpreter that has one (python:), then run hosts setup again"
        )


def _state(connection: Connection, entry: HostEntry, folder: str) -> dict[str, str]:
    """`stamp` of a virtual environment that works; `sound` where pip can go on in it. Raises Unreachable."""
    outcome = connection.run(
        f"cd {shlex.quote(folder)}/venv 2>/dev/null && [ ! -e .installing ] && bin/python -c 'import pip' 2>/dev/null "
        f'&& [ "$(cat .index 2>/dev/null)" = {shlex.quote(entry.pip_index)} ] '
        '&& echo "sound=yes" && echo "stamp=$(cat .requirements 2>/dev/null)"'
    )
    return dict(line.split("=", 1) for line in outcome.out.split())


def _install(connection: Connection, entry: HostEntry, folder: str, say: Say, requirements: Path) -> bool:
    state = _state(connection, entry, folder)
    if state.get("stamp") == digest(requirements):
        return False
    venv = f"{folder}/venv"
    if not state.get("sound"):
        python = _find_python(connection)
        say(f"making {venv}")
        _checked(connection, f"mkdir -p {shlex.quote(folder)} && rm -f {shlex.quote(venv)}/.requirements")
        outcome = _watched(connection, [python, "-m", "venv", "--clear", venv], _Progress(say, "making it"))
        if outcome.status != 0:
            raise UserError(f"no virtual environment there: {outcome.words}")
        _checked(connection, f"printf %s {shlex.quote(entry.pip_index)} > {shlex.quote(venv)}/.index")
    _pip(connection, venv, entry.pip_index, entry.device, say, requirements)
    return True


_FIND_PYTHON = f"""
best=none
for each in {" ".join(PYTHONS)}; do
    command -v $each >/dev/null || continue
    if ! $each -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        [ "$best" != none ] || best="old $($each --version 2>&1)"
    elif ! $each -c 'import venv, ensurepip' 2>/dev/null; then
        best="bare $each"
    else
        best="good $each"; break
    fi
done
echo "$best"
"""


def _find_python(connection: Connection) -> str:
    verdict, _, what = connection.run(_FIND_PYTHON).out.strip().partition(" ")
    if verdict == "good":
        return what
    if verdict == "bare":
        raise UserError(f"{what} has no venv there: sudo apt-get install {what}-venv")
    if verdict == "old":
        raise UserError(f"{what} is too old: 3.10 or later is needed; name one in the testbed file (python:)")
    raise UserError("no python3 there: sudo apt-get install python3 python3-venv")


def _pip(connection: Connection, venv: str, index: str, device: str, say: Say, requirements: Path) -> None:
    quoted = shlex.quote(venv)
    # .installing outlives a pip that is killed: nobody knows what it leaves, and the next one begins anew.
    # Not /tmp: where that is in memory, it may be smaller than torch.
    begin = (
        f"cd {quoted} && rm -f .requirements && mkdir -p .tmp && : > .installing && cat > requirements.txt"
    )
    _checked(connection, begin, io.BytesIO(requirements.read_bytes()))
    tries = [["--index-url", index], ["--extra-index-url", index]] if index else [[]]
    for number, options in enumerate(tries, start=1):
        progress = _Progress(say, "asking for packages", is_cpu=device == "cpu")
        argv = ["env", f"TMPDIR={venv}/.tmp", "LC_ALL=C.UTF-8", f"{venv}/bin/python", "-m", "pip", "install"]
        argv += ["--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar", "off", *options]
        outcome = _watched(connection, [*argv, "-r", f"{venv}/requirements.txt"], progress)
        if outcome.status == 0:
            stamp = f"rm -rf .tmp .installing && printf %s {digest(requirements)} > .part && mv .part .requirements"
            _checked(connection, f"cd {quoted} && {stamp}")
            return
        lacks = re.match(r"No matching distribution found for (\S+)", progress.error)
        if lacks and number < len(tries) and not progress.unanswered:
            say(f"{lacks[1]} is not in {index}: what is not there comes from where pip looks by itself")
            continue
        # pip takes back what it was about to install, but not on a disk that is full.
        connection.run(f"cd {quoted} && rm -rf .tmp{'' if progress.unpacking else ' .installing'}")
        unanswered = f"the package index cannot be reached: {progress.unanswered}"
        reason = unanswered if progress.unanswered else progress.error or outcome.words
        raise UserError(f"pip: {reason} (the next hosts setup goes on from here)")


class _Progress:
    """Passes on pip's lines about its progress, and reports now and then that it still runs.

    error: pip's last error. unanswered: why the package index does not answer, where it does not.
    """

    def __init__(self, say: Say, doing: str, *, is_cpu: bool = False) -> None:
        self._say = say
        self._doing = doing
        self._warn_of_cuda = is_cpu
        self._since_s = self._spoke_s = time.monotonic()
        self.error = self.unanswered = ""
        self.unpacking = False

    def hear(self, line: str) -> None:
        now_s, words = time.monotonic(), ""
        if line.startswith("ERROR: "):
            self.error = line.removeprefix("ERROR: ")
        elif "connection broken by" in line:
            detail = line.partition("connection broken by ")[2]
            cause = re.search(r"\[Errno -?\d+\] [^'\")]+|timed? ?out|certificate[^'\")]*", detail)
            self.unanswered = cause[0] if cause else detail[:120]
            words = "asking again: the package index does not answer"
        elif self._warn_of_cuda and re.match(r"Collecting (nvidia-(?!ml-py)|cuda-)", line):
            self._warn_of_cuda = False  # once is enough
            words = _NO_USE
        elif re.match(
            r"Collecting |Processing |\s*Downloading (?!\S*\.metadata)|Building wheel|Installing ", line
        ):
            self.unpacking = self.unpacking or line.startswith("Installing ")
            words = line.partition(" (from ")[0].strip()
        if words:
            self._say(words)
            self._doing, self._since_s, self._spoke_s = words, now_s, now_s
        elif now_s - self._spoke_s > _QUIET_S:
            self._say(f"still {self._doing} ({now_s - self._since_s:.0f} s)")
            self._spoke_s = now_s


_NO_USE = (
    "attention: this torch brings CUDA's libraries, gigabytes that device: cpu has no use for; PyTorch's index of CPU "
    "builds as pip_index: in the testbed file has one without"
)


def _checked(connection: Connection, command: str, stdin: io.BytesIO | None = None) -> None:
    outcome = connection.run(command, stdin)
    if outcome.status != 0:
        raise UserError(outcome.words)


def _watched(connection: Connection, argv: list[str], progress: _Progress) -> Outcome:
    """Run something that may be silent for long: an empty line a second proves that both ends live."""
    return connection.run(
        f"trap '' PIPE; ( exec {shlex.join(argv)} ) 2>&1 & job=$!; "
        "while kill -0 $job 2>/dev/null; do sleep 1; echo 2>/dev/null || { kill $job; exit 1; }; done; wait $job",
        timeout_s=_LOST_S,
        on_line=progress.hear,
    )
