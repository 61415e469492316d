"""The worker's packages on a host: in a virtual environment made there, or checked in an interpreter that is named."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pareto import DATA
from pareto.errors import UserError
from pareto.hosts.inventory import Member
from pareto.hosts.way import Outcome, Way

REQUIREMENTS = DATA / "requirements-worker.txt"
Say = Callable[[str], None]

_QUIET_S = 10.0
"""After this long without a word the user is told what still goes on."""
_LOST_S = 60.0
"""`_watched` makes itself heard every second."""

_FIND_PYTHON = """
best=none
for each in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
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
_CUDA = """
import importlib.util, pathlib, runpy
folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent
print(runpy.run_path(str(folder / "version.py")).get("cuda") or "")
"""
_INSTALLED = """
import importlib.metadata, json, sys
found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions() if each.metadata["Name"]}
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "found": found}))
"""


NOT_EVERYWHERE = ("pyroute2", "nvidia-ml-py")
"""What shaping as root needs, and what tells a GPU's power: an interpreter of the user's own may do without."""


_NO_USE = (
    "attention: this torch brings CUDA's libraries, gigabytes that device: cpu has no use for; PyTorch's index of CPU "
    "builds as pip_index: in the testbed file has one without"
)


def wanted(requirements: Path = REQUIREMENTS) -> str:
    """What `venv/.requirements` holds when everything is installed."""
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def provide(way: Way, member: Member, folder: str, say: Say, requirements: Path = REQUIREMENTS) -> bool:
    """See to it that the host's interpreter has the packages; whether anything had to be done.

    Raises UserError, Unreachable. What was done until then is found by the next call, which goes on from there.
    """
    if member.python:
        for line in differences(way, member.python, requirements):
            say(line)
        changed, python = False, member.python
    else:
        changed, python = _install(way, member, folder, say, requirements), f"{folder}/venv/bin/python"
    if member.device.startswith("cuda"):
        _check_cuda(way, python, member.device)
    return changed


def are_there(way: Way, member: Member, folder: str, requirements: Path = REQUIREMENTS) -> bool:
    """Whether `provide` would find nothing to do. Raises Unreachable."""
    if member.python:
        try:
            differences(way, member.python, requirements)
        except UserError:
            return False
        return True
    return _state(way, member, folder).get("stamp") == wanted(requirements)


def differences(way: Way, python: str, requirements: Path) -> list[str]:
    """A line for each package of another version than asked for. Raises UserError where one is missing."""
    outcome = _python(way, python, _INSTALLED)
    if outcome.status != 0:
        raise UserError(f"python: {python} does not work there: {outcome.words}")
    told = json.loads(outcome.out)
    if tuple(map(int, told["python"].split("."))) < (3, 10):
        raise UserError(f"python: {python} is Python {told['python']}: 3.10 or later is needed")
    found = {canonicalize_name(name): version for name, version in told["found"].items()}
    lines, missing = [], []
    for wanted in _requirements(requirements, told["python"]):
        version = found.get(canonicalize_name(wanted.name))
        if version is None and wanted.name in NOT_EVERYWHERE:
            continue
        if version is None:
            missing.append(f"{wanted.name}{wanted.specifier}")
        elif not wanted.specifier.contains(version, prereleases=True):
            lines.append(f"{python} has {wanted.name} {version}, and {wanted.specifier} is what is tested")
    if missing:
        raise UserError(
            f"{python} lacks {', '.join(missing)}: install them there, or leave python: out of the testbed file"
        )
    return lines


def _install(way: Way, member: Member, folder: str, say: Say, requirements: Path) -> bool:
    state = _state(way, member, folder)
    if state.get("stamp") == wanted(requirements):
        return False
    venv = f"{folder}/venv"
    if not state.get("sound"):
        python = _find_python(way)
        say(f"making {venv}")
        _checked(way, f"mkdir -p {shlex.quote(folder)} && rm -f {shlex.quote(venv)}/.requirements")
        progress = _Progress(say, "making it")
        outcome = _watched(way, shlex.join([python, "-m", "venv", "--clear", venv]), progress)
        if outcome.status != 0:
            raise UserError(f"no virtual environment there: {outcome.words}")
        _checked(way, f"printf %s {shlex.quote(member.pip_index)} > {shlex.quote(venv)}/.index")
    _pip(way, venv, member.pip_index, member.device, say, requirements)
    return True


def _pip(way: Way, venv: str, index: str, device: str, say: Say, requirements: Path) -> None:
    quoted = shlex.quote(venv)
    # .installing outlives a pip that was killed: nobody knows what it left, and the next one begins anew.
    # Not /tmp: where that is in memory, it may be smaller than torch.
    begin = (
        f"cd {quoted} && rm -f .requirements && mkdir -p .tmp && : > .installing && cat > requirements.txt"
    )
    _checked(way, begin, io.BytesIO(requirements.read_bytes()))
    tries = [["--index-url", index], ["--extra-index-url", index]] if index else [[]]
    for number, options in enumerate(tries, start=1):
        progress = _Progress(say, "asking for packages", is_cpu=device == "cpu")
        argv = ["env", f"TMPDIR={venv}/.tmp", "LC_ALL=C.UTF-8", f"{venv}/bin/python", "-m", "pip", "install"]
        argv += ["--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar", "off", *options]
        outcome = _watched(way, shlex.join([*argv, "-r", f"{venv}/requirements.txt"]), progress)
        if outcome.status == 0:
            stamp = f"rm -rf .tmp .installing && printf %s {wanted(requirements)} > .part && mv .part .requirements"
            _checked(way, f"cd {quoted} && {stamp}")
            return
        if number < len(tries) and progress.incomplete:
            say(
                f"{progress.incomplete} is not in {index}: what is not there comes from where pip looks by itself"
            )
            continue
        # pip takes back what it was about to install, but not on a disk that is full.
        way.run(f"cd {quoted} && rm -rf .tmp{'' if progress.unpacking else ' .installing'}")
        raise UserError(f"pip: {progress.reason or outcome.words} (the next hosts setup goes on from here)")


