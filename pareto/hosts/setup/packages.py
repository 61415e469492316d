"""The worker's packages on a host: a virtual environment made there, or an interpreter of the user's checked."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pareto.hosts.connection import Connection, Outcome
from pareto.hosts.host import Say
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import checkup, finding
from pareto.hosts.setup.finding import PYTHONS, Case
from pareto.protocol.errors import UserError

_OF_ENGINES = ".requirements-onnx"
_QUIET_S = 10.0
"""After this long without a word the user is told what still goes on."""
_LOST_S = 60.0
"""A program that is watched makes itself heard every second."""


@dataclass
class ReachedHost:
    """A host that is logged in to. ready: nothing is missing so far; changed: something was put there."""

    entry: HostEntry
    connection: Connection
    say: Say
    folder: str
    user: str
    is_root: bool
    ready: bool = True
    changed: bool = False

    @property
    def venv(self) -> str:
        return f"{self.folder}/venv"

    def run(self, command: str, stdin: Iterable[bytes] = ()) -> str:
        """The output of a command that must succeed. Raises UserError, Unreachable."""
        outcome = self.connection.run(command, stdin)
        if outcome.status != 0:
            raise UserError(outcome.words)
        return outcome.out


def provide(site: ReachedHost, with_engines: bool = False) -> None:
    """Give the host's interpreter the packages; with_engines: those of engines, too. The next call goes on from what
    was done until then. Raises UserError, Unreachable."""
    entry = site.entry
    if not entry.python and not are_there(site):
        _install(site)
        site.changed = True
    case = _examined(site) if entry.python or entry.device != "cpu" else None
    for one in finding.of_python(case) if case and entry.python else ():
        if one.fatal:
            raise UserError(
                f"{one.words}; without python: in the testbed file, hosts setup makes an environment"
            )
        if one.fix:
            site.say(f"{entry.python}: {one.words}")
    if case and entry.device != "cpu" and case["torch_cuda"] is None:
        raise UserError(
            f"torch there is built without CUDA, and device is {entry.device}: in the testbed file, name a package "
            "index that has CUDA builds (pip_index:) or an interpreter that has one (python:), then run hosts setup "
            "again"
        )
    wanted = finding.of_engines(entry.device) if with_engines else b""
    if wanted and entry.python:
        names = dict.fromkeys(one.name for one in finding.requirements(wanted.decode()))
        raise UserError(
            f"{entry.python} is an interpreter of your own, into which nothing is installed; do it there: "
            f"{shlex.quote(entry.python)} -m pip install {' '.join(names)}"
        )
    there = f"cat {shlex.quote(f'{site.venv}/{_OF_ENGINES}')}"
    if wanted and site.connection.run(there).out.strip() != finding.digest(wanted):
        _pip(site, wanted, _OF_ENGINES)
        site.changed = True


def are_there(site: ReachedHost) -> bool:
    """Whether `provide` would find nothing to do. Raises Unreachable."""
    if site.entry.python:
        return not any(one.fatal for one in finding.of_python(_examined(site)))
    return _state(site) == finding.digest(finding.REQUIREMENTS.read_bytes())


def _examined(site: ReachedHost) -> Case:
    return Case(site.entry, (), checkup.ask(site.connection, site.entry, ()), "the testbed file")


def _state(site: ReachedHost) -> str | None:
    """The stamp of an environment in which pip can go on, or nothing; None: there is none. Raises Unreachable."""
    outcome = site.connection.run(
        f"cd {shlex.quote(site.venv)} 2>/dev/null && [ ! -e .installing ] && bin/python -I -c 'import pip' 2>/dev/null "
        f'&& [ "$(cat .index 2>/dev/null)" = {shlex.quote(site.entry.pip_index)} ] '
        "&& { cat .requirements 2>/dev/null || :; }"
    )
    return outcome.out.strip() if outcome.status == 0 else None


def _install(site: ReachedHost) -> None:
    venv = shlex.quote(site.venv)
    # It is noted as this program's before it is made.
    ours = f"[ -e {venv}.made ] || [ -e {venv}/.index ] || [ ! -e {venv} ] || rmdir {venv} 2>/dev/null"
    if site.connection.run(f"[ ! -L {venv} ] && {{ {ours}; }}").status != 0:
        raise UserError(
            f"{site.venv} is there, and hosts setup did not make it: name another folder: in the testbed file"
        )
    if _state(site) is None:
        python = site.run(_FIND_PYTHON).strip()
        site.say(f"making {site.venv}")
        site.run(f"mkdir -p {shlex.quote(site.folder)} && : > {venv}.made && rm -f {venv}/.requirements")
        outcome = _Watched(site, "making it").run([python, "-Im", "venv", "--clear", site.venv])
        if outcome.status != 0:
            raise UserError(f"no virtual environment there: {outcome.words}")
        site.run(f"printf %s {shlex.quote(site.entry.pip_index)} > {venv}/.index")
    _pip(site, finding.REQUIREMENTS.read_bytes(), ".requirements")


_FIND_PYTHON = f"""
fault=
for each in {" ".join(PYTHONS)}; do
    command -v $each >/dev/null || continue
    if ! $each -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        too_old="is too old: 3.10 or later is needed; name one in the testbed file (python:)"
        : "${{fault:=$($each --version 2>&1) $too_old}}"
    elif ! $each -I -c 'import venv, ensurepip' 2>/dev/null; then
        fault="$each has no venv there: sudo apt-get install $each-venv"
    else
        echo $each; exit
    fi
