"""A profile in words, for plans and lists."""

from __future__ import annotations

from pareto.link.profile import Direction, Gilbert, Profile
from pareto.link.units import show_delay, show_rate


def describe(profile: Profile) -> str:
    """`edge to server 200 ms at 5 Mbit/s, 1% lost; server to edge ...`."""
    ways = {"edge to server": profile.edge_to_server, "server to edge": profile.server_to_edge}
    told = [f"{way} {_direction(direction)}" for way, direction in ways.items() if direction.shaped]
    by = f" (shaper {profile.shaper})" if profile.bucket else ""
    return ("; ".join(told) or "not shaped") + by


def _direction(direction: Direction) -> str:
    typical = direction.typical
    delay = show_delay(typical.delay_s) if typical.delay_s else ""
    if direction.jitter_s:
        delay = f"{delay} +-{show_delay(direction.jitter_s)}"
    rate = show_rate(typical.rate_bps) if typical.rate_bps is not None else ""
    parts = [" at ".join(part for part in (delay, rate) if part)]
    if direction.trace is not None:
        parts.append(f"on average over the {direction.trace.period_s:.4g} s of {direction.trace.name}")
    bursts = " in bursts" if isinstance(direction.loss, Gilbert) else ""
    for share, what in (
        (direction.mean_loss, f"lost{bursts}"),
        (direction.duplicate, "repeated"),
        (direction.reorder, "reordered"),
        (direction.corrupt, "corrupted"),
    ):
        if share:
            parts.append(f"{100 * share:.3g}% {what}")
    if direction.limit_bytes is not None:
        parts.append(f"a queue of {direction.limit_bytes} bytes")
    return ", ".join(part for part in parts if part)
