"""Profiles by name: the files in `netem_profiles/`, other files by path, and names that say it all.

The driver's; a host gets its profile from the driver and needs neither files nor PyYAML.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pareto.errors import UserError
from pareto.link import units
from pareto.link.profile import Direction, Profile
from pareto.link.profile_file import read

PROFILES = Path(__file__).resolve().parents[2] / "netem_profiles"
SYNTAX = (
    "a name such as 80ms, 20mbit, 80ms-20mbit or 10ms-100mbit-1% "
    "(delay, rate, loss, in this order; units us ms s, kbit mbit gbit, %)"
)

_PARTS = {  # in the order in which a name has them
    "delay_s": (units.is_delay, units.delay_s),
    "rate_bps": (units.is_rate, units.rate_bps),
    "loss": (units.is_share, units.share),
}


def names(directory: Path = PROFILES) -> list[str]:
    """The profiles that have a file, sorted."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load(name_or_path: str, directory: Path = PROFILES) -> Profile:
    """The profile of that name in `directory`, else of that YAML file, else as the name itself says.

    ``80ms-20mbit`` shapes edge to server and leaves the way back alone, as the files of that form do.
    Raises UserError.
    """
    text = name_or_path.strip()
    if text in names(directory):
        return read(directory / f"{text}.yaml")
    if is_file(text):
        return read(Path(text))
    if text == "none":
        return Profile("none")
    return Profile(text, _from_name(text, directory))


def is_file(name: str) -> bool:
    """Whether it names a profile's file by its path."""
    return "/" in name or name.strip().endswith((".yaml", ".yml"))


def _from_name(name: str, directory: Path) -> Direction:
    """The direction that ``80ms-20mbit``, ``50ms`` or ``10mbit-1%`` describes."""
    parts = name.split("-")
    fields = [next((field for field, (fits, _) in _PARTS.items() if fits(part)), "") for part in parts]
    if fields == [field for field in _PARTS if field in fields]:
        values: dict[str, Any] = {
            field: _PARTS[field][1](part) for field, part in zip(fields, parts, strict=True)
        }
        try:
            return Direction(**values)
        except UserError as error:
            raise UserError(f"netem profile {name!r}: {error}") from None
    if name[:1].isdigit():
        raise UserError(f"netem profile {name!r} is malformed: write {SYNTAX}")
    known = names(directory)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
    raise UserError(f"there is no netem profile {name!r}: {hint} Or write {SYNTAX}, or a YAML file's path")
