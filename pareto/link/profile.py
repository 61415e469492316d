"""A netem profile: what each direction of the link does to a packet.

Hosts know the dataclasses only; `load` needs PyYAML, which the driver has.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pareto.link import units

PROFILES = Path(__file__).resolve().parents[2] / "netem_profiles"
SYNTAX = "a name such as 80ms, 20mbit or 80ms-20mbit (delay first; units us ms s, kbit mbit gbit)"

MAX_DELAY_S = 60.0
MIN_RATE_BPS = 1e3
MAX_RATE_BPS = 34e9  # netem's rate is a 32-bit number of bytes a second: it wraps at 34.36 Gbit/s


class ProfileError(ValueError):
    """A profile that cannot be used: one line that says what is wrong and what to do."""


@dataclass(frozen=True)
class Direction:
    """One way through the link: delay in seconds, rate in bit/s on the wire (None: not limited).

    Raises ProfileError for values that no link here can have.
    """

    delay_s: float = 0.0
    rate_bps: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s <= MAX_DELAY_S:
            raise ProfileError(f"delay {self.delay_s:g} s is out of range: 0 to {MAX_DELAY_S:g} s")
        if self.rate_bps is not None and not MIN_RATE_BPS <= self.rate_bps <= MAX_RATE_BPS:
            raise ProfileError(
                f"rate {self.rate_bps:g} bit/s is out of range: 1kbit to 34gbit; leave it out for no limit"
            )

    @property
    def shaped(self) -> bool:
        return self.delay_s > 0 or self.rate_bps is not None

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Direction:
        _only(fields, "delay_s", "rate_bps")
        rate = fields.get("rate_bps")
        try:
            return cls(float(fields.get("delay_s", 0.0)), None if rate is None else float(rate))
        except TypeError as error:
            raise ProfileError(f"delay_s and rate_bps are numbers: {error}") from None


@dataclass(frozen=True)
class Profile:
    """A named condition of the link, applied to each sender's egress."""

    name: str
    edge_to_server: Direction
    server_to_edge: Direction

    @property
    def rtt_s(self) -> float:
        """What the two delays add to a round trip."""
        return self.edge_to_server.delay_s + self.server_to_edge.delay_s

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Profile:
        _only(fields, "name", "edge_to_server", "server_to_edge")
        return cls(
            str(fields.get("name", "")),
            Direction.from_dict(fields.get("edge_to_server") or {}),
            Direction.from_dict(fields.get("server_to_edge") or {}),
        )


def names(directory: Path = PROFILES) -> list[str]:
    """The profiles that have a file, sorted."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load(name_or_path: str, directory: Path = PROFILES) -> Profile:
    """The profile of that name in `directory`, else of that YAML file, else as the name itself says.

    ``80ms-20mbit`` shapes edge to server and leaves the way back alone, as the files of that form do.
    Raises ProfileError.
    """
    text = name_or_path.strip()
    if text in names(directory):
        return _read(directory / f"{text}.yaml")
    if "/" in text or text.endswith((".yaml", ".yml")):
        return _read(Path(text))
    if text == "none":
        return Profile("none", Direction(), Direction())
    return Profile(text, _from_name(text, directory), Direction())


def _read(path: Path) -> Profile:
    from pareto.link.profile_file import read  # hosts have no PyYAML and need none

    return read(path)


def _from_name(name: str, directory: Path) -> Direction:
    """The direction that ``80ms-20mbit``, ``50ms`` or ``10mbit`` describes."""
    parts = name.split("-")
    kinds = ["delay" if units.is_delay(p) else "rate" if units.is_rate(p) else "" for p in parts]
    try:
        if kinds == ["delay", "rate"]:
            return Direction(units.delay_s(parts[0]), units.rate_bps(parts[1]))
        if kinds == ["delay"]:
            return Direction(delay_s=units.delay_s(name))
        if kinds == ["rate"]:
            return Direction(rate_bps=units.rate_bps(name))
    except ProfileError as error:
        raise ProfileError(f"netem profile {name!r}: {error}") from None
    if name[:1].isdigit():
        raise ProfileError(f"netem profile {name!r} is malformed: write {SYNTAX}")
    known = names(directory)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
    raise ProfileError(f"there is no netem profile {name!r}: {hint} Or write {SYNTAX}, or a YAML file's path")


def _only(fields: Mapping[str, Any], *known: str) -> None:
    if not isinstance(fields, Mapping):
        raise ProfileError(f"expected the fields {', '.join(known)}, not {fields!r}")
    for key in fields:
        if key not in known:
            raise ProfileError(f"unknown field {key!r}: use {', '.join(known)}")
