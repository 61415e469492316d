"""One host of a lab: its disk, its place in the network, and what runs on it while it is on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pareto.hosts.local.journal import Journal
from pareto.hosts.local.sshd import PORT, bound_to_parent
from tests.lab import boot, wiring
from tests.lab.disk import UID, USER, Disk
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
        self._journal = journal
        self._place = place
        self._disk = disk
        self._boot: _Boot | None = None

    @property
    def host_key(self) -> str:
        """Its public half, OpenSSH's one line."""
        return self._disk.host_key

    @property
    def namespace(self) -> str:
        """Its network namespace's name: another one after each `power_on`."""
        return self._place.namespace

    @property
    def is_on(self) -> bool:
        return self._boot is not None

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
        done = subprocess.run(
            self.argv(command, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"{self.name}: {command}: exit status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def pids(self, text: str = "") -> list[int]:
        """Its processes with that in their command line, as this machine numbers them: for `os.kill`."""
        space = _namespace_of(self._running.init)
        return [pid for pid in _all_pids() if _namespace_of(pid) == space and text in _command(pid)]

    def sudoers(self, text: str) -> None:
        """Replace /etc/sudoers.d/pareto; nothing in it removes it. Raises ValueError where sudo could not read it."""
        self._disk.sudoers(text)

    def small_disk(self, path: str, size: str) -> None:
        """Mount a file system of that size for the user there (relative to the home); it is gone after `power_off`."""
        where = self.home / path
        self.run(f"mkdir -p {where}", USER)
        self.run(f"mount -t tmpfs -o size={size},mode=755,uid={UID},gid={UID} small {where}")

    def fill(self, path: str) -> Path:
        """Write a file that takes all the room of a small disk; remove it to have the room back."""
        where = self.home / path
        # Never this machine's own disk.
        if self.run(f"findmnt --noheadings --output SOURCE --mountpoint {where}").strip() != "small":
            raise LabError(f"{where} is no small disk")
        file = where / "filling"
        self.run(f"! cat /dev/zero 2>/dev/null >{file}", USER)
        return file

    # The power switch.

    def power_on(self) -> None:
        """Boot; sshd answers when this returns. The disk is as it was left."""
        if self._boot is not None:
            raise LabError(f"{self.name} is on")
        wiring.wake(self._journal, self._place)
        argv = [*bound_to_parent(self.namespace), *_ISOLATED, "sh", "-c", boot.script(self._disk, self.name)]
        log_path = self._disk.folder / "log"
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                argv, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait(lambda: process.poll() is not None or _listeners(process.pid), f"{self.name} boots")
            if process.poll() is not None:
                raise LabError(f"{self.name} did not boot: {log_path.read_text(errors='replace').strip()}")
            self._boot = _Boot(process, _child(process.pid))
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
            before = _listeners(self._boot.init)
            os.kill(self._boot.init, signal.SIGHUP)  # it starts itself anew
            init = self._boot.init
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


def _child(pid: int) -> int:
    return next(child for child in _all_pids() if _parent(child) == pid)


def _all_pids() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(_stat(pid)[1])
    return 0


def _stat(pid: int) -> Sequence[str]:
    """State, parent and so on, from behind the name, which may be anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _namespace_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
