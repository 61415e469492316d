"""What a search struck off: it competes with nothing, and stands beside the front as what it is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.findings import find
from analysis.fronts.front import front
from analysis.points import CELL
from analysis.runs.load import joined, load
from analysis.schema import STRUCK
from pareto.errors import UserError
from tests.unit.example_run import trials, write

ROUNDS = 7


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in which one cell was struck off after a lucky first round, and another has no trial at all."""
    rows = trials(rounds=ROUNDS)
    first = next(row for row in rows if row["payload_bytes"] and row["backend"] == "tcp")
    lucky = {name: first[name] for name in CELL if name in first}
    kept = [row for row in rows if any(row[name] != lucky[name] for name in lucky) or row["round"] == 1]
    for row in kept:
        if all(row[name] == lucky[name] for name in lucky):
            row["latency_s"], row["throughput_ips"] = 1e-6, 1e6
    folder = write(tmp_path / "run", kept)
    other = {
        **lucky,
        "in_flight_asked": "auto",
        "point": "99",
        "how": "physics",
        "latency_s": 2.0,
        "throughput_ips": 0.5,
    }
    usual = {
        "run": first["run"],
        "point_name": "p",
        "round": 1,
        "payload_bytes": 5,
        "by_point": "1",
        "by_backend": "rpc",
    }
    lucky["in_flight_asked"] = "auto"
    struck = [
        {**usual, **lucky, "how": "rounds", "latency_s": 1e-6, "throughput_ips": 1e6, "probability": 0.01},
        {**usual, **other, "probability": 1e-9},
    ]
    pd.DataFrame(struck).reindex(columns=STRUCK.columns).to_csv(folder / STRUCK.file, index=False)
    return folder


def test_what_was_struck_off_is_on_no_front_however_good_its_few_trials_are(run: Path) -> None:
    alone = front(load([run]))
    assert alone["rounds"].eq(ROUNDS).all()
    assert alone["latency_s"].min() > 1e-6
    rows = find([run]).front
    struck = rows[rows["settled"] != "measured"]
    assert struck["settled"].value_counts().to_dict() == {"rounds": 1, "physics": 1}
    assert not struck[["on_front", "on_backend_front", "on_energy_front"]].any(axis=None)
    assert len(rows) == len(alone) + 2
    by_rounds, physics = (struck[struck["settled"] == how].iloc[0] for how in ("rounds", "physics"))
    assert (by_rounds["rounds"], by_rounds["latency_s"]) == (1, 1e-6)
    assert (physics["rounds"], physics["least_latency_s"], physics["most_throughput_ips"]) == (0, 2.0, 0.5)
    assert rows.drop_duplicates(CELL).shape == rows.shape


def test_a_run_without_a_search_is_as_it_was(run: Path) -> None:
    (run / STRUCK.file).unlink()
    assert "settled" not in load([run])
    assert "settled" not in find([run]).front
    assert joined([run]).struck.empty


def test_the_page_lists_them(run: Path) -> None:
    from analysis.page.document import write as write_page

    page = write_page(find([run]), run / "page.html").read_text()
    assert "What the search struck off" in page
    assert "1e-09" in page


@pytest.mark.parametrize("fault", ["nonsense", "point,how\n\x00,\x00\n"])
def test_a_file_that_is_no_such_table_is_one_line(run: Path, fault: str) -> None:
    (run / STRUCK.file).write_text(fault + "\n")
    with pytest.raises(UserError):
        load([run])
