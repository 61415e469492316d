"""Every column of a run's files, once: its name, what it may hold, and what it means.

`pareto.trial.store` writes these columns, `analysis.runs` reads and checks them, and the tables of results/README.md
are made from them by `python -m pareto.analysis.schema`. Needs nothing but the standard library.
"""

from __future__ import annotations

import re

from pareto.analysis.schema.beside_trials import DEVICES, LINKS, REQUESTS, STAGES, STRUCK
from pareto.analysis.schema.columns import Kind, Table
from pareto.analysis.schema.model_profiles import BACKENDS, CODECS, PROFILE, PROFILE_TABLES
from pareto.analysis.schema.trials import (
    BETWEEN,
    CELL,
    LATENCY_ONLY,
    ROUNDING,
    STANDS,
    STATUSES,
    THROUGHPUT_ONLY,
    TRIALS,
    cell_name,
    status_of,
    trial_name,
)

__all__ = [
    "BACKENDS",
    "BETWEEN",
    "CELL",
    "CODECS",
    "DEVICES",
    "FORMS",
    "KINDS",
    "LATENCY_ONLY",
    "LINKS",
    "PROFILE",
    "PROFILE_TABLES",
    "REQUESTS",
    "ROUNDING",
    "STAGES",
    "STANDS",
    "STATUSES",
    "STRUCK",
    "TABLES",
    "TEXT",
    "THROUGHPUT_ONLY",
    "TRIALS",
    "Kind",
    "Table",
    "cell_name",
    "status_of",
    "trial_name",
]

TABLES = (TRIALS, STAGES, LINKS, STRUCK, REQUESTS, DEVICES, *PROFILE_TABLES)
KINDS: dict[str, Kind] = {
    column.name: column.kind
    for table in (TRIALS, STAGES, LINKS, STRUCK, *PROFILE_TABLES)
    for column in table.described
}
"""The kind of each column, by its name, in whichever of the CSV files."""
TEXT = frozenset(name for name, kind in KINDS.items() if kind in (Kind.NAME, Kind.FREE))
_HOST = r"(?:edge|middle[0-9]{0,3}|server)"
FORMS = {
    "point": re.compile(r"[0-9]{1,6}(?:\+[0-9]{1,6}){0,31}"),
    "in_flight_asked": re.compile(r"|auto|[0-9]{1,6}"),
    "prefetch_asked": re.compile(r"|[0-9]{1,3}"),
    "host": re.compile(_HOST),
    **dict.fromkeys(("model", "netem", "backend"), re.compile(".+")),
    **dict.fromkeys(("bound_by", "busiest"), re.compile(rf"|{_HOST}|{_HOST}-{_HOST} (?:out|back)")),
}
"""The form of text that is taken apart, by column."""
