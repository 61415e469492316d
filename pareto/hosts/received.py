"""The files that drivers send to a machine that serves: named by the digest of their content, no Python among them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from pareto.errors import UserError
from pareto.hosts.channel import Channel
from pareto.jsonlines import SILENCE_LIMIT_S, Refused

MOST_FILE_BYTES = 16 << 30
MOST_KEPT_BYTES = 32 << 30
"""Of all files that drivers sent. The oldest make room."""
LEAST_FREE_BYTES = 1 << 30
"""What files leave free on the disk."""
NO_CODE = (
    "a model or codec of your own is code, and serve runs only what it was started with: --allow FILE, with the very "
    "same file"
)
_BLOCK_BYTES = 1 << 18


class Files:
    """What drivers sent. One `serve` has the folder at a time."""

    def __init__(self, folder: Path, allowed: Sequence[Path]) -> None:
        """Raises UserError."""
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (folder / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in [*folder.glob("*.part"), *folder.glob("*.py")]:
                left.unlink()
            for file in allowed:
                code = file.read_bytes()
                (folder / f"{hashlib.sha256(code).hexdigest()}.py").write_bytes(code)
        except BlockingIOError:
            raise UserError(f"{folder}: another serve uses it: name another one by --folder") from None
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror}") from None

    def has(self, name: str) -> bool:
        """Raises Refused for Python that is not allowed."""
        path = self.folder / name
        there = path.is_file()
        if there:
            os.utime(path)
        elif name.endswith(".py"):
            raise Refused(NO_CODE)
        return there

    def make_room(self, size: int) -> None:
        """Remove the oldest files, until another one fits. Raises Refused."""
        if size > MOST_FILE_BYTES:
            raise Refused(f"a file of {size} bytes: at most {MOST_FILE_BYTES >> 30} GiB are taken")
        sent = sorted(self.folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
        kept = sum(path.stat().st_size for path in sent)
        while sent and (kept + size > MOST_KEPT_BYTES or self._free() < size + LEAST_FREE_BYTES):
            kept -= sent[0].stat().st_size
            sent.pop(0).unlink()
        if self._free() < size + LEAST_FREE_BYTES:
            raise Refused(f"no room for {size} bytes on the disk of {self.folder}")

    def take(self, name: str, size: int, come: Channel) -> None:
        """Receive a file, all of it or nothing. Raises Refused, OSError."""
        part = self.folder / f"{secrets.token_hex(8)}.part"
        digest, left = hashlib.sha256(), size
        try:
            with part.open("wb") as file:
                while left:
                    block = come.receive(SILENCE_LIMIT_S, min(left, _BLOCK_BYTES))
                    if not block:
                        raise Refused(f"{name} did not come whole")
                    digest.update(block)
                    file.write(block)
                    left -= len(block)
                file.flush()
                os.fsync(file.fileno())
            if not name.startswith(digest.hexdigest()):
                raise Refused(f"{name} arrived damaged")
            part.replace(self.folder / name)
        finally:
            part.unlink(missing_ok=True)

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free
