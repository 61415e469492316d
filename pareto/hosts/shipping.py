"""What goes over to a host: code and files, once, by the hash of their content. Needs `sh` and `tar` there."""

from __future__ import annotations

import hashlib
import io
import shlex
import tarfile
from pathlib import Path
from typing import IO

from pareto.hosts.way import Unreachable, Way

REPOSITORY = Path(__file__).resolve().parents[2]
_TRAVELS = (
    "pareto/__init__.py",
    "pareto/constants.py",
    "pareto/errors.py",
    "pareto/jsonlines.py",
    "pareto/worker",
    "pareto/backends",
    "pareto/link",
    "partitions",
)
TRANSFER_TIMEOUT_S = 60.0
"""How long a transfer may stand still."""


def absolute(way: Way, folder: str) -> str:
    """A folder of that host: what is not absolute is in the user's home. Raises Unreachable."""
    if folder.startswith("/"):
        return folder
    return f"{_checked(way, 'cd && pwd').strip()}/{folder.removeprefix('~/')}"


def ship(way: Way, folder: str, data: bytes | Path, name: str) -> str:
    """Put a file into `folder` unless it is there; `name` carries its content's hash. Raises Unreachable."""
    target = f"{folder}/{name}"
    quoted = shlex.quote(target)
    if way.run(f"test -e {quoted}").status != 0:
        with io.BytesIO(data) if isinstance(data, bytes) else data.open("rb") as source:
            size = source.seek(0, io.SEEK_END)
            source.seek(0)
            # A connection that is lost looks like the end of the file over there.
            whole = f'[ "$(wc -c < {quoted}.part)" -eq {size} ]'
            # Power that goes would leave a name without its content, if the content were not on disk first.
            command = f"mkdir -p {shlex.quote(folder)} && cat > {quoted}.part && {whole} && sync"
            _checked(
                way, f"{command} && mv {quoted}.part {quoted} || {{ rm -f {quoted}.part; exit 1; }}", source
            )
    return target


def ship_code(way: Way, folder: str) -> str:
    """The code that travels, unpacked in `folder`; the folder to start it in. Raises Unreachable."""
    archive = _archive()
    name = f"code-{hashlib.sha256(archive).hexdigest()[:16]}"
    code = f"{folder}/{name}"
    if way.run(f"test -d {shlex.quote(code)}").status != 0:
        # As a file first: tar takes an archive that ends between two of its files for a whole one.
        packed = shlex.quote(ship(way, folder, archive, f"{name}.tar"))
        part = shlex.quote(code + ".part")
        unpack = f"mkdir -p {part} && tar -xf {packed} -C {part} && sync && mv {part} {shlex.quote(code)}"
        _checked(way, f"{unpack} && rm {packed} || {{ rm -rf {part} {packed}; exit 1; }}")
    return code


def _checked(way: Way, command: str, stdin: IO[bytes] | None = None) -> str:
    outcome = way.run(command, stdin, timeout_s=TRANSFER_TIMEOUT_S)
    if outcome.status != 0:
        raise Unreachable(f"{way}: {outcome.words}")
    return outcome.out


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
