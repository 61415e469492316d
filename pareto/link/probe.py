"""Was the link what the profile says? The verdict on a reading; whoever has the sockets takes the reading."""

from __future__ import annotations

from dataclasses import dataclass

from pareto.link.profile import Direction, Profile
from pareto.link.units import show_delay, show_rate

GOODPUT = 1448 / 1514
"""TCP payload in each byte on the wire: Ethernet, IPv4, TCP with timestamps, MTU 1500."""

_BULK_S = 0.1
_MIN_BULK_BYTES, _MAX_BULK_BYTES = 48_000, 4_000_000


@dataclass(frozen=True)
class Reading:
    """What a probe measured: round trip in seconds, TCP goodput edge to server and back in bit/s.

    None: not measured.
    """

    rtt_s: float
    rate_bps: float | None
    rate_back_bps: float | None


@dataclass(frozen=True)
class Tolerance:
    """How far a reading may be off: fractions of what was asked, and at least `rtt_floor_s` for the RTT."""

    rtt_fraction: float = 0.10
    rtt_floor_s: float = 0.005
    rate_fraction: float = 0.10


def expected(profile: Profile) -> tuple[float, float | None]:
    """The RTT in seconds and the goodput edge to server in bit/s (None: not limited) to be read."""
    return profile.rtt_s, _goodput(profile.edge_to_server)


def judge(profile: Profile, reading: Reading, tolerance: Tolerance | None = None) -> str:
    """Empty if the reading is within tolerance, else one line with each thing that is not.

    A rate that was not asked, or not measured, is not judged. Too fast is as wrong as too slow: those bytes
    did not cross the link.
    """
    tolerance = tolerance or Tolerance()
    faults = []
    allowed = max(tolerance.rtt_fraction * profile.rtt_s, tolerance.rtt_floor_s)
    # `not <=` rather than `>`: a NaN is a fault too.
    if not abs(reading.rtt_s - profile.rtt_s) <= allowed:
        faults.append(
            f"RTT {show_delay(reading.rtt_s)}, asked {show_delay(profile.rtt_s)} "
            f"(tolerance {show_delay(allowed)})"
        )
    for way, direction, measured in (
        ("edge to server", profile.edge_to_server, reading.rate_bps),
        ("server to edge", profile.server_to_edge, reading.rate_back_bps),
    ):
        goodput = _goodput(direction)
        if goodput is None or measured is None:
            continue
        if not abs(measured - goodput) <= tolerance.rate_fraction * goodput:
            faults.append(
                f"rate {way} {show_rate(measured)}, asked {show_rate(goodput)} of payload "
                f"(tolerance {tolerance.rate_fraction:.0%})"
            )
    return "; ".join(faults)


def bulk_bytes(rate_bps: float | None) -> int:
    """Bytes that a rate probe sends: what the link carries in 100 ms, within 48 kB and 4 MB."""
    if rate_bps is None:
        return _MAX_BULK_BYTES
    return min(max(int(rate_bps / 8 * _BULK_S), _MIN_BULK_BYTES), _MAX_BULK_BYTES)


def _goodput(direction: Direction) -> float | None:
    return None if direction.rate_bps is None else direction.rate_bps * GOODPUT
