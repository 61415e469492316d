"""The door for a user's own code: a class or function in a Python file, `path/to/file.py:Name`, or what an installed
package offers by an entry point. A further kind is one more `Kind`; `partitions.user_file.maker` runs the file."""

from __future__ import annotations

import functools
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple

from pareto.protocol.errors import UserError, blaming


@dataclass(frozen=True)
class Own:
    """A class or function in a Python file. name: in rows. typed: the file as messages name it: on a host it is called
    by its digest. behind: what followed the name."""

    name: str
    file: str
    attribute: str
    typed: str
    behind: str = field(default="", compare=False)

    def guarded(
        self, what: str, kind: type[Exception] = UserError, passing: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        """A context for its code: everything that it raises is one line of this kind, with the place in the file."""
        return blaming(Path(self.file), f"{self.attribute}{what} fails", passing, kind=kind, shown=self.typed)


class Kind(NamedTuple):
    """A kind of a user's own code. what: it is, for messages. example: of a name. group: of the entry points by which
    packages offer some. behind: the pattern of what may follow a name. alone: whether a file needs no name."""

    what: str
    example: str
    group: str = ""
    behind: str = ""
    alone: bool = False

    def own(self, text: str) -> Own | None:
        """The file and what in it a text names; None for other texts. Raises UserError for somebody's home that is not
        known."""
        match = re.fullmatch(rf"(.+?\.py)(?::(\w*))?({self.behind})", text)
        if match is None:
            return None
        attribute = match[2] or ""
        if not (self.alone or attribute.isidentifier()):
            return None
        try:
            file = str(Path(match[1]).expanduser().absolute())
        except RuntimeError as error:
            raise UserError(str(error)) from None
        return Own(in_rows(file, attribute), file, attribute, file, match[3])

    def typed(self, text: str) -> str:
        """A text as a run keeps it, which may go on from another folder: with an absolute path. Raises UserError."""
        made = self.own(text)
        return f"{made.file}:{made.attribute}{made.behind}" if made else text

    def check_named(self, text: str) -> None:
        """Raises UserError for a file alone."""
        if re.fullmatch(r".+\.py:?", text):
            file = Path(text.rstrip(":")).name
            raise UserError(f"say what in the file makes the {self.what}, as in {file}:{self.example}")

    def offered(self) -> dict[str, EntryPoint]:
        """The entry points of packages, by name."""
        return offered(self.group)


def in_rows(file: str, attribute: str) -> str:
    """The name in rows: `file.Name`, in letters that any file's name may have."""
    return re.sub(r"[^\w.-]", "_", f"{Path(file).stem}.{attribute}")


@functools.cache
def offered(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}
