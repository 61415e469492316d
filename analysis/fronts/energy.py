"""The energy that a point is charged with: the same devices' for every point that it is compared with.

The active energy is what they drew above their idle power, which a server that gets one byte would have drawn anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.runs.manifest import section, sessions, within
from pareto.analysis.runs.points import CELL, CONDITION, NONE, ROUND, TRIAL, hosts
from pareto.analysis.runs.standing import stands
from pareto.analysis.runs.treatments import STANDS_FOR, in_every_codec, pooled
from pareto.analysis.statistics.samples import Floats
from pareto.analysis.statistics.significance import median_intervals, medians, padded
from pareto.basics.escaping import short

EDGE, MIDDLE, SERVER = DEVICES = "edge", "middle", "server"
WHOLE, ACTIVE = "energy_j", "active_energy_j"
CROSSING = [f"crossing_{end}j_per_byte" for end in ("", "low_", "high_")]
_OF_COMPUTING = ["edge_active_energy_j", "edge_s", "decode_s"]
UNKNOWN = (
    "it is not known what a byte that crosses costs the edge: that needs its idle power, and the energy of the whole "
    "model on it in the same rounds"
)
_NEEDED = [*CELL, *ROUND, "status", STANDS_FOR, *_OF_COMPUTING, "wire_bytes", "payload_bytes"]


def with_middle(trials: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """The trials with `middle_energy_j` and `middle_active_energy_j`: J per image of all hosts between edge and server
    that took part; NaN where there was none, or where one has no sensor. Takes the frames of `analysis.runs.load`.
    """
    between = stages[stages["host"].str.startswith(MIDDLE)].groupby(TRIAL, dropna=False)[[WHOLE, ACTIVE]]
    energies_j = between.sum(min_count=1).where(between.count().eq(between.size(), axis=0))
    return trials.merge(energies_j.add_prefix(f"{MIDDLE}_").reset_index(), how="left", on=TRIAL)


def counted(cells: pd.DataFrame) -> tuple[str, pd.Series]:
    """The devices whose energy counts for the cells of one condition, and that energy: J per image, idle included.

    A device counts if it was measured in every cell with latency and throughput. All count if all do that ever took
    part, else the edge, else the server, else none ("" and NaN). A device without a time of its own was used for
    nothing: its share is 0 J without a sensor, if some point shows that it has one.
    """
    valid = cells[["latency_s", "throughput_ips"]].notna().all(axis=1)
    energy_j = {
        device: cells[f"{device}_{WHOLE}"].where(used, 0.0).where(valid)
        for device in DEVICES
        if (valid & (used := _used(device, cells))).any()
    }
    measured = [device for device, each in energy_j.items() if each[valid].notna().all()]
    if energy_j and len(measured) == len(energy_j):
        return " + ".join(energy_j), sum(energy_j.values(), start=pd.Series(0.0, index=cells.index))
    device = next((device for device in (EDGE, SERVER) if device in measured), "")
    return device, energy_j[device] if device else pd.Series(float("nan"), index=cells.index)


def charged(
    devices: str, cells: pd.DataFrame, energy_j: Mapping[str, Floats | pd.Series], which: str = WHOLE
) -> Floats:
    """The energy that counts, of these medians, by their columns: one a cell, or resamples x cells. devices: as of
    `counted`. which: `WHOLE`, or `ACTIVE`, of which less than 0 is noise and counts as 0.
    """
    if not devices:
        return np.full_like(energy_j[f"{EDGE}_{which}"], np.nan)
    shares = [np.where(_used(of, cells), energy_j[f"{of}_{which}"], 0.0) for of in devices.split(" + ")]
    if which == ACTIVE:
        shares = [np.maximum(share, 0.0) for share in shares]
    return np.asarray(sum(shares[1:], start=shares[0]))


def judged_by(cells: pd.DataFrame) -> str:
    """`ACTIVE`, if that is known wherever the whole is, of these cells of one condition; else `WHOLE`."""
    if ACTIVE not in cells:
        return WHOLE
    known = cells[WHOLE].notna()
    return ACTIVE if known.any() and cells.loc[known, ACTIVE].notna().all() else WHOLE


def _used(device: str, cells: pd.DataFrame) -> pd.Series:
    """Whether the cells use a device: the edge always, another one if it has a time of its own."""
    return cells[f"{device}_s"].notna() | (device == EDGE)


def with_crossing(front: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front with `CROSSING`: J per byte, the median over rounds, and from 6 rounds on its 95 % interval.

    It is what a byte that crosses costs the edge beyond its stage. Above idle the edge is taken to draw for an image
    (its power while it computes) x (the seconds of its stage) + (the joules of a byte) x (the bytes that it sends,
    after the codec, whose work is communication too). The power is that of the point where nothing crosses, in the
    same round, and taken to be the same for all units: one that draws more shows as communication; less than 0 is
    noise, or units that draw less than the mean. Nothing is known of the server, to which something crosses wherever
    it computes.
    """
    known = trials.loc[stands(trials) & trials["edge_active_energy_j"].notna()]
    known = pooled(in_every_codec(known.filter([*dict.fromkeys(_NEEDED)])))
    same = [*dict.fromkeys([*CONDITION, *ROUND])]
    alone = known.loc[known["backend"] == NONE, [*same, *_OF_COMPUTING]]
    rows = known.merge(alone, on=same, suffixes=("", "_alone"))
    files_s = rows["decode_s_alone"].fillna(0)  # to make pixels of a request's files: as long at each point
    share = (rows["edge_s"] + files_s) / (rows["edge_s_alone"] + files_s)
    beyond_j = rows["edge_active_energy_j"] - share * rows["edge_active_energy_j_alone"]
    sent = rows["wire_bytes"].fillna(rows["payload_bytes"]) / rows["batch_size"]
    rows = rows[CELL].assign(per_byte=beyond_j / sent.where(sent > 0)).dropna(subset="per_byte")
    number = rows.groupby(CELL, dropna=False, observed=True).ngroup()
    table = padded(rows["per_byte"].to_numpy(), number.to_numpy(), number.nunique())
    made = dict(zip(CROSSING, (medians(table), *median_intervals(table)), strict=True))
    found = rows[CELL].groupby(number).first().assign(**made)
    return (
        front.assign(**dict.fromkeys(CROSSING, np.nan)) if found.empty else front.merge(found, "left", CELL)
    )


