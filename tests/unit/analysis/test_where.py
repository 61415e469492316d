"""Constraints: what of a front holds them, and how they are read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.fronts.where import Where
from pareto.protocol.errors import UserError
from tests.unit.refusals import refusal

NAN = float("nan")


def candidates() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "backend": ["tcp", "tcp", "rpc", "rpc"],
            "point": ["0", "3+7", "7", "10"],
            "bound_by": ["edge", "", "server", "edge-server out"],
            "latency_s": [0.05, 0.5, NAN, 2.0],
            "latency_bound_s": [0.04, 0.5, 0.1, 2.5],
            "edge_peak_rss_bytes": [1e6, 1024.0**2, 3e8, 4e8],
            "top1": [0.7, 0.5, NAN, 0.9],
            "rounds": [3, 4, 5, 6],
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [1, 1, 1, 1]),
        ("latency_s < 0.5", [1, 0, 0, 0]),
        ("latency_s <= 500ms", [1, 1, 0, 0]),
        ("latency_s > 5e4 us", [0, 1, 0, 1]),
        ("2 S <= latency_s", [0, 0, 0, 1]),
        (".5 == latency_s", [0, 1, 0, 0]),
        ("latency_s != 2", [1, 1, 0, 0]),
        ("latency_s >= latency_bound_s", [1, 1, 0, 0]),
        ("edge_peak_rss_bytes <= 1mb", [1, 0, 0, 0]),
        ("edge_peak_rss_bytes <= 1 MiB", [1, 1, 0, 0]),
        ("top1 > 60%", [1, 0, 0, 1]),
        ("backend == tcp", [1, 1, 0, 0]),
        ("backend != 'tcp'", [0, 0, 1, 1]),
        ('bound_by == "edge-server out"', [0, 0, 0, 1]),
        ("point == 7", [0, 0, 1, 0]),
        ("bound_by != 10ms-100mbit", [1, 0, 1, 1]),
        ("point == 3+7", [0, 1, 0, 0]),
        ("3+7 == point", [0, 1, 0, 0]),
        ("point == '3+7' or point == 10", [0, 1, 0, 1]),
        # Not measured is neither fulfilled nor refuted.
        ("not latency_s < 0.1", [0, 1, 0, 1]),
        ("latency_s < 0.1 or rounds == 5", [1, 0, 1, 0]),
        ("not (latency_s < 0.1 and rounds == 5)", [1, 1, 0, 1]),
        ("not (latency_s < 0.1 and rounds == 4)", [1, 1, 1, 1]),
        ("bound_by != edge", [0, 0, 1, 1]),
        # and binds closer than or, not closest.
        ("rounds == 3 or rounds == 4 and backend == rpc", [1, 0, 0, 0]),
        ("(rounds == 3 or rounds == 4) and backend == rpc", [0, 0, 0, 0]),
        ("not backend == rpc and rounds > 3", [0, 1, 0, 0]),
        ("not backend == rpc or not backend == tcp", [1, 1, 1, 1]),
        ("NOT NOT rounds>3 AND rounds<6", [0, 1, 1, 0]),
    ],
)
def test_what_a_constraint_holds_of(text: str, expected: list[int]) -> None:
    found = Where.parse(text).holds(candidates())
    assert found.dtype == bool
    assert found.astype(int).tolist() == expected


@pytest.mark.parametrize(
    "texts",
    [
        ["latency_s", "latency_s <", "latency_s = 1", "latency_s < 1 rounds > 3", "1 < 2"],
        ["(latency_s < 1", "latency_s < 1)", "latency_s < 1 and", "__import__('os').system('true')"],
        ["latency_s < 5kb", "rounds < 5ms", "latency_s < 5 parsecs", "backend < 'tcp'"],
        ["latensy_s < 1", "latency_s == fast", "tcp == backend", "backend < 3", "latency_s < backend_s"],
    ],
    ids=["words", "brackets and code", "units", "columns"],
)
def test_what_cannot_be_read_is_told_in_one_line(texts: list[str], snapshot: SnapshotAssertion) -> None:
    said = [refusal(UserError, lambda text=text: Where.parse(text).holds(candidates())) for text in texts]
    assert said == snapshot


def test_over_resamples_and_cells_at_once() -> None:
    drawn = np.array([[0.1, 0.6], [0.4, NAN]])
    found = Where.parse("latency_s < 0.5 and backend == tcp").within(
        {"latency_s": drawn, "backend": np.array(["tcp", "tcp"], dtype=object)}
    )
    assert found.tolist() == [[True, False], [True, False]]


def test_any_text_is_read_or_refused() -> None:
    """Whatever the words, nothing but an UserError comes out."""
    rng = np.random.default_rng(0)
    words = [*("latency_s", "backend", "<", ">=", "==", "!="), *("and", "or", "not", "(", ")")]
    words += ["0.5", "50ms", "tcp", "'x"]
    read = 0
    for _ in range(3000):
        text = " ".join(rng.choice(words, rng.integers(1, 9)))
        try:
            assert Where.parse(text).holds(candidates()).dtype == bool
            read += 1
        except UserError:
            pass
    assert read > 5


def test_endless_brackets_are_one_line() -> None:
    for text in ("(" * 3000 + "rounds > 3" + ")" * 3000, "not " * 3000 + "rounds > 3"):
        assert len(refusal(UserError, Where.parse, text)) < 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("backend == rpc", [1, 1, 0]),
        ("backend != rpc", [1, 0, 1]),
        ("not backend == rpc", [1, 0, 1]),
        ("backend == rpc and latency_s > 1", [0, 0, 0]),
    ],
)
def test_where_nothing_crosses_any_backend_is_meant(text: str, expected: list[int]) -> None:
    rows = pd.DataFrame({"backend": ["none", "rpc", "tcp"], "latency_s": 0.1})
    assert Where.parse(text).holds(rows).astype(int).tolist() == expected
