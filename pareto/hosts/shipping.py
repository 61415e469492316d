"""What goes over to a host: code and files, once, by the hash of their content. Needs `sh` and `tar` there."""

from __future__ import annotations

import hashlib
import io
import shlex
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from pareto.hosts.connection import Connection, Unreachable

REPOSITORY = Path(__file__).resolve().parents[2]
_TRAVELS = (
    "pareto/__init__.py",
    "pareto/constants.py",
    "pareto/errors.py",
    "pareto/jsonlines.py",
    "pareto/messages.py",
    "pareto/validation.py",
    "pareto/worker",
    "pareto/backends",
    "pareto/codecs",
    "pareto/link",
    "partitions",
)
TRANSFER_TIMEOUT_S = 60.0
"""How long a transfer may stand still."""


def absolute(connection: Connection, folder: str) -> str:
    """A folder of that host: what is not absolute is in the user's home. Raises Unreachable."""
    if folder.startswith("/"):
        return folder
    return f"{_checked(connection, 'cd && pwd').strip()}/{folder.removeprefix('~/')}"


def ship(connection: Connection, folder: str, data: bytes | Path, name: str) -> str:
    """Put a file into `folder` unless it is there; `name` carries its content's hash. Raises Unreachable."""
    target = f"{folder}/{name}"
    quoted = shlex.quote(target)
    if connection.run(f"test -e {quoted}").status != 0:
        with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as source:
            size = source.seek(0, io.SEEK_END)
            source.seek(0)
            # A connection that is lost looks like the end of the file over there.
            whole = f'[ "$(wc -c < {quoted}.part)" -eq {size} ]'
            # Power that goes would leave a name without its content, if the content were not on disk first.
            command = f"mkdir -p {shlex.quote(folder)} && cat > {quoted}.part && {whole} && sync"
            _checked(
                connection,
                f"{command} && mv {quoted}.part {quoted} || {{ rm -f {quoted}.part; exit 1; }}",
                source,
            )
    return target


def ship_code(connection: Connection, folder: str) -> str:
    """The code that travels, unpacked in `folder`; the folder to start it in. Raises Unreachable."""
    archive = packed(files(REPOSITORY, _TRAVELS))
    name = f"code-{hashlib.sha256(archive).hexdigest()[:16]}"
    code = f"{folder}/{name}"
    if connection.run(f"test -d {shlex.quote(code)}").status != 0:
        # As a file first: tar takes an archive that ends between two of its files for a whole one.
        tar = shlex.quote(ship(connection, folder, archive, f"{name}.tar"))
        part = shlex.quote(code + ".part")
        unpack = f"mkdir -p {part} && tar -xf {tar} -C {part} && sync && mv {part} {shlex.quote(code)}"
        _checked(connection, f"{unpack} && rm {tar} || {{ rm -rf {part} {tar}; exit 1; }}")
    return code


def _checked(connection: Connection, command: str, stdin: IO[bytes] | None = None) -> str:
    outcome = connection.run(command, stdin, timeout_s=TRANSFER_TIMEOUT_S)
    if outcome.status != 0:
        raise Unreachable(f"{connection}: {outcome.words}")
    return outcome.out


def files(root: Path, entries: Iterable[str]) -> dict[str, Path]:
    """The Python files that are the entries of `root`, or lie in them, by their names in an archive."""
    paths = [root / entry for entry in entries]
    return {
        file.relative_to(root).as_posix(): file
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*.py"))
    }


def packed(content: dict[str, Path]) -> bytes:
    """A tar of files by their names in it, the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, file in sorted(content.items()):
            info = tarfile.TarInfo(name)
            data = file.read_bytes()
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