def lacks_crossing(front: pd.DataFrame) -> bool:
    """True if no point has `CROSSING` though the edge's energy is known."""
    return bool(front["edge_energy_j"].notna().any() and front[CROSSING[0]].isna().all())


def note(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    """A sentence to judge the energies of some rows of the front by: whose they are and what they hold."""
    devices = str(rows["energy_of"].iloc[0])
    between = hosts(str(rows["point"].iloc[0]))[1:-1]
    idle = []
    for role in (role for part in devices.split(" + ") for role in (between if part == MIDDLE else (part,))):
        powers = (within(session, "hosts", role, "idle_power_w") for session in sessions(manifest))
        watts = sorted({f"{power:.3g}" for power in powers if isinstance(power, int | float)}, key=float)
        idle += [f"{role} {'–'.join([*watts[:1], *watts[1:][-1:]])} W"] if watts else []  # noqa: RUF001
    text = f"Energy: {devices}, by the devices' own sensors during the throughput phase, idle power "
    text += "taken off" if judged_by(rows) == ACTIVE else "included"
    text += f" ({', '.join(idle)})" if idle else ""
    unused = [each for each in (MIDDLE, SERVER) if each in devices and rows[f"{each}_s"].isna().any()]
    share = f"; the {' and the '.join(unused)}'s share is 0 J where no tensors reach it" if unused else ""
    return f"{text}{share}."


def sentences(stages: pd.DataFrame, manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what no sensor of energy sees, and of how many stages the energy is missing or doubted, by the first."""
    every = (session for manifest in manifests for session in sessions(manifest))
    hosts_of = (item for session in every for item in section(session, "hosts").items())
    out = ((role, of.get("energy_leaves_out")) for role, of in hosts_of)
    yield from dict.fromkeys(short(f"not in the energy of the {role}: {of}", 1000) for role, of in out if of)
    for kind in ("none", "doubtful"):
        if own := [each for each in stages["energy_doubt"].astype("str") if each.startswith(kind)]:
            yield f"energy of {len(own)} of {len(stages)} stages: {short(own[0])}; stages.csv has each"
