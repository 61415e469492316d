"""A paper's claims on its own runs, as data in a file, each with a verdict on each condition that it can be seen in.

They are conclusions and figures as in `published`, and what is alike. A figure is judged by its 95 % interval, and what
is alike by that of the difference, round by round: never by medians alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, nextafter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pandas as pd
from pydantic import BaseModel, Field, model_validator

from pareto.analysis.comparing import published
from pareto.analysis.comparing.published import FAILS, HOLDS, SAME, UNSURE, Cells, Measured
from pareto.basics.yaml_file import YamlFile, quantity
from pareto.protocol.errors import UserError
from pareto.remote.link.units import share

Share = Annotated[float, quantity(share), Field(gt=0)]
WORST = (FAILS, UNSURE, SAME, HOLDS)
"""The verdicts: the first of them that is one condition's is the claim's."""


class Better(published.Conclusion, frozen=True):
    """A claim that the best of some cells beats the best of others. run: the name of a run's folder."""

    run: str
    source: str = ""


class Alike(Better, frozen=True):
    """A claim that the best of some cells and the best of others differ by no more than a share."""

    better: Cells = Field(alias="one")
    than: Cells = Field(alias="other")
    within: Share


class Value(published.Figure, frozen=True):
    """A claim that a figure of each of some cells is beyond a value, or with `~` within a share of it."""

    run: str
    source: str = ""
    sign: Literal["<", "<=", ">", ">=", "~"] = Field(alias="is")
    within: Share | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> Value:
        if (self.sign == "~") != (self.within is not None):
            raise ValueError("within, such as 10%, goes with is: '~', and with nothing else")
        return self

    @property
    def span(self) -> tuple[float, float]:
        """The least and the most that the figure may be."""
        off, value = abs(self.value) * (self.within or 0), self.value
        below, above = (-inf, nextafter(value, -inf)), (nextafter(value, inf), inf)
        spans = {"<": below, "<=": (-inf, value), ">": above, ">=": (value, inf)}
        return spans.get(self.sign, (value - off, value + off))


class Claims(BaseModel, frozen=True, extra="forbid"):
    """The claims of a paper on the runs of an artefact. license: of the runs, an address or words."""

    title: str = ""
    license: str = ""
    conclusions: tuple[Better, ...] = ()
    alike: tuple[Alike, ...] = ()
    figures: tuple[Value, ...] = ()


class Verdict(NamedTuple):
    """A claim, the verdict on it, and that of each condition, or cell, that it can be seen in."""

    claim: Better | Value
    verdict: str
    rows: pd.DataFrame


def judged(path: Path, runs: Mapping[str, Path]) -> tuple[Claims, list[Verdict]]:
    """The claims in a file, and the verdicts on them. runs: their folders, by name. Raises UserError, which names the
    line, also for a claim that names nothing measured."""
    file, found = YamlFile(path, "claims"), []
    claims = file.read(Claims, "conclusions or figures, as in results/example/claims.yaml")
    known = {name: published.measured(folder) for name, folder in runs.items()}
    for kind in ("conclusions", "alike", "figures"):
        for place, claim in enumerate(getattr(claims, kind)):
            with file.blaming(kind, place):
                if claim.run not in known:
                    raise UserError(f"run {claim.run!r} is none of those given: {', '.join(known)}")
                if not (rows := [*_rows(claim, known[claim.run])]):
                    raise UserError(f"{claim.says!r} names nothing that the run {claim.run} has measured")
            worst = min((row["verdict"] for row in rows), key=WORST.index)
            found.append(Verdict(claim, worst, pd.DataFrame(rows)))
    if not found:
        raise UserError(f"{path}: has no claim: write conclusions, alike or figures")
    return claims, found


def _rows(claim: Better | Value, known: Measured) -> Iterator[dict[str, Any]]:
    """Yield the row of each condition, or cell, with its verdict."""
    if isinstance(claim, Value):
        for row in published.figures(claim, known.rows):
            yield {**row, "verdict": _verdict((row["low"], row["high"]), claim.span)}
        return
    for row in published.judged(claim, known):
        if isinstance(claim, Alike) and row["verdict"] != SAME:
            most = 100 * claim.within
            row["verdict"] = _verdict((row["low_percent"], row["high_percent"]), (-most, most))
        yield row


def _verdict(interval: tuple[float, float], span: tuple[float, float]) -> str:
    """The verdict on whether a figure is within a span; an interval of NaN, for too few rounds, tells nothing."""
    (low, high), (least, most) = interval, span
    return HOLDS if least <= low and high <= most else FAILS if high < least or low > most else UNSURE