done
echo "${{fault:-no python3 there: sudo apt-get install python3 python3-venv}}" >&2; exit 1
"""


def _pip(site: ReachedHost, requirements: bytes, stamp: str) -> None:
    """Install these. stamp: the file in the environment that then holds their digest. Raises UserError."""
    venv, index = site.venv, site.entry.pip_index
    there = f"cd {shlex.quote(venv)}"
    # .installing outlives a pip that is killed: nobody knows what it leaves, and the next one begins anew.
    # Not /tmp: where that is in memory, it may be smaller than torch.
    begin = f"rm -f {stamp} && mkdir -p .tmp && : > .installing && cat > requirements.txt"
    site.run(f"{there} && {begin}", [requirements])
    tries = [["--index-url", index], ["--extra-index-url", index]] if index else [[]]
    for number, options in enumerate(tries, start=1):
        pip = _Watched(site, "asking for packages")
        argv = ["env", f"TMPDIR={venv}/.tmp", "LC_ALL=C.UTF-8", f"{venv}/bin/python", "-Im", "pip", "install"]
        argv += ["--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar", "off", *options]
        outcome = pip.run([*argv, "-r", f"{venv}/requirements.txt"])
        if outcome.status == 0:
            stamped = f"printf %s {finding.digest(requirements)} > .part && mv .part {stamp}"
            site.run(f"{there} && rm -rf .tmp .installing && {stamped}")
            return
        lacks = re.match(r"No matching distribution found for (\S+)", pip.error)
        if lacks and number < len(tries) and not pip.unanswered:
            site.say(f"{lacks[1]} is not in {index}: what is not there comes from where pip looks by itself")
            continue
        # pip takes back what it was about to install, but not on a disk that is full.
        site.connection.run(f"{there} && rm -rf .tmp{'' if pip.unpacking else ' .installing'}")
        reason = pip.error or outcome.words
        if pip.unanswered:
            reason = f"the package index cannot be reached: {pip.unanswered}"
        raise UserError(f"pip: {reason} (the next hosts setup goes on from here)")


class _Watched:
    """A program that may be silent for long: passes on pip's progress, or that it still runs. error: pip's last.
    unanswered: why the index does not answer."""

    def __init__(self, site: ReachedHost, doing: str) -> None:
        self._site, self._doing = site, doing
        self._warn_of_cuda = site.entry.device == "cpu"
        self._since_s = self._spoke_s = time.monotonic()
        self.error = self.unanswered = ""
        self.unpacking = False

    def run(self, argv: list[str]) -> Outcome:
        """Run it to its end; an empty line a second proves that both ends live."""
        return self._site.connection.run(
            f"trap '' PIPE; ( exec {shlex.join(argv)} ) 2>&1 & job=$!; "
            "while kill -0 $job 2>/dev/null; do sleep 1; echo 2>/dev/null || { kill $job; exit 1; }; done; wait $job",
            timeout_s=_LOST_S,
            on_line=self._hear,
        )

    def _hear(self, line: str) -> None:
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
            self._site.say(words)
            self._doing, self._since_s, self._spoke_s = words, now_s, now_s
        elif now_s - self._spoke_s > _QUIET_S:
            self._site.say(f"still {self._doing} ({now_s - self._since_s:.0f} s)")
            self._spoke_s = now_s


_NO_USE = (
    "attention: this torch brings CUDA's libraries, gigabytes that device: cpu has no use for; PyTorch's index of CPU "
    "builds as pip_index: in the testbed file has one without"
)
