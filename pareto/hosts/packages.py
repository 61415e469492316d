"""The worker's packages on a host: a virtual environment made there, or an interpreter of the user's checked."""

from __future__ import annotations

import io
import json
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from pareto.errors import UserError
from pareto.hosts.connection import Connection, Outcome
from pareto.hosts.finding import NOT_EVERYWHERE, OLDEST_PYTHON, PYTHONS, digest, numbers, wanted_by
from pareto.hosts.inventory import HostEntry

Say = Callable[[str], None]
_QUIET_S = 10.0
"""After this long without a word the user is told what still goes on."""
_LOST_S = 60.0
"""`_watched` makes itself heard every second."""


@dataclass
class ReachedHost:
    """A host that is logged in to. ready: nothing is missing so far; changed: something was put there."""

    entry: HostEntry
    connection: Connection
    say: Say
    requirements: Path
    folder: str
    user: str
    is_root: bool
    ready: bool = True
    changed: bool = False

    @property
    def venv(self) -> str:
        return f"{self.folder}/venv"

    def fail(self, words: str) -> None:
        self.ready = False
        self.say(words)

    def run(self, command: str, stdin: io.BytesIO | None = None) -> None:
        """Run a command that must succeed. Raises UserError, Unreachable."""
        outcome = self.connection.run(command, stdin)
        if outcome.status != 0:
            raise UserError(outcome.words)


def provide(site: ReachedHost) -> None:
    """See to it that the host's interpreter has the packages. Raises UserError, Unreachable.

    The next call goes on from what was done until then.
    """
    named = site.entry.python
    if named:
        for line in _check(site, _report(site, named)):
            site.say(line)
    elif _state(site).get("stamp") != digest(site.requirements):
        _install(site)
        site.changed = True
    if site.entry.device.startswith("cuda") and not _report(site, named or f"{site.venv}/bin/python")["cuda"]:
        raise UserError(
            f"torch there is built without CUDA, and device is {site.entry.device}: in the testbed file, name a "
            "package index that has CUDA builds (pip_index:) or an interpreter that has one (python:), then run hosts "
            "setup again"
        )


def are_there(site: ReachedHost) -> bool:
    """Whether `provide` would find nothing to do. Raises Unreachable."""
    if not site.entry.python:
        return _state(site).get("stamp") == digest(site.requirements)
    try:
        _check(site, _report(site, site.entry.python))
    except UserError:
        return False
    return True


_REPORT = """
import importlib.metadata, importlib.util, json, pathlib, runpy, sys
versions = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions() if each.metadata["Name"]}
torch = importlib.util.find_spec("torch")
cuda = torch and runpy.run_path(str(pathlib.Path(torch.origin).with_name("version.py"))).get("cuda")
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], "versions": versions, "cuda": cuda}))
"""


def _report(site: ReachedHost, python: str) -> dict[str, Any]:
    """An interpreter's version, those of its packages, and the CUDA of its torch, which is not imported for that."""
    outcome = site.connection.run(shlex.join([python, "-c", _REPORT]))
    if outcome.status != 0:
        raise UserError(f"{python} does not work there: {outcome.words}")
    report: dict[str, Any] = json.loads(outcome.out)
    return report


def _check(site: ReachedHost, report: dict[str, Any]) -> list[str]:
    """A line for each package of another version than wanted. Raises UserError where one is missing."""
    python = site.entry.python
    if numbers(report["python"]) < OLDEST_PYTHON:
        raise UserError(f"python: {python} is Python {report['python']}: 3.10 or later is needed")
    versions = {canonicalize_name(name): version for name, version in report["versions"].items()}
    lines, missing = [], []
    for wanted in wanted_by(report["python"], site.requirements):
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


def _state(site: ReachedHost) -> dict[str, str]:
    """`stamp` of a virtual environment that works; `sound` where pip can go on in it. Raises Unreachable."""
    outcome = site.connection.run(
        f"cd {shlex.quote(site.venv)} 2>/dev/null && [ ! -e .installing ] && bin/python -c 'import pip' 2>/dev/null "
        f'&& [ "$(cat .index 2>/dev/null)" = {shlex.quote(site.entry.pip_index)} ] '
        '&& echo "sound=yes" && echo "stamp=$(cat .requirements 2>/dev/null)"'
    )
    return dict(line.split("=", 1) for line in outcome.out.split())


def _install(site: ReachedHost) -> None:
    if not _state(site).get("sound"):
        python = _find_python(site.connection)
        venv = shlex.quote(site.venv)
        site.say(f"making {site.venv}")
        site.run(f"mkdir -p {shlex.quote(site.folder)} && rm -f {venv}/.requirements")
        outcome = _watched(site, [python, "-m", "venv", "--clear", site.venv], _Progress(site, "making it"))
        if outcome.status != 0:
            raise UserError(f"no virtual environment there: {outcome.words}")
        site.run(f"printf %s {shlex.quote(site.entry.pip_index)} > {venv}/.index")
    _pip(site)


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


def _pip(site: ReachedHost) -> None:
    venv, index = site.venv, site.entry.pip_index
    there = f"cd {shlex.quote(venv)}"
    # .installing outlives a pip that is killed: nobody knows what it leaves, and the next one begins anew.
    # Not /tmp: where that is in memory, it may be smaller than torch.
    begin = "rm -f .requirements && mkdir -p .tmp && : > .installing && cat > requirements.txt"
    site.run(f"{there} && {begin}", io.BytesIO(site.requirements.read_bytes()))
    tries = [["--index-url", index], ["--extra-index-url", index]] if index else [[]]
    for number, options in enumerate(tries, start=1):
        progress = _Progress(site, "asking for packages")
        argv = ["env", f"TMPDIR={venv}/.tmp", "LC_ALL=C.UTF-8", f"{venv}/bin/python", "-m", "pip", "install"]
        argv += ["--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar", "off", *options]
        outcome = _watched(site, [*argv, "-r", f"{venv}/requirements.txt"], progress)
        if outcome.status == 0:
            stamp = f"printf %s {digest(site.requirements)} > .part && mv .part .requirements"
            site.run(f"{there} && rm -rf .tmp .installing && {stamp}")
            return
        lacks = re.match(r"No matching distribution found for (\S+)", progress.error)
        if lacks and number < len(tries) and not progress.unanswered:
            site.say(f"{lacks[1]} is not in {index}: what is not there comes from where pip looks by itself")
            continue
        # pip takes back what it was about to install, but not on a disk that is full.
        site.connection.run(f"{there} && rm -rf .tmp{'' if progress.unpacking else ' .installing'}")
        unanswered = f"the package index cannot be reached: {progress.unanswered}"
        reason = unanswered if progress.unanswered else progress.error or outcome.words
        raise UserError(f"pip: {reason} (the next hosts setup goes on from here)")


class _Progress:
    """Passes on pip's lines about its progress, and reports now and then that it still runs.

    error: pip's last error. unanswered: why the package index does not answer, where it does not.
    """

    def __init__(self, site: ReachedHost, doing: str) -> None:
        self._say = site.say
        self._doing = doing
        self._warn_of_cuda = site.entry.device == "cpu"
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


def _watched(site: ReachedHost, argv: list[str], progress: _Progress) -> Outcome:
    """Run something that may be silent for long: an empty line a second proves that both ends live."""
    return site.connection.run(
        f"trap '' PIPE; ( exec {shlex.join(argv)} ) 2>&1 & job=$!; "
        "while kill -0 $job 2>/dev/null; do sleep 1; echo 2>/dev/null || { kill $job; exit 1; }; done; wait $job",
        timeout_s=_LOST_S,
        on_line=progress.hear,
    )
