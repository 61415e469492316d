"""The subject of a row: keys of every frame, and points as they are written.

A point is `7`, or `3+7` in a chain of three hosts, with one cut a link.
"""

from __future__ import annotations

import pandas as pd

from pareto.analysis import naming
from pareto.hosts.host import chain

CONDITION = ["model", "netem", "batch_size", *naming.USUAL, "setup"]
"""The columns that are the same for all points that are compared. `setup` tells runs of other settings apart."""
BUT_CODEC = [name for name in CONDITION if name != "codec"]
CELL = [*CONDITION, "backend", "point"]
TRIAL = ["run", *CELL, "round"]
ROUND = ["run", "testbed", "round"]
"""The columns that are the same for all trials that are compared in pairs: they share what slowed that hour."""
NONE = naming.NONE
"""The backend of a point where nothing crosses."""
NO_CODEC = naming.USUAL["codec"]
EAGER = naming.USUAL["engine"]
"""The engine of a trial for which nothing was built: the base that others are compared with."""


def round_of(rows: pd.DataFrame) -> pd.Series:
    """The number of the round (`ROUND`) that each row is of, counted in their order; rows may lack the testbed."""
    by = [name for name in ROUND if name in rows]
    return rows.groupby(by, observed=True, dropna=False).ngroup().astype("int64")


def cuts(point: str) -> tuple[int, ...]:
    """For each link, how many units run before it. Raises ValueError."""
    return tuple(int(cut) for cut in point.split("+"))


def order(points: pd.Series) -> pd.Series:
    """Each point's place among them, by its cuts as numbers: 2 before 10, 3+7 before 3+10. A key to sort by."""
    places = {point: place for place, point in enumerate(sorted(set(points), key=cuts))}
    return points.map(places).astype("int64")


def sorted_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by `CELL`, points by their cuts, no backend after all others, with a new index."""
    keys = {"backend": lambda of: of.astype("str").replace(NONE, "\U0010ffff"), "point": order}
    return rows.sort_values(CELL, key=lambda of: keys.get(of.name, lambda same: same)(of), ignore_index=True)


def hosts(point: str) -> tuple[str, ...]:
    """The roles along the chain: `edge`, `middle1`, ..., `server`."""
    return chain(len(cuts(point)) + 1)


def undivided(rows: pd.DataFrame) -> pd.Series:
    """Whether the point of each row leaves the whole model to one host: what a split has to beat.

    `rows`: `point`, and `payload_bytes`, which is 0 where everything runs on the edge. Without such a row the last
    cut is not known, and only what runs on the server as a whole is found.
    """
    ends = {0} | {cuts(point)[0] for point in rows.loc[rows["payload_bytes"] == 0, "point"]}
    return rows["point"].map(lambda point: set(cuts(point)) <= ends)


def short_step(step: str, hosts: int) -> str:
    """`link out` for `edge-server out`, `link 2 back` for `middle1-server back`; a host's role as it is."""
    near, _, rest = step.partition("-")
    if not rest:
        return step
    number = "" if hosts == 2 else f" {int(near.removeprefix('middle')) + 1 if near != 'edge' else 1}"
    return f"link{number} {rest.rpartition(' ')[2]}"


def of_role(named: str, role: str, usual: str = EAGER) -> str:
    """The engine of a host: `onnx` of `edge=onnx` at the edge, `eager` at the server; or its allocator, by `usual`."""
    return by_role(named).get(role, usual) if "=" in named else named


def by_role(work: str) -> dict[str, str]:
    """The name for each host in `edge=onnx+server=onnx`."""
    return dict(part.split("=") for part in work.split("+") if part)
