"""What of the benchmark was asked for, checked before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pareto import profile_files
from pareto.backends import names
from pareto.errors import UserError
from pareto.link import units
from pareto.link.profile import Profile

WAYS = ("floor", "tcp", "rpc", "naive", "asyncio")
FLOOR = "floor"
LOOPBACK, VETH, NETEM = PLACES = ("loopback", "veth", "netem")
MOST_BYTES = 256_000_000
MOST_THREADS = 64
QUICK_ROUNDS, ROUNDS = 3, 15

_T = TypeVar("_T")


@dataclass(frozen=True)
class Way:
    """name: one of `WAYS`, or a variant of a backend. threads: of rpc's agents; None where that is nothing to ask."""

    name: str
    threads: int | None = None
    alone: bool = False
    """Whether the thread counts of rpc are compared: then each is a way."""

    @property
    def family(self) -> str:
        """The name without its variant."""
        return self.name.partition(names.SEPARATOR)[0]

    @property
    def label(self) -> str:
        return f"{self.name}:{self.threads}" if self.alone else self.name


@dataclass(frozen=True)
class Asked:
    """sizes: of payloads, in bytes, rising. profiles: one shaped link after another. busy: also with a busy thread."""

    places: tuple[str, ...]
    profiles: tuple[Profile, ...]
    ways: tuple[Way, ...]
    sizes: tuple[int, ...]
    rounds: int
    seed: int
    busy: bool
    quick: bool


def asked(
    *,
    places: str,
    netem: str,
    ways: str,
    sizes: str,
    rounds: int | None,
    seed: int,
    rpc_threads: str,
    busy: bool,
    quick: bool,
) -> Asked:
    """From the command line's texts, lists with commas. Raises UserError, UserError."""
    where = _each("--places", places, lambda text: _known("--places", text, PLACES))
    many = _each("--rpc-threads", rpc_threads, lambda text: _count("--rpc-threads", text, MOST_THREADS))
    named = _each("--ways", ways, _way)
    if rounds is not None and not 1 <= rounds <= 1000:
        raise UserError(f"--rounds {rounds}: give a number from 1 to 1000")
    return Asked(
        where,
        _each("--netem", netem, profile_files.load) if NETEM in where else (),
        tuple(way for name in named for way in _variants(name, many)),
        tuple(sorted(_each("--sizes", sizes, _size))),
        rounds or (QUICK_ROUNDS if quick else ROUNDS),
        seed,
        busy,
        quick,
    )


def _variants(name: str, threads: tuple[int, ...]) -> tuple[Way, ...]:
    if Way(name).family != "rpc":
        return (Way(name),)
    return tuple(Way(name, count, alone=len(threads) > 1) for count in threads)


def _each(option: str, text: str, read: Callable[[str], _T]) -> tuple[_T, ...]:
    """What the parts of a list are, each once, in the order given."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UserError(f"{option} is empty: leave it out, or name at least one")
    return tuple(dict.fromkeys(read(part) for part in parts))


def _known(option: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise UserError(f"{option}: there is no {text!r}: use {', '.join(known)}")
    return text


def _way(text: str) -> str:
    if text.partition(names.SEPARATOR)[0] not in names.VARIANTS:
        return _known("--ways", text, WAYS)
    try:
        found = names.parse(text)
    except ValueError as error:
        raise UserError(f"--ways: {error}") from None
    if found.label:
        raise UserError(
            f"--ways: {text!r} has a label, which a benchmark does not take: use {found.transport}"
        )
    return text


def _count(option: str, text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise UserError(f"{option}: {text!r} is not a number from 1 to {most}")
    return int(text)


def _size(text: str) -> int:
    try:
        nbytes = units.size_bytes(text, "size")
    except ValueError as error:
        raise UserError(f"--sizes: {error}") from None
    if not 1 <= nbytes <= MOST_BYTES:
        raise UserError(f"--sizes: {text!r} is not from 1B to {MOST_BYTES // 1_000_000}MB")
    return nbytes
