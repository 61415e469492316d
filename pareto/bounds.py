"""What physics allows: the least latency and the greatest throughput that a link and two devices can give.

    latency    >= edge + server + delay out + delay back + payload / rate out + result / rate back
    throughput <= batch / max(edge, server, payload / rate out, result / rate back)

The rate is the profile's, on the wire: a bound that no protocol overhead loosens. Where the link varies, each term
is the least it can be: delay less jitter, less a token bucket's burst, at the best moment of the trace's part seen.
"""

from __future__ import annotations

from pareto.link.probe import GOODPUT, STILL, Span, delay_range_s
from pareto.link.profile import Bucket, Direction, Profile


def latency_s(
    profile: Profile,
    edge_s: float,
    server_s: float | None,
    payload_bytes: int,
    result_bytes: int,
    seen: Span = STILL,
) -> float:
    """Seconds. `server_s` is None at the last point, where nothing crosses."""
    if server_s is None:
        return edge_s
    delays = sum(delay_range_s(way, seen)[0] for way in profile.directions)
    transfers = sum(
        _least_transfer_s(way, nbytes, seen, profile.bucket)
        for way, nbytes in zip(profile.directions, (payload_bytes, result_bytes), strict=True)
    )
    return edge_s + server_s + delays + transfers


def throughput_ips(
    profile: Profile,
    batch_size: int,
    edge_s: float,
    server_s: float | None,
    payload_bytes: int,
    result_bytes: int,
    seen: Span = STILL,
) -> float:
    """Images a second. A bucket's burst is spent once, and gains nothing here."""
    if server_s is None:
        return batch_size / edge_s
    out, back = (
        _least_transfer_s(way, nbytes, seen)
        for way, nbytes in zip(profile.directions, (payload_bytes, result_bytes), strict=True)
    )
    return batch_size / max(edge_s, server_s, out, back)


def transfer_s(profile: Profile, payload_bytes: int, result_bytes: int) -> float:
    """What the slower direction needs for one request at TCP's goodput, in seconds: to foresee, not to bound."""
    sizes = zip(profile.typical.directions, (payload_bytes, result_bytes), strict=True)
    return max(8 * nbytes / way.rate_bps if way.rate_bps else 0.0 for way, nbytes in sizes) / GOODPUT


def _least_transfer_s(way: Direction, nbytes: int, seen: Span, bucket: Bucket | None = None) -> float:
    # A reordered packet passes by the line.
    queued = (1 - way.reorder) * nbytes
    if way.trace is not None:
        return way.trace.least_transfer_s(queued, *seen)
    if way.rate_bps is None:
        return 0.0
    return 8 * max(0.0, queued - (bucket.burst_bytes if bucket else 0)) / way.rate_bps
