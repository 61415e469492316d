"""The door for a user's own code: a class or function in a Python file, `path/to/file.py:Name`, or in the file of an
installed package, which offers it under a name by an entry point. A further kind is one more `Kind`."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pareto.protocol.errors import UserError, blaming


@dataclass(frozen=True)
class Own:
    """A class or function in a Python file. name: in rows. typed: the file as messages name it: on a host it is called
    by its digest. behind: what followed the name. offered: the name under which a package offers it. package: in which
    its relative imports are looked for."""

    name: str
    file: str
    attribute: str
    typed: str
    behind: str = field(default="", compare=False)
    offered: str = ""
    package: str = ""

    @property
    def text(self) -> str:
        """The text that a user writes for it, with an absolute path."""
        return self.offered or f"{self.file}:{self.attribute}"

    def guarded(
        self, what: str, kind: type[Exception] = UserError, passing: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        """A context for its code: everything that it raises is one line of this kind, with the place in the file."""
        return blaming(Path(self.file), f"{self.attribute}{what} fails", passing, kind=kind, shown=self.typed)

    def maker(self, what: str) -> Callable[..., Any]:
        """The class or function in the file, which this runs. what: it makes, for messages. Raises UserError."""
        module = module_of(Path(self.file), what, self.typed, self.package)
        made: Callable[..., Any] | None = getattr(module, self.attribute, None)
        if not callable(made):
            callables = {key: value for key, value in vars(module).items() if callable(value)}
            has = [
                key for key, value in callables.items() if getattr(value, "__module__", "") == module.__name__
            ]
            there = f"it has {', '.join(has) or 'none'}"
            raise UserError(f"{self.typed} has no function or class {self.attribute!r}: {there}")
        return made

    def digest(self) -> str:
        """The SHA-256 of the file. Raises UserError."""
        return hashlib.sha256(_text(Path(self.file))).hexdigest()

    def shipped(self, ship: Callable[[Path, str], str]) -> Own:
        """The same on a host. ship: puts a file there under a name, and returns its path. Raises UserError."""
        return replace(self, file=ship(Path(self.file), f"{self.digest()}.py"))


class Kind(NamedTuple):
    """A kind of a user's own code. what: it is, for messages. example: of a name. group: of the entry points by which
    packages offer some. behind: the pattern of what may follow a name. alone: whether a file needs no name. taken: the
    names of what is built in."""

    what: str
    example: str
    group: str = ""
    behind: str = ""
    alone: bool = False
    taken: frozenset[str] = frozenset()

    def own(self, text: str, folder: Path = Path()) -> Own | None:
        """The file and what in it a text names; None for other texts. folder: where relative paths begin. Raises
        UserError for somebody's home that is not known, and for what a package offers and has no file of."""
        match = re.fullmatch(rf"(.+?\.py)(?::(\w*))?({self.behind})", text)
        if match is None or not (self.alone or (match[2] or "").isidentifier()):
            return self._installed(text)
        try:
            file = str((folder / Path(match[1]).expanduser()).absolute())
        except RuntimeError as error:
            raise UserError(str(error)) from None
        attribute = match[2] or ""
        return Own(in_rows(file, attribute), file, attribute, file, match[3])

    def _installed(self, text: str) -> Own | None:
        match = re.fullmatch(rf"([\w-]+)({self.behind})", text) if self.group else None
        if match is None or match[1] in self.taken or (point := self.offered().get(match[1])) is None:
            return None
        its = f"the {self.what} {point.name}, which a package offers as {point.value},"
        with blaming(None, f"{its} cannot be found"):
            spec, attribute = find_spec(point.module), point.attr or ""
        file = (spec and spec.origin) or ""
        if not (spec and file.endswith(".py") and Path(file).is_file()):
            raise UserError(f"{its} lies in no Python file that can be read")
        return Own(point.name, file, attribute, file, match[2], point.name, spec.parent or "")

    def typed(self, text: str, folder: Path = Path()) -> str:
        """A text as a run keeps it, which may go on from another folder: with an absolute path. Raises UserError."""
        made = self.own(text, folder)
        return made.text + made.behind if made else text

    def check_named(self, text: str) -> None:
        """Raises UserError for a file alone."""
        if re.fullmatch(r".+\.py:?", text):
            file = Path(text.rstrip(":")).name
            raise UserError(f"say what in the file makes the {self.what}, as in {file}:{self.example}")

    @functools.cache  # noqa: B019  (a kind is a constant)
    def offered(self) -> dict[str, EntryPoint]:
        """The entry points of packages, by name."""
        return {point.name: point for point in entry_points(group=self.group)}

    @property
    def others(self) -> list[str]:
        """The names that packages offer beside what is built in."""
        return sorted(self.offered().keys() - self.taken)


def module_of(file: Path, what: str, shown: str = "", package: str = "") -> ModuleType:
    """The module of a user's file; the same text runs once. No bytecode is left beside the file. what: it has, for
    messages. shown: the file as they name it. package: that it is of. Raises UserError."""
    text = _text(file, f"{what} ")
    name = f"_pareto_own_{hashlib.sha256(bytes(file) + text).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__, module.__package__ = str(file), package
    sys.modules[name] = module  # dataclasses and pickle look for the module of a class there
    try:
        with blaming(file, shown=shown):
            exec(compile(text, str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _text(file: Path, what: str = "") -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the {what}file {file}: {error.strerror}") from error


def in_rows(file: str, attribute: str) -> str:
    """The name in rows: `file.Name`, in letters that any file's name may have."""
    return re.sub(r"[^\w.-]", "_", f"{Path(file).stem}.{attribute}")
