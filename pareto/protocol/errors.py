"""The errors that the user can put right, and what libraries say is wrong in plain words."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(ValueError):
    """A fault that the user can put right: one line says what is wrong and what to do. Commands end with code 2."""


class BackendError(Exception):
    """The peer refused, answered nonsense, or is gone."""


def one_line(error: BaseException) -> str:
    """An error's message in one line; its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _place(file: Path, error: BaseException, shown: str) -> str:
    """The file, and the line in it from which the error comes. shown: the file as messages name it, if not so."""
    name = shown or str(file)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{name}:{error.lineno}"
    trace = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in trace if frame.filename == str(file)]
    return f"{name}:{lines[-1]}" if lines else name


def _said(error: BaseException) -> str:
    """The kind of an error, and what it says."""
    text, kind = error.msg if isinstance(error, SyntaxError) else str(error), type(error).__name__
    words = f"{kind}: {' '.join(text.split())}" if text else kind
    if text and isinstance(error, ModuleNotFoundError):
        words += (
            ": the file travels alone: what it imports is a package that each host has, or becomes part of it"
        )
    return words


@contextmanager
def blaming(
    file: Path | None,
    what: str = "",
    passing: tuple[type[Exception], ...] = (),
    *,
    kind: type[Exception] = UserError,
    shown: str = "",
) -> Iterator[None]:
    """A context for a user's own code, which raises what it likes: that becomes one line of this kind with its place.
    file: of the code; None: a package. what: the code is. passing: what is raised as it comes. shown: see `_place`."""
    try:
        yield
    except passing:
        raise
    except (Exception, SystemExit) as error:
        where = _place(file, error, shown) if file else ""
        raise kind(": ".join(filter(None, (where, what, _said(error))))) from error


def lack_of_memory(error: BaseException | None, *kinds: type[BaseException]) -> BaseException | None:
    """The error by which memory was not there here, of those that this one comes of; None without. kinds: more of
    them. The program's own errors may quote what another host lacks."""
    while error and not isinstance(error, (MemoryError, *kinds)):
        if not type(error).__module__.startswith("pareto.") and _NO_MEMORY.search(str(error)):
            break
        error = error.__cause__ or error.__context__
    return error


_NO_MEMORY = re.compile(
    r"(Cannot|can't|not enough to|unable to) allocate|failed to map|bad_alloc|can't start new thread",
    re.IGNORECASE,
)
_PLAIN = {
    r"Invalid value for '(--[\w-]+)'( / '-\w')?: ": r"\1: ",
    r"[Vv]alue error, ": "",
    r"\b([Ii]nput|[Ss]tring|[Tt]uple|[Ll]ist) should ": "it should ",
    r"a valid integer(, (unable to parse|got a number)[\w ]*)?": "a whole number",
    r"a valid number(, unable to parse[\w ]*)?": "a number",
    "a valid tuple": "one value, or a list of them",
    "a valid string": "text",
    r"a valid boolean(, unable to interpret input)?": "true or false",
    r"greater than or equal to (\S+)": r"\1 or more",
    r"less than or equal to (\S+)": r"\1 or less",
    "greater than": "more than",
    r"match pattern '\^\(never\|round.*'": "be never, round, or a number of rounds",
    r"(Value|it) should have at least 1 item after validation, not 0": "name at least one",
}


def in_plain_words(message: str) -> str:
    """A validation library's message on what is wrong with a value, in the words of this program."""
    for pattern, words in _PLAIN.items():
        message = re.sub(pattern, words, message)
    return message
