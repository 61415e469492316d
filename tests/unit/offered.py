"""Packages that are installed while a test runs, and the documents' examples, which they offer by entry points."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pareto.partitions.engines import registry
from pareto.protocol.own import Kind
from tests import REPOSITORY


def example(name: str, page: str = "docs/extend.md") -> str:
    """The text of the file of that name on a page, as a user would copy it."""
    text = (REPOSITORY / page).read_text()
    (code,) = re.findall(rf"(?m)^    # {re.escape(name)}\n((?:    .*\n|\n)+)", text)
    return re.sub(r"(?m)^    ", "", code)


@contextmanager
def installed(site: Path, files: Mapping[str, str], **points: str) -> Iterator[None]:
    """A context with a package of these files in that folder. points: by the last part of a group, what it offers."""
    facts, groups = (
        "offering-1.5.dist-info",
        (f"[pareto.{group}]\n{each}\n" for group, each in points.items()),
    )
    about = {"METADATA": "Name: offering\nVersion: 1.5\n", "entry_points.txt": "".join(groups)}
    for name, text in {**files, **{f"{facts}/{name}": text for name, text in about.items()}}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        for of, name in ((Kind, "offered"), (registry, "_offered")):  # where nothing is known yet
            patch.setattr(of, name, functools.cache(getattr(of, name).__wrapped__))
        yield
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", "")).startswith(str(site)):
            del sys.modules[name]
