"""One host of a testbed, within reach: files go over once by content hash, programs start and talk JSON lines."""

from __future__ import annotations

import shlex
from pathlib import Path

from pareto.hosts import privileged, shipping
from pareto.hosts.connection import Connection
from pareto.hosts.host import Host
from pareto.hosts.session import Session


class Remote:
    """A host and the connection to it. Its methods raise Unreachable."""

    def __init__(self, host: Host, connection: Connection) -> None:
        self.host = host
        self.connection = connection
        self._code = ""

    def ship(self, data: bytes | Path, name: str) -> str:
        """Put a file into the host's folder unless it is there; `name` carries its content's hash."""
        return shipping.ship(self.connection, self.host.folder, data, name)

    def start(self, module: str, *arguments: str) -> Session:
        """Start `python -m module` in the shipped code; its stderr goes to a log beside it."""
        if not self._code:
            self._code = shipping.ship_code(self.connection, self.host.folder)
        settings = {
            "OMP_NUM_THREADS": str(self.host.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{self.host.folder}/inductor",
            "TP_SOCKET_IFNAME": self.host.data_interface,
            "GLOO_SOCKET_IFNAME": self.host.data_interface,
        }
        environment = [f"{key}={value}" for key, value in settings.items()]
        argv = shlex.join(["env", *environment, self.host.python, "-m", module, *arguments])
        return self._open(f"cd {shlex.quote(self._code)} && {argv}", module)

    def start_privileged(self, *, as_root: bool) -> Session:
        """Start the program that shapes the link; `as_root` where the connection is root's own."""
        return self.start("pareto.link") if as_root else self._open(privileged.COMMAND, "pareto.link")

    def renew(self) -> None:
        """Make sure that the host answers, logging in again where it does not."""
        self.connection.renew()
        self._code = ""  # it may come back without its files

    def close(self) -> None:
        self.connection.close()

    def _open(self, command: str, module: str) -> Session:
        log = f"{self.host.folder}/{module}.log"
        # The shell stays, to say in the log what the program itself no longer can.
        words = '"killed by signal $((status - 128))$([ $status -ne 137 ] || echo ": out of memory?")"'
        killed = f"[ $status -le 128 ] || echo {words} >>{shlex.quote(log)}"
        script = f"{{ {command}; }} 2>{shlex.quote(log)}; status=$?; {killed}"
        return Session(self.host.name, self.connection.open(script, log))
