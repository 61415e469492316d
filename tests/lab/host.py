"""One host of a lab: its disk, its place in the network, and what runs on it while it is on.

When it boots it covers this machine's folders by its own, then becomes sshd: the first process in its namespaces, so
that nothing of it is seen outside, and nothing is to be undone. What it does not cover it can read but not write."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from pareto.hosts.local import rights
from pareto.hosts.local.journal import Journal
from pareto.hosts.local.sshd import PORT, bound_to_parent
from tests import REPOSITORY
from tests.lab import wiring
from tests.lab.disk import MIRRORED, OWN, UID, USER, Disk, mirrored
from tests.program import wait_until

_ISOLATED = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LISTENING = "0A"  # in /proc/net/tcp
_BOOT_S = 60.0  # a second, but for an emulated processor


class LabError(Exception):
    """A lab host that does not do what it was told."""


@dataclass(frozen=True)
class _Boot:
    """process: killing it ends the host. init: the first of the host's processes, sshd."""

    process: subprocess.Popen[bytes]
    init: int


class LabHost:
    """port, user: of its sshd. data_address, data_interface: of the link to the other hosts; empty for the jump host.
    next_address, next_interface: of a host in the middle that has a second link.
    """

    def __init__(self, journal: Journal, place: wiring.Place, disk: Disk) -> None:
        self.name = place.name
        self.user, self.port = USER, PORT
        self.address = place.addresses[wiring.MANAGEMENT][0]
        self.data_address = place.addresses.get(wiring.DATA, ("", 0))[0]
        self.data_interface = wiring.DATA if self.data_address else ""
        self.next_address = place.addresses.get(wiring.ONWARD, ("", 0))[0]
        self.next_interface = wiring.ONWARD if self.next_address else ""
        self.home = Path("/home", USER)
        self._journal, self._place, self._disk = journal, place, disk
        self._boot: _Boot | None = None

    @property
    def host_key(self) -> str:
        """Its public half, OpenSSH's one line."""
        return self._disk.host_key

    @property
    def namespace(self) -> str:
        """Its network namespace's name: another one after each `power_on`."""
        return self._place.namespace

    # What runs on it.

    def argv(self, command: str, user: str = "root") -> list[str]:
        """What runs a shell command there as root or `pi`, without SSH: for looking, and for Popen."""
        enter = ["nsenter", f"--target={self._running.init}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups"] if user != "root" else []
        home = "/root" if user == "root" else f"/home/{user}"
        environment = ["env", "-i", f"PATH={_PATH}", f"HOME={home}", f"USER={user}", "LANG=C.UTF-8"]
        return [*enter, "--", *become, *environment, "bash", "-c", f"cd; {command}"]

    def run(self, command: str, user: str = "root", *, timeout_s: float = 60.0) -> str:
        """What a shell command says there on stdout. Raises LabError with its stderr where it fails."""
        argv, nothing = self.argv(command, user), subprocess.DEVNULL
        done = subprocess.run(argv, stdin=nothing, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode != 0:
            raise LabError(f"{self.name}: {command}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def pids(self, text: str = "") -> list[int]:
        """Its processes with that in their command line, as this machine numbers them: for `os.kill`."""
        space = _namespace_of(self._running.init)
        return [pid for pid in psutil.pids() if _namespace_of(pid) == space and text in _command(pid)]

    # The power switch.

    def power_on(self) -> None:
        """Boot; sshd answers when this returns. The disk is as it was left."""
        assert self._boot is None
        wiring.wake(self._journal, self._place)
        argv = [*bound_to_parent(self.namespace), *_ISOLATED, "sh", "-c", script(self._disk, self.name)]
        log_path = self._disk.folder / "log"
        nothing = subprocess.DEVNULL
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                argv, cwd="/", stdin=nothing, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait(lambda: process.poll() is not None or _listeners(process.pid), f"{self.name} boots")
            if process.poll() is not None:
                raise LabError(f"{self.name} did not boot: {log_path.read_text(errors='replace').strip()}")
            self._boot = _Boot(process, psutil.Process(process.pid).children()[0].pid)
        except BaseException:
            process.kill()
            process.wait()
            raise

    def power_off(self) -> None:
        """As when the plug is pulled: nobody hears of it, what was in memory is gone."""
        if self._boot is None:
            return
        wiring.silence(self._place)  # first, for the kernel says farewell for each process that it ends
        self.kill()

    def kill(self) -> None:
        """End all of its processes; returns when there are none."""
        if self._boot is None:
            return
        running, self._boot = self._boot, None
        # The namespace's first process is not gone before all others are, nor is `unshare` before that one.
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.init, signal.SIGKILL)
        running.process.wait()

    def change_host_key(self) -> str:
        """sshd shows another one from now on; connections that there are stay. Returns its public half."""
        self._disk.change_host_key()
        if self._boot is not None:
            init = self._boot.init
            before = _listeners(init)
            os.kill(init, signal.SIGHUP)  # it starts itself anew
            wait(lambda: _listeners(init) - before, f"{self.name}'s sshd restarts")
        return self.host_key

    # The links.

    def unplug(self) -> None:
        """The management link: SSH falls silent."""
        self.set_link(wiring.MANAGEMENT, up=False)

    def plug(self) -> None:
        self.set_link(wiring.MANAGEMENT, up=True)

    def set_link(self, interface: str, *, up: bool) -> None:
        wiring.set_link(self._place, interface, up=up)

    @property
    def _running(self) -> _Boot:
        if self._boot is None:
            raise LabError(f"{self.name} is off")
        return self._boot


def wait(true: Callable[[], object], what: str) -> None:
    if not wait_until(true, _BOOT_S):
        raise LabError(f"waited {_BOOT_S:g} s in vain: {what}")


def _listeners(pid: int) -> set[str]:
    """The sockets, by inode, that wait for SSH clients in the network namespace of that process."""
    # Before it has entered its own, a process shows this machine's.
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/thread-self/ns/net").readlink():
            rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
            return {row[9] for row in rows if row[3] == _LISTENING and row[1].endswith(f":{PORT:04X}")}
    return set()


def _namespace_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def _command(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


# What it does when it boots.

EMPTY_AT_BOOT = {"run": "755", "tmp": "1777", "dev/shm": "1777"}
"""Folders in memory, and their modes."""
_STAGE = "/mnt"
"""Where the disk is while folders that may contain it are covered."""


def script(disk: Disk, name: str) -> str:
    """For `sh`, run by root in mount, PID, network and host name namespaces of its own."""
    commands = [*_commands(disk, name)]
    return "\n".join(["set -e", "umask 022", *map(shlex.join, commands)]) + "\n"


def needed() -> list[Path]:
    """Folders that Python and this repository need, and that a host has at the same place. The rest is in /usr."""
    wanted = {REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    outside = [path for path in wanted if not path.is_relative_to("/usr")]
    return sorted(p for p in outside if not any(other in p.parents for other in outside))


def hidden(paths: Iterable[Path], covered: Iterable[Path]) -> list[Path]:
    """Folders above them that only root may pass, and so are to be covered too, outermost first."""
    found: dict[Path, None] = {}
    for path in paths:
        for parent in reversed(path.parents):
            if any(parent.is_relative_to(cover) for cover in [*covered, *found]):
                break
            if not parent.stat().st_mode & stat.S_IXOTH:
                found[parent] = None
    return list(found)


def _commands(disk: Disk, name: str) -> Iterator[list[str]]:
    kept = {str(path): f"kept/{number}" for number, path in enumerate(needed())}
    kept_whole = {f"/{part}": f"machine/{part}" for part in MIRRORED}
    yield ["hostname", name]
    for path, at in (kept | kept_whole).items():
        (disk.folder / at).mkdir(parents=True, exist_ok=True)
        yield ["mount", "--bind", path, str(disk.folder / at)]
    yield ["mount", "--bind", str(disk.etc), str(disk.folder / "etc")]
    yield ["mount", "--rbind", str(disk.folder), _STAGE]

    own = [Path("/", part) for part in (*OWN, *MIRRORED, *EMPTY_AT_BOOT)]
    for shut in hidden(needed(), own):
        yield ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(shut)]
    for part in (*OWN, *MIRRORED):
        yield ["mount", "--rbind", f"{_STAGE}/{part}", f"/{part}"]
    for part in MIRRORED:
        for entry in mirrored(part):
            if not entry.is_symlink():
                yield from _read_only(f"{_STAGE}/machine/{part}/{entry.name}", str(entry))
    for part, mode in EMPTY_AT_BOOT.items():
        yield ["mount", "-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", f"/{part}"]
    for path, at in kept.items():
        yield ["mkdir", "-p", path]
        yield from _read_only(f"{_STAGE}/{at}", path)
    yield ["umount", "-R", _STAGE]

    # /sys shows the interfaces of the namespace in which it was mounted.
    yield ["mount", "-t", "sysfs", "sysfs", "/sys"]
    yield ["mount", "-t", "devpts", "-o", "newinstance,gid=5,mode=620,ptmxmode=666", "devpts", "/dev/pts"]
    yield ["mount", "-o", "remount,bind,ro", "/"]
    yield ["mkdir", "/run/sshd"]
    yield ["exec", rights.sshd() or "sshd", "-D", "-e"]


def _read_only(source: str, target: str) -> Iterator[list[str]]:
    yield ["mount", "--bind", source, target]
    yield ["mount", "-o", "remount,bind,ro", target]
