"""Points as they are written: `7`, or `3+7` in a chain of three hosts, with one cut a link."""

from __future__ import annotations

import pandas as pd

from analysis.keys import CELL


def cuts(point: str) -> tuple[int, ...]:
    """For each link, how many units run before it. Raises ValueError."""
    return tuple(int(cut) for cut in point.split("+"))


def order(points: pd.Series) -> pd.Series:
    """Each point's place among them, by its cuts as numbers: 2 before 10, 3+7 before 3+10. A key to sort by."""
    places = {point: place for place, point in enumerate(sorted(set(points), key=cuts))}
    return points.map(places).astype("int64")


def order_backends(backends: pd.Series) -> pd.Series:
    """The backends as a key to sort by: where there is none (empty text), as nothing crosses, comes last."""
    names = backends.astype("str")
    key: pd.Series = names.where(names != "", "\U0010ffff")
    return key


def sorted_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """By `CELL`, points by their cuts; a new index."""
    keys = {"point": order, "backend": order_backends}
    return rows.sort_values(
        CELL,
        key=lambda column: keys[str(column.name)](column) if column.name in keys else column,
        ignore_index=True,
    )


def hosts(point: str) -> tuple[str, ...]:
    """The roles along the chain: `edge`, `middle1`, ..., `server`."""
    return ("edge", *(f"middle{number}" for number in range(1, len(cuts(point)))), "server")


def undivided(rows: pd.DataFrame) -> pd.Series:
    """Which points leave the whole model to one host: what a split has to beat.

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
    way = rest.rpartition(" ")[2]
    return f"link {way}" if hosts == 2 else f"link {link_number(near)} {way}"


def link_number(near: str) -> int:
    """Which link begins at that host, counted from the edge's, which is 1."""
    return 1 if near == "edge" else int(near.removeprefix("middle")) + 1
