"""Text that somebody else may have written, as it is shown in a terminal, set by LaTeX or opened by a spreadsheet.

HTML is escaped by the template of `analysis.page`, and then as for a terminal; figures have no mathematics in their
text (`analysis.figures.style`).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Whoever only prints must not pay for pandas.
    import pandas as pd

_FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")
"""The characters that make a spreadsheet compute a cell; the last four are their wide forms."""
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
"""Unicode's categories of what moves the cursor, turns the direction of writing, or cannot be encoded at all."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "µ": r"$\mu$",
    "±": r"$\pm$",
    "…": r"\ldots{}",
    "\N{EN DASH}": "--",
    "\N{MINUS SIGN}": "$-$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "▼": r"$\bigtriangledown$",
    "↖": r"$\nwarrow$",
    "↗": r"$\nearrow$",
    "↙": r"$\swarrow$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def latex(text: str) -> str:
    """The text with a command for every character that LaTeX reads as its own, or has no letter for."""
    return "".join(_LATEX.get(character, character) for character in text)


def terminal(text: str) -> str:
    """The text with an escape, such as `\\x1b`, for every character that is not shown as itself.

    Line breaks stay. Nothing that is left can colour, move, rename or answer for a terminal, nor fail to be encoded.
    """
    return spelled(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """The text with every character that is not shown as itself, but line breaks, as `spell` writes it."""
    return re.sub(
        r"[^ -~\n]",
        lambda found: spell(found[0]) if unicodedata.category(found[0]) in _UNSEEN else found[0],
        text,
    )


def say(text: str, *, aside: bool = False) -> None:
    """Print a text as `terminal` shows it, `aside` on standard error: but for `basics.console`, nothing else prints."""
    print(terminal(text), file=sys.stderr if aside else sys.stdout, flush=True)


def short(text: str, most: int = 300) -> str:
    """The text in one line as `terminal` shows it, cut to so many characters."""
    line = terminal(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 3]}..."


def markdown(text: str) -> str:
    """The text in one line as `terminal` shows it, with a backslash before what Markdown or HTML would read."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", terminal(" ".join(text.split())))


def spreadsheet(table: pd.DataFrame, spell: Callable[[str], str] = str) -> pd.DataFrame:
    """The frame with its texts as `no_formula` has them."""
    texts = [name for name, kind in table.dtypes.items() if kind.kind not in "biuf"]
    return table.assign(
        **{str(name): table[name].map(lambda each: no_formula(each, spell)) for name in texts}
    )


def no_formula(value: Any, spell: Callable[[str], str] = str) -> Any:
    """A cell's value, a text as `spell` has it; what a spreadsheet would take for a formula has an apostrophe first."""
    if not isinstance(value, str):
        return value
    return spell(f"'{value}" if value.startswith(_FORMULA) else value)
