"""HTML from text. Whatever comes from a run is data: only what `element` made is markup, all else is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any


class Html(str):
    """Markup, as opposed to text that has to be escaped before it becomes part of it."""

    __slots__ = ()


def element(name: str, *inside: str, **attributes: str | bool) -> Html:
    """`<name ...>inside</name>`; what is inside is escaped unless it is `Html`.

    In attributes' names `_` stands for `-`, one at the end is dropped (`class_`). True is an attribute without a
    value; False and empty text are left out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not False and value != "":
            key = key.rstrip("_").replace("_", "-")
            parts.append(key if value is True else f'{key}="{escape(str(value))}"')
    return Html(f"<{' '.join(parts)}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Text and markup one after another."""
    return Html(between.join(part if isinstance(part, Html) else escape(part) for part in parts))


def items(lines: Iterable[str], name: str = "ul", **attributes: str | bool) -> Html:
    """A list of lines; nothing without any."""
    found = [element("li", line) for line in lines]
    return element(name, *found, **attributes) if found else Html()


def pairs(rows: Iterable[tuple[str, str]], **attributes: str | bool) -> Html:
    """Terms and what is said of each."""
    return element(
        "dl", *(element("div", element("dt", term), element("dd", told)) for term, told in rows), **attributes
    )


def embedded(value: Any) -> str:
    """JSON that may stand inside `<script>`: no character in it can end that, or begin markup."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
