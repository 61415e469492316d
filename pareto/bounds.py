"""What physics allows: the least latency and the greatest throughput that a link and two devices can give.

    latency    >= edge + server + delay out + delay back + payload / rate out + result / rate back
    throughput <= batch / max(edge, server, payload / rate out, result / rate back)

The rate is the profile's, on the wire: a bound that no protocol overhead loosens.
"""

from __future__ import annotations

from pareto.link.probe import GOODPUT
from pareto.link.profile import Direction, Profile


def latency_s(
    profile: Profile, edge_s: float, server_s: float | None, payload_bytes: int, result_bytes: int
) -> float:
    """Seconds. `server_s` is None at the last point, where nothing crosses."""
    if server_s is None:
        return edge_s
    out, back = profile.edge_to_server, profile.server_to_edge
    crossing_s = (
        out.delay_s + back.delay_s + _transfer_s(out, payload_bytes) + _transfer_s(back, result_bytes)
    )
    return edge_s + server_s + crossing_s


def throughput_ips(
    profile: Profile,
    batch_size: int,
    edge_s: float,
    server_s: float | None,
    payload_bytes: int,
    result_bytes: int,
) -> float:
    """Images a second."""
    if server_s is None:
        return batch_size / edge_s
    out = _transfer_s(profile.edge_to_server, payload_bytes)
    back = _transfer_s(profile.server_to_edge, result_bytes)
    return batch_size / max(edge_s, server_s, out, back)


def transfer_s(profile: Profile, payload_bytes: int, result_bytes: int) -> float:
    """What the slower direction needs for one request at TCP's goodput, in seconds: to foresee, not to bound."""
    out = _transfer_s(profile.edge_to_server, payload_bytes)
    back = _transfer_s(profile.server_to_edge, result_bytes)
    return max(out, back) / GOODPUT


def _transfer_s(direction: Direction, nbytes: int) -> float:
    return 0.0 if direction.rate_bps is None else 8 * nbytes / direction.rate_bps