def _state(way: Way, member: Member, folder: str) -> dict[str, str]:
    """`stamp` of a virtual environment that works; `sound` where pip can go on in it. Raises Unreachable."""
    outcome = way.run(
        f"cd {shlex.quote(folder)}/venv 2>/dev/null && [ ! -e .installing ] && bin/python -c 'import pip' 2>/dev/null "
        f'&& [ "$(cat .index 2>/dev/null)" = {shlex.quote(member.pip_index)} ] '
        '&& echo "sound=yes" && echo "stamp=$(cat .requirements 2>/dev/null)"'
    )
    return dict(line.split("=", 1) for line in outcome.out.split())


def _find_python(way: Way) -> str:
    verdict, _, what = way.run(_FIND_PYTHON).out.strip().partition(" ")
    if verdict == "good":
        return what
    if verdict == "bare":
        raise UserError(f"{what} has no venv there: sudo apt-get install {what}-venv")
    if verdict == "old":
        raise UserError(f"{what} is too old: 3.10 or later is needed; name one in the testbed file (python:)")
    raise UserError("no python3 there: sudo apt-get install python3 python3-venv")


def _check_cuda(way: Way, python: str, device: str) -> None:
    outcome = _python(way, python, _CUDA)
    if outcome.status != 0:
        raise UserError(f"cannot see which torch {python} has: {outcome.words}")
    if not outcome.out.strip():
        raise UserError(
            f"torch there is built without CUDA, and device is {device}: in the testbed file, name a package index "
            "that has CUDA builds (pip_index:) or an interpreter that has one (python:), then run hosts setup again"
        )


def _requirements(path: Path, python: str) -> Iterator[Requirement]:
    """Those that an interpreter of that version needs."""
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                yield requirement


def _python(way: Way, python: str, program: str) -> Outcome:
    return way.run(shlex.join([python, "-c", program]))


def _checked(way: Way, command: str, stdin: io.BytesIO | None = None) -> None:
    outcome = way.run(command, stdin)
    if outcome.status != 0:
        raise UserError(outcome.words)


def _watched(way: Way, command: str, progress: _Progress) -> Outcome:
    """Run something that may be silent for long: an empty line a second says that it lives, and finds out if we do."""
    return way.run(
        f"trap '' PIPE; ( exec {command} ) 2>&1 & job=$!; "
        "while kill -0 $job 2>/dev/null; do sleep 1; echo 2>/dev/null || { kill $job; exit 1; }; done; wait $job",
        timeout_s=_LOST_S,
        on_line=progress.hear,
    )


class _Progress:
    """pip's lines in few words, and a word now and then while it has none."""

    def __init__(self, say: Say, doing: str, *, is_cpu: bool = False) -> None:
        self._is_cpu = is_cpu
        self._warned = False
        self._say = say
        self._doing = doing
        self._since = self._spoke = time.monotonic()
        self._error = self._connection = self.incomplete = ""
        self.unpacking = False

    @property
    def reason(self) -> str:
        if self._connection:
            return f"the package index cannot be reached: {self._connection}"
        return self._error

    def hear(self, line: str) -> None:
        now = time.monotonic()
        words = self._words(line.strip())
        if words:
            self._say(words)
            self._doing, self._since, self._spoke = words, now, now
        elif now - self._spoke > _QUIET_S:
            self._say(f"still {self._doing} ({now - self._since:.0f} s)")
            self._spoke = now

    def _words(self, line: str) -> str:
        if line.startswith("ERROR: "):
            self._error = line.removeprefix("ERROR: ")
            if found := re.match(r"No matching distribution found for (\S+)", self._error):
                self.incomplete = "" if self._connection else found[1]
        elif "connection broken by" in line:
            said = line.partition("connection broken by ")[2]
            found = re.search(r"\[Errno -?\d+\] [^'\")]+|timed? ?out|certificate[^'\")]*", said)
            self._connection = found[0] if found else said[:120]
            return "asking again: the package index does not answer"
        elif re.match(r"Collecting (nvidia-(?!ml-py)|cuda-)", line):
            if self._is_cpu and not self._warned:
                self._warned = True
                return _NO_USE
        elif found := re.match(r"Collecting ([^\s;(]+)", line):
            return f"collecting {found[1].replace('==', ' ')}"
        elif found := re.match(r"Processing (?:\S*/)?([^/\s-]+)-([^/\s-]+)-\S+\.whl", line):
            return f"collecting {found[1]} {found[2]}"
        elif found := re.match(r"Downloading .*?([^/\s]+?)-[^/\s]*(?<!\.metadata) \((.+)\)", line):
            return f"downloading {found[1]}, {found[2]}"
        elif line.startswith("Installing collected packages: "):
            self.unpacking = True
            return f"installing {line.count(',') + 1} packages"
        elif found := re.match(r"Building wheel for (\S+).*started", line):
            return f"building {found[1]}"
        return ""
