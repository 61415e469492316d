"""Shipments to a host: code and files, once, by the hash of their content. Needs `sh` and `tar` there."""

from __future__ import annotations

import hashlib
import shlex
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pareto.hosts.connection import Connection, Unreachable

REPOSITORY = Path(__file__).resolve().parents[2]
_TRAVELS = ("pareto/__init__.py", "pareto/protocol", "pareto/remote", "pareto/partitions")
TRANSFER_TIMEOUT_S = 60.0
"""How long a transfer may stand still."""
SLOWEST_DISK_BYTES_S = 4e6
"""A worn SD card: until all is on disk, nothing moves."""
_BLOCK_BYTES = 1 << 18
_LAST = ".last"
_PART = '"$part"'


def absolute(connection: Connection, folder: str) -> str:
    """A folder of that host: what is not absolute is in the user's home. Raises Unreachable."""
    if folder.startswith("/"):
        return folder
    return f"{_checked(connection, 'cd && pwd').strip()}/{folder.removeprefix('~/')}"


@dataclass(frozen=True)
class Parcel:
    """A file for a host. name: carries its content's hash. size: in bytes. blocks: its content, anew at each call."""

    name: str
    size: int
    blocks: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, data: bytes | Path, name: str) -> Parcel:
        """The parcel of a file's content, or of these bytes. Raises OSError."""
        if isinstance(data, bytes):
            return cls(name, len(data), lambda: [data])
        return cls(name, data.stat().st_size, partial(_blocks, data))


def ship(connection: Connection, folder: str, data: bytes | Path, name: str) -> str:
    """Put a file into `folder` unless it is there; `name` carries its content's hash. Raises Unreachable."""
    if lacking(connection, folder, [name]):
        send(connection, folder, [Parcel.of(data, name)])
    return f"{folder}/{name}"


def lacking(connection: Connection, folder: str, names: Collection[str]) -> set[str]:
    """Those of these files that `folder` lacks. Raises Unreachable."""
    asked = "".join(f"{name}\n" for name in names).encode()
    # A folder that is not there has no file.
    command = f'while read -r name; do [ -e {shlex.quote(folder)}/"$name" ] || echo "$name"; done'
    return set(_checked(connection, command, [asked]).split()).intersection(names)


def send(
    connection: Connection,
    folder: str,
    parcels: Sequence[Parcel],
    sent: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Put all of these files into `folder`, or none of them, in one go. Raises Unreachable.

    sent: gets the bytes of each block that was taken. Some megabytes may still be on their way, in both ends' buffers.
    """
    at = shlex.quote(folder)
    # Several drivers may send at once, and hosts may share a disk: what comes lands in a folder that is named for its
    # host and its running shell; those that others left are removed.
    ended = 'pid=${part%.part}; ! kill -0 "${pid##*.}" 2>/dev/null'
    others = f'for part in {at}/"$(uname -n)".*.part; do {ended} && rm -rf {_PART}; done'
    own = f'part={at}/"$(uname -n)".$$.part; rm -rf {_PART} && mkdir {_PART}'
    # A connection that is lost looks like the end of the input over there, and tar takes an archive that ends between
    # two of its files for a whole one: so the last file says that it is the last.
    nbytes = sum(parcel.size for parcel in parcels)
    free = f"df -Pk {_PART} | {{ read -r head; read -r disk all used free rest; echo $free; }}"
    too_little = (
        f'words="$((free * 1024 / 1000000)) MB are free for "{at}", and {nbytes / 1e6:.0f} MB are to come"'
    )
    room = f'free=$({free}) && {{ ! [ "$free" -lt {nbytes >> 10} ] || {{ {too_little}; false; }}; }}'
    unpack = f"mkdir -p {at} && {{ {others}; {own}; }} && {room} && words=$(tar -xmf - -C {_PART} 2>&1)"
    whole = f"{{ rm {_PART}/{_LAST} 2>/dev/null || {{ words='it did not arrive whole'; false; }}; }}"
    # Power that goes would leave a name without its content, if the content were not on disk first.
    keep = f"sync && mv -f {_PART}/* {at} && rmdir {_PART}"
    # tar's first line is why, its last that it failed.
    failed = f'{{ [ -z "$words" ] || echo "$words" | head -n 1 >&2; rm -rf {_PART}; exit 1; }}'
    command = f"{unpack} && {whole} && {keep} || {failed}"
    blocks = _archive([*parcels, Parcel.of(b"", _LAST)], sent)
    _checked(connection, command, blocks, nbytes / SLOWEST_DISK_BYTES_S)


def _archive(parcels: Sequence[Parcel], sent: Callable[[int], None]) -> Iterator[bytes]:
    """The blocks of a tar of parcels, made while it is read, so that none of it has to be in memory, or in a file."""
    for parcel in parcels:
        info = tarfile.TarInfo(parcel.name)
        info.size, info.mode = parcel.size, 0o644
        yield info.tobuf(tarfile.GNU_FORMAT)
        left = parcel.size
        for block in parcel.blocks():
            yield block
            sent(len(block))
            left -= len(block)
        if left:
            raise OSError(f"{parcel.name} has {parcel.size - left} bytes, not {parcel.size}")
        yield bytes(-parcel.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def code() -> tuple[dict[str, bytes], str]:
    """The code that travels, as its files by name, and its digest."""
    content = files(REPOSITORY, _TRAVELS)
    return content, hashlib.sha256(packed(content)).hexdigest()


def ship_code(connection: Connection, folder: str) -> str:
    """The folder in `folder` to start the code that travels in, once it is there. Raises Unreachable."""
    content, digest = code()
    name = f"code-{digest[:16]}"
    if lacking(connection, folder, [name]):
        try:
            send(connection, folder, [Parcel.of(data, f"{name}/{file}") for file, data in content.items()])
        except Unreachable:
            # Another driver may be first at any moment, and no folder is moved onto one that is there.
            if lacking(connection, folder, [name]):
                raise
    return f"{folder}/{name}"


def _checked(connection: Connection, command: str, stdin: Iterable[bytes] = (), more_s: float = 0.0) -> str:
    outcome = connection.run(command, stdin, timeout_s=TRANSFER_TIMEOUT_S + more_s)
    if outcome.status != 0:
        raise Unreachable(f"{connection}: {outcome.words}")
    return outcome.out


def files(root: Path, entries: Iterable[str]) -> dict[str, bytes]:
    """The content of the Python files that are the entries of `root`, or lie in them, by their names in an archive."""
    paths = [root / entry for entry in entries]
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*.py"))
    }


def packed(content: dict[str, bytes]) -> bytes:
    """A tar of files by their names in it, the same bytes for the same files."""
    parcels = [Parcel.of(data, name) for name, data in sorted(content.items())]
    return b"".join(_archive(parcels, lambda nbytes: None))
