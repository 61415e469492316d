"""How points, backends, conditions, times and files are called in tables, figures and sentences."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pareto.analysis.schema import LETTERS as LETTERS
from pareto.analysis.schema import USUAL as USUAL

if TYPE_CHECKING:
    # Whoever only asks for a name must not pay for pandas.
    import pandas as pd

_TRANSPORT = re.compile(r"([^:]*)(?::([0-9]+|poll|basic)(?![^:]))?(?::(tls)(?![^:]))?")
"""As the harness declares them (`pareto.remote.backends.registry`); a test holds the two together."""
NONE = USUAL["codec"]
"""The backend of a point where nothing crosses; and no codec."""
IN_WORDS = {name: f"{name} {{}}" for name in ("codec", "engine", "allocator", "load")} | {
    "in_flight_asked": "{} in flight",
    "prefetch_asked": "prefetch {}",
}
SIMULATED = "simulated"
"""A manifest's key, and the setup of its trials: nothing of such a run was measured."""
ANY = "any"
"""The same in a table."""
ANY_NOTE = f"{ANY} = nothing crosses, all backends are the same"
CUT_LIMIT = 12
"""Characters of the name of each of two cuts."""


def backends(rows: pd.DataFrame) -> list[str]:
    """The backends in the order of every table and figure: tcp first, as the others are compared with it. At last none,
    if rows are of none, as nothing crosses there."""
    return sorted(map(str, rows["backend"].unique()), key=place)


def transports(rows: pd.DataFrame) -> list[str]:
    """The `backends` without none."""
    return [name for name in backends(rows) if name != NONE]


def place(backend: str) -> tuple[bool, bool, str, int, str]:
    """For sorting backends: tcp, the others, at last none; of variants the plain one first, numbers by their size."""
    name, variant = family(backend), _parts(backend)[1]
    return backend == NONE, name != "tcp", name, int(variant) if variant.isdecimal() else 0, backend


def backend_name(backend: object) -> str:
    """For a table: `any` where nothing crosses, so that all backends are the same."""
    return ANY if backend == NONE else str(backend)


def cell_name(row: Mapping[Any, Any] | pd.Series) -> str:
    """Backend and point: `tcp 7`, or `any 21` where nothing crosses."""
    return f"{backend_name(row['backend'])} {row['point']}"


def cell_names(rows: pd.DataFrame) -> pd.Series:
    """`cell_name` of each row; with the codec, `tcp int8 7`, where rows that cross a link have several."""
    backend = rows["backend"].astype("str")
    crosses = backend != NONE
    names = backend.where(crosses, ANY)
    if "codec" in rows and rows.loc[crosses, "codec"].nunique() > 1:
        codec = rows["codec"].astype("str")
        names = names.where(~crosses | (codec == NONE), names + " " + codec)
    return names + " " + rows["point"].astype("str")


def transport(backend: str) -> str:
    """The transport: the backend without its label, `tcp:4` of `tcp:4:a`, `tcp:tls` of `tcp:tls:a`."""
    return ":".join(filter(None, _parts(backend)))


def secure(backend: str) -> str:
    """How a backend encrypts: `tls` or `none`; empty where nothing crosses."""
    return "" if backend == NONE else _parts(backend)[2] or NONE


def _parts(backend: str) -> tuple[str, str, str]:
    """The backend, its variant and how it encrypts."""
    found = _TRANSPORT.match(backend)
    return (found[1], found[2] or "", found[3] or "") if found else ("", "", "")


def family(backend: str) -> str:
    """The backend without variant and label."""
    return backend.partition(":")[0]


def time_unit(longest_s: float) -> tuple[str, float]:
    """The unit in which times up to `longest_s` read best, and how many of it make a second."""
    return ("ms", 1e3) if longest_s < 1 else ("s", 1.0)


def point_label(point: int | str, name: str, *, limit: int = 16) -> str:
    """`14 features.13`: the point and its name, cut to `limit` characters; the point alone without one.

    With two cuts each name is shortened for itself; more cuts have more names than anybody can read.
    """
    names = name.split("+")
    if len(names) > 2:
        return str(point)
    limit = limit if len(names) == 1 else CUT_LIMIT
    # Names share their beginning: what tells them apart is nearer to the end.
    ends = slice(limit // 3), slice(limit // 3 + 1 - limit, None)
    name = "+".join(each if len(each) <= limit else "…".join(each[end] for end in ends) for each in names)
    return f"{point} {name}" if name and name != str(point) else str(point)


def unusual(row: Mapping[Any, Any] | pd.Series, *but: str) -> list[str]:
    """`codec int8`, `4 in flight`: the factors of a row that are not as usual, without those of `but`."""
    known = {name: str(row.get(name) or usual) for name, usual in USUAL.items() if name not in but}
    return [IN_WORDS[name].format(value) for name, value in known.items() if value != USUAL[name]]


def levels(values: Iterable[object], base: Sequence[str] = (NONE,)) -> list[str]:
    """The levels of a factor, that of the base first, then by name: the order of their colours and of all lists."""
    return sorted({str(value) for value in values}, key=lambda level: (level not in base, level))


def file_stem(*parts: object) -> str:
    """`front-mobilenetv2-200ms-5mbit`, of characters that are safe in any file system and in LaTeX."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", "-".join(map(str, parts))).strip("-.")


def file_stems(*names: str) -> dict[str, str]:
    """By name its `file_stem`; those that share one, such as `net_a` and `net-a`, have a digest after it."""
    stems = {name: file_stem(name) for name in names}
    shared = Counter(stems.values())
    return {name: stem if shared[stem] == 1 else f"{stem}-{digest(name)}" for name, stem in stems.items()}


def digest(*parts: object) -> str:
    """Tells names apart that `file_stem` writes alike."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def subject(row: Mapping[Hashable, Any] | pd.Series) -> str:
    """`mobilenet_v2 at wifi`, and the setup where there is one: `mobilenet_v2 at wifi, simulated`."""
    setup = row.get("setup", "")
    return f"{row['model']} at {row['netem']}" + (f", {setup}" if setup else "")


def model_title(row: Mapping[Hashable, Any] | pd.Series, *but: str, batch: str = "") -> str:
    """`mobilenet_v2, engine onnx, simulated`: the model, the `batch`, the `unusual` factors and the setup."""
    return ", ".join(filter(None, (str(row["model"]), batch, *unusual(row, *but), str(row["setup"]))))


def condition_title(row: Mapping[Hashable, Any] | pd.Series) -> str:
    """`mobilenet_v2 at wifi, batch size 1, 4 in flight`: what is the same for all that is compared."""
    return ", ".join((subject(row), f"batch size {row['batch_size']}", *unusual(row)))


def cell_title(row: Mapping[Any, Any] | pd.Series) -> str:
    """`tcp 7 (mobilenet_v2 at wifi, batch size 1)`: a cell with its condition."""
    return f"{cell_name(row)} ({condition_title(row)})"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first of the names: `local, lab1 and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def listed(values: Iterable[Any]) -> str:
    """`a, b and c`; empty text without a value."""
    *most, last = [*map(str, values)] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def count(number: int, what: str) -> str:
    """`1 point`, `2 points`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
