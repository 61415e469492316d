"""What an examination of a host found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`mend` is the command or the step that helps; empty where nothing needs mending.

    fatal: no sweep runs until it is mended.
    """

    what: str
    words: str
    mend: str = ""
    fatal: bool = False
