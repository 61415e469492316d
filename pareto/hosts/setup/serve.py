"""`serve`: an SSH server of the user's own on a machine that has none, or where a driver has no account.

It runs as this user, lets nobody in but who has the key that was made for it, and forwards nothing. It ends with
`serve`, and all that was started through it: also after `kill -9`, as a guard beside it sees that end, and `serve` the
guard's. Where both are killed at once, the kernel ends the server, and the programs end with their driver.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pareto import COMMAND
from pareto.hosts.connection import GRACE_S, ThisMachine
from pareto.hosts.host import not_installed, to_stderr
from pareto.hosts.local import rights, sshd
from pareto.hosts.setup.invitation import Invitation, public_line
from pareto.hosts.ssh.addresses import list_addresses
from pareto.protocol.errors import UserError

READY_S = 10.0
_TICK_S = 0.05
_PLACE = re.compile(r"([^:]*)(?::([0-9]{1,5}))?")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MORE = """\
DisableForwarding yes
PermitTTY no
PermitUserRC no
LogLevel FATAL
"""


def serve(listen: str, say: Callable[[str], None]) -> int:
    """Serve until Ctrl-C; returns the exit code. say: gets the line to paste elsewhere. Raises UserError."""
    address, port = place(listen)
    if rights.sshd() is None:
        raise UserError(f"{not_installed('sshd', 'openssh-server')}; its service need not run")
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise UserError(f"the user {os.geteuid()} has no account here, and SSH needs one") from None
    _own_orphans()
    folder = Path(tempfile.mkdtemp(prefix="pareto-serve-"))
    guest_key = Ed25519PrivateKey.generate()
    try:
        text = configuration(folder, address, port, user)
        argv, host_key = sshd.prepared(folder, text, public_line(guest_key.public_key()))
        word = Invitation(host_key, guest_key, sys.executable).text
        with tempfile.TemporaryFile() as log, _guarded(argv, folder, log) as guard:
            _wait_until_ready(address, port, guard, log)
            say(
                f"echo {word} | {COMMAND} hosts add {shlex.quote(f'{user}@{address}')} --port {port} "
                "--role server --testbed lab.yaml --key -"
            )
            to_stderr(
                "paste this line on the other machine: it lets in as you whoever has it, until Ctrl-C ends this"
            )
            os.waitpid(guard, 0)
            raise UserError(f"the SSH server has ended{_last_words(log)}")
    except KeyboardInterrupt:
        return 0
    finally:
        _put_back(folder)


def place(text: str) -> tuple[str, int]:
    """The address and port of ADDRESS[:PORT]; else this machine's only address, any free port. Raises UserError."""
    match = _PLACE.fullmatch(text)
    address, port = match.groups() if match else ("none", "")
    if not address:
        own = list_addresses(ThisMachine())
        if len(own) > 1:
            there = ", ".join(each.words for each in own)
            raise UserError(f"--listen: name the address towards the other machine: {there}")
        address = str(own[0])
    try:
        if ipaddress.IPv4Address(address).is_unspecified or int(port or 1) not in range(1, 65536):
            raise ValueError
        with socket.create_server((address, int(port or 0))) as free:
            return address, int(free.getsockname()[1])
    except ValueError:
        raise UserError(
            f"--listen {text}: use ADDRESS[:PORT]: an IPv4 address of this machine, and a port from 1 to 65535"
        ) from None
    except OSError as error:
        raise UserError(f"--listen {text or address}: {os.strerror(error.errno or 0)}") from None


def configuration(folder: Path, address: str, port: int, user: str) -> str:
    """The text of sshd_config."""
    # The folder is the user's alone; what it lies in may be anybody's, as /tmp is.
    by_root = os.geteuid() == 0
    return sshd.configuration(folder, address, port, [user], by_root=by_root, strict=False) + _MORE


@contextmanager
def _guarded(argv: list[str], folder: Path, log: IO[bytes]) -> Iterator[int]:
    """The process of a guard, beneath which sshd runs within this; its end is both of theirs.

    The guard lives until sshd ends, or `serve` does, however; then it puts everything back.
    """
    ends, alive = os.pipe()
    if guard := os.fork():
        try:
            os.close(ends)
            yield guard
        finally:
            os.close(alive)
            with suppress(ChildProcessError):
                os.waitpid(guard, 0)
        return
    try:
        os.close(alive)
        os.setsid()  # Ctrl-C is for `serve`
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        _own_orphans()
        die = ctypes.CDLL(None).prctl
        server = subprocess.Popen(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: die(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
        )
        while server.poll() is None and not select.select([ends], [], [], _TICK_S * 4)[0]:
            pass
    except OSError as error:
        os.write(log.fileno(), str(error).encode())
    finally:
        _put_back(folder)
        os._exit(0)


def _wait_until_ready(address: str, port: int, guard: int, log: IO[bytes]) -> None:
    """Wait until sshd listens. Raises UserError."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, guard, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        with suppress(OSError), socket.create_connection((address, port), _TICK_S):
            return
        time.sleep(_TICK_S)
    raise UserError(f"the SSH server did not start{_last_words(log)}")


def _last_words(log: IO[bytes]) -> str:
    """The last words of sshd, behind a colon; empty where it said nothing."""
    lines = os.pread(log.fileno(), 1 << 16, 0).decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


def _own_orphans() -> None:
    """Become the parent of whatever a descendant leaves behind, so that nothing gets out of sight."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _put_back(folder: Path) -> None:
    """End all that runs beneath this process, and take the folder with the keys away.

    SSH's own programs end at once. The others see the end of their input, and have time to put back what they changed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    deadline = time.monotonic() + GRACE_S
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline + GRACE_S:
        for each in left:
            with suppress(psutil.Error):
                if each.name().startswith("sshd") or time.monotonic() > deadline:
                    each.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_TICK_S)
