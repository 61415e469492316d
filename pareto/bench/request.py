"""What `bench transport` measures: the request, checked before anything is built, and the effort for each payload."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pareto import profile_files
from pareto.backends import registry
from pareto.constants import GOODPUT, MOST_IN_FLIGHT
from pareto.errors import UserError
from pareto.link import units
from pareto.link.profile import Profile

FLOOR = "floor"
WAYS = (FLOOR, *registry.BACKENDS, "naive", "asyncio")
LOOPBACK, VETH, NETEM = PLACES = ("loopback", "veth", "netem")
MOST_BYTES = 256_000_000
QUICK_ROUNDS, ROUNDS = 3, 15
SAMPLE_S, QUICK_SAMPLE_S = 0.05, 0.01
"""The least that a sample lasts: many times what a scheduler's turn takes."""
MOST_TRIPS, MOST_PAYLOADS = 2000, 20_000
LONGEST_S, LONGEST_STREAMED_S = 2.0, 1.0
"""A payload that takes a link longer is left out, or is not streamed: all ways take what so slow a link takes."""
LONG_S, SLOW_ROUNDS = 0.1, 7
"""A payload that takes longer gets so many rounds, and two payloads a stream: the link varies little."""
LEAST_PAYLOADS, LEAST_LONG_PAYLOADS = 8, 2
IN_FLIGHT = 4
OVERHEAD_S, BARE_BPS = 0.02, 3e9
"""For the estimate: what it takes to ask for a sample, and what an unshaped link carries over all ways."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Request:
    """What is to be measured. ways: of `WAYS`, or a backend with a variant. sizes: of payloads, in bytes, rising."""

    places: tuple[str, ...]
    profiles: tuple[Profile, ...]
    ways: tuple[str, ...]
    sizes: tuple[int, ...]
    rounds: int
    seed: int
    quick: bool


def request(
    *, places: str, netem: str, ways: str, sizes: str, rounds: int | None, seed: int, quick: bool
) -> Request:
    """The request that the command line's texts make; lists have commas. Raises UserError."""
    wanted = _each("--places", places, lambda text: _known(text, PLACES))
    if rounds is not None and not 1 <= rounds <= 1000:
        raise UserError(f"--rounds {rounds}: give a number from 1 to 1000")
    return Request(
        wanted,
        _each("--netem", netem, profile_files.load) if NETEM in wanted else (),
        _each("--ways", ways, _way),
        tuple(sorted(_each("--sizes", sizes, _size))),
        rounds or (QUICK_ROUNDS if quick else ROUNDS),
        seed,
        quick,
    )


def _each(option: str, text: str, read: Callable[[str], _T]) -> tuple[_T, ...]:
    """The values of a list's parts, each once, in the order given. Raises UserError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UserError(f"{option} is empty: leave it out, or name at least one")
    try:
        return tuple(dict.fromkeys(map(read, parts)))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _known(text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise ValueError(f"there is no {text!r}: use {', '.join(known)}")
    return text


def _way(text: str) -> str:
    if text.partition(registry.SEPARATOR)[0] not in registry.BACKENDS:
        return _known(text, WAYS)
    backend = registry.parse(text)
    if backend.label:
        raise ValueError(f"{text!r} has a label, which a benchmark does not take: use {backend.transport}")
    return text


def _size(text: str) -> int:
    nbytes = units.size_bytes(text, "size")
    if not 1 <= nbytes <= MOST_BYTES:
        raise ValueError(f"{text!r} is not from 1B to {MOST_BYTES // 1_000_000}MB")
    return nbytes


@dataclass(frozen=True)
class Effort:
    """How much is measured of one size in one place, so that slow links take minutes and not hours."""

    nbytes: int
    link_s: float
    rounds: int
    streamed: bool
    in_flight: int
    sample_s: float

    def trips(self, trip_s: float) -> int:
        """How many trips make a sample, if one takes `trip_s`."""
        return min(max(math.ceil(self.sample_s / trip_s), 1), MOST_TRIPS)

    def payloads(self, payload_s: float) -> int:
        """How many payloads make a stream, if one takes `payload_s`."""
        least = LEAST_LONG_PAYLOADS if payload_s > LONG_S else LEAST_PAYLOADS
        return min(max(math.ceil(self.sample_s / payload_s), least), MOST_PAYLOADS)

    def estimate_s(self, ways: int) -> float:
        """The seconds of all its rounds, roughly."""
        payload_s = self.link_s or 8 * self.nbytes / BARE_BPS
        stream_s = self.payloads(payload_s) * payload_s if self.streamed else 0.0
        each_s = max(self.sample_s, payload_s) + max(stream_s, self.sample_s) + OVERHEAD_S
        return self.rounds * ways * each_s


def efforts(request: Request, profile: Profile | None) -> list[Effort]:
    """The effort for each size that the link carries in a bearable time. profile: None where nothing shapes it."""
    sample_s = QUICK_SAMPLE_S if request.quick else SAMPLE_S
    chosen = []
    for nbytes in request.sizes:
        link_s = link_seconds(profile, nbytes)
        rounds = min(request.rounds, SLOW_ROUNDS) if link_s > LONG_S else request.rounds
        streamed, in_flight = link_s <= LONGEST_STREAMED_S, _in_flight(profile, nbytes)
        if link_s <= LONGEST_S:
            chosen.append(Effort(nbytes, link_s, rounds, streamed, in_flight, sample_s))
    return chosen


def link_seconds(profile: Profile | None, nbytes: int) -> float:
    """The least that a round trip with such a payload takes; 0 where nothing shapes the link."""
    if profile is None:
        return 0.0
    rate_bps = profile.typical.edge_to_server.rate_bps
    return profile.rtt_s + (8 * nbytes / (rate_bps * GOODPUT) if rate_bps else 0.0)


def _in_flight(profile: Profile | None, nbytes: int) -> int:
    """Payloads of a stream under way: enough to keep the link busy for a round trip."""
    rate_bps = profile.typical.edge_to_server.rate_bps if profile else None
    held = math.ceil(rate_bps / 8 * profile.rtt_s / nbytes) if profile and rate_bps else 0
    return min(IN_FLIGHT + held, MOST_IN_FLIGHT)
