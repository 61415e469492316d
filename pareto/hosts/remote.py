"""One host of a testbed, logged in to: files go over once by content hash, programs start and talk JSON lines."""

from __future__ import annotations

import hashlib
import io
import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

import paramiko

from pareto.hosts import ssh
from pareto.hosts.session import Session

REPOSITORY = Path(__file__).resolve().parents[2]
_TRAVELS = (
    "pareto/__init__.py",
    "pareto/jsonlines.py",
    "pareto/worker",
    "pareto/backends",
    "pareto/link",
    "partitions",
)
TRANSFER_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Host:
    """A host as the testbed describes it."""

    login: ssh.Login
    data_address: str
    data_interface: str
    cache: str
    python: str
    threads: int = 1
    core: int | None = None
    cpu_share: float = 1.0

    @property
    def name(self) -> str:
        return self.login.name


class Remote:
    """A logged-in host. Raises ssh.Unreachable."""

    def __init__(self, host: Host, key: paramiko.PKey) -> None:
        self.host = host
        self._client = ssh.connect(host.login, key)
        self._code: str | None = None
        self._checked(f"mkdir -p {shlex.quote(host.cache)}")

    def ship(self, data: bytes | Path, name: str) -> str:
        """Put a file into the host's cache unless it is there; `name` carries its content's hash."""
        target = f"{self.host.cache}/{name}"
        if self._run(f"test -e {shlex.quote(target)}") != 0:
            source = io.BytesIO(data) if isinstance(data, bytes) else data.open("rb")
            quoted = shlex.quote(target)
            with source:
                self._checked(
                    f"mkdir -p {shlex.quote(self.host.cache)} && cat > {quoted}.part && mv {quoted}.part {quoted}",
                    source,
                )
        return target

    def start(self, module: str, *arguments: str) -> Session:
        """Start `python -m module` in the shipped code; its stderr goes to a log beside it."""
        code = self._ship_code()
        log = f"{self.host.cache}/{module}.log"
        environment = {
            "OMP_NUM_THREADS": str(self.host.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TP_SOCKET_IFNAME": self.host.data_interface,
            "GLOO_SOCKET_IFNAME": self.host.data_interface,
        }
        settings = [f"{key}={value}" for key, value in environment.items()]
        argv = shlex.join(["env", *settings, self.host.python, "-m", module, *arguments])
        command = f"cd {shlex.quote(code)} && exec {argv} 2>>{shlex.quote(log)}"
        return Session(self.host.name, ssh.ChannelWire(self._client, command, log))

    def close(self) -> None:
        self._client.close()

    def _ship_code(self) -> str:
        if self._code is None:
            archive = _archive()
            self._code = f"{self.host.cache}/code-{hashlib.sha256(archive).hexdigest()[:16]}"
            if self._run(f"test -d {shlex.quote(self._code)}") != 0:
                part = shlex.quote(self._code + ".part")
                unpack = f"mkdir -p {part} && tar -xf - -C {part} && mv {part} {shlex.quote(self._code)}"
                self._checked(unpack, io.BytesIO(archive))
        return self._code

    def _run(self, command: str, stdin: io.BufferedIOBase | None = None) -> int:
        return self._execute(command, stdin)[0]

    def _checked(self, command: str, stdin: io.BufferedIOBase | None = None) -> None:
        status, words = self._execute(command, stdin)
        if status != 0:
            raise ssh.Unreachable(f"{self.host.name}: {words.strip() or f'exit status {status}'}")

    def _execute(self, command: str, stdin: io.BufferedIOBase | None) -> tuple[int, str]:
        transport = self._client.get_transport()
        assert transport is not None  # noqa: S101
        try:
            channel = transport.open_session()
            channel.settimeout(TRANSFER_TIMEOUT_S)
            channel.exec_command(command)
            while stdin is not None and (block := stdin.read(1 << 18)):
                channel.sendall(block)
            channel.shutdown_write()
            words = channel.makefile_stderr("rb").read().decode(errors="replace")
            return channel.recv_exit_status(), words
        except (OSError, paramiko.SSHException) as error:
            raise ssh.Unreachable(f"{self.host.name}: {error}") from error


def _archive() -> bytes:
    """The code that travels, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for file in sorted(_files()):
            info = tarfile.TarInfo(str(file.relative_to(REPOSITORY)))
            content = file.read_bytes()
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _files() -> list[Path]:
    paths = [REPOSITORY / entry for entry in _TRAVELS]
    return [f for path in paths for f in ([path] if path.is_file() else path.rglob("*.py"))]
