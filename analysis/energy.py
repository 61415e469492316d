"""Which energy a point is charged with: the same devices' for every point that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

EDGE, SERVER, BOTH = "edge", "server", "edge + server"


def counted(cells: pd.DataFrame) -> tuple[str, pd.Series]:
    """The devices whose energy counts for the cells of one condition, and that energy: J per image, idle included.

    `cells`: `rounds`, `payload_bytes` and the medians `edge_energy_j` and `server_energy_j`, one row a cell.
    A device counts if it was measured in every cell that has a valid trial. Both count if both do, else the
    edge, else the server, else none ("" and NaN): the energy of one point's two devices is never set against
    the energy of another's one.

    Where nothing crosses the link, the server is asked for nothing, so its share is 0 J: known without a
    sensor. That alone does not make it measured: some point that uses the server must show its sensor.
    """
    edge = cells["edge_energy_j"]
    crosses = cells["payload_bytes"] != 0  # an unknown payload may have crossed
    server = cells["server_energy_j"].where(crosses, 0.0)
    valid = cells["rounds"] > 0
    has_edge = valid.any() and edge[valid].notna().all()
    has_server = (valid & crosses).any() and server[valid].notna().all()
    if has_edge and has_server:
        return BOTH, (edge + server).where(valid)
    if has_edge:
        return EDGE, edge.where(valid)
    if has_server:
        return SERVER, server.where(valid)
    return "", pd.Series(float("nan"), index=cells.index)


def note(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    """What a reader must know to judge the energies of some rows of the front: whose they are and what they hold.

    The idle power (W) is the manifest's (`sessions[].hosts.<role>.idle_power_w`); several sessions may have several.
    """
    devices = str(rows["energy_of"].iloc[0])
    roles = devices.split(" + ")
    idle = [f"{role} {power}" for role in roles if (power := _idle_power(manifest, role))]
    text = f"Energy: {devices}, by the devices' own sensors during the throughput phase, idle power included"
    text += f" ({', '.join(idle)})" if idle else ""
    if SERVER in roles and (rows["payload_bytes"] == 0).any():
        text += "; the server's share is 0 J where nothing crosses the link"
    return text + "."


def _idle_power(manifest: Mapping[str, Any], role: str) -> str:
    """`2.61 W`, or the span over sessions; empty where the manifest does not know it."""
    sessions = manifest.get("sessions")
    watts = []
    for session in sessions if isinstance(sessions, list) else []:
        power = _within(session, "hosts", role, "idle_power_w")
        if isinstance(power, int | float):
            watts.append(f"{power:.3g}")
    if not watts:
        return ""
    least, most = min(watts, key=float), max(watts, key=float)
    return f"{least} W" if least == most else f"{least}–{most} W"  # noqa: RUF001


def _within(value: Any, *keys: str) -> Any:
    """A value deep in a manifest that another version may have written; None where it is not."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
