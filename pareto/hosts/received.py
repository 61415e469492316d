"""The files that drivers send to a machine that serves: named by the digest of their content, no Python among them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from analysis import files
from analysis.escaping import short
from pareto.errors import UserError
from pareto.hosts.channel import FILE_NAME, Channel
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
_OURS = re.compile(
    rf"inductor a folder|(\.lock|pareto\.worker[.a-z]*\.log|[0-9a-f]{{16}}\.part|{FILE_NAME.pattern}) a file"
)
"""All that `serve` and its programs have in their folder, and of which kind it is."""
_BLOCK_BYTES = 1 << 18


class Files:
    """What drivers sent. One `serve` has the folder at a time."""

    def __init__(self, folder: Path, allowed: Sequence[Path]) -> None:
        """Raises UserError."""
        self.folder = folder
        self._coming: list[int] = []
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            there = files.listing(folder)
            ours = {
                name for name, kind in there.items() if ".lock" in there and _OURS.fullmatch(f"{name} {kind}")
            }
            if foreign := sorted(there.keys() - ours):
                raise UserError(
                    f"--folder {folder}: serve removes files there, and {short(foreign[0])} is not "
                    "its own: name an empty folder"
                )
            self._lock = os.fdopen(files.descriptor(folder / ".lock", os.O_WRONLY | os.O_CREAT), "w")
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
        """Remove the oldest files until another one fits, which `take` or `forget` is told of. Raises Refused."""
        if size > MOST_FILE_BYTES:
            raise Refused(f"a file of {size} bytes: at most {MOST_FILE_BYTES >> 30} GiB are taken")
        named = [path for path in self.folder.glob("*.safetensors") if FILE_NAME.fullmatch(path.name)]
        sent = sorted(named, key=lambda path: path.stat().st_mtime)
        coming = size + sum(self._coming)
        kept = sum(path.stat().st_size for path in sent)
        while kept + coming > MOST_KEPT_BYTES or self._free() < coming + LEAST_FREE_BYTES:
            if not sent:
                raise Refused(f"no room for {size} bytes in {self.folder}, with all that is on its way there")
            kept -= sent[0].stat().st_size
            sent.pop(0).unlink()
        self._coming.append(size)

    def forget(self, size: int) -> None:
        """What was to come is there, or does not come."""
        self._coming.remove(size)

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
            self.forget(size)
            part.unlink(missing_ok=True)

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free
