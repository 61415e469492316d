"""Which figures some findings have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.figures.kinds import drawings
from analysis.figures.shown import worth_showing
from analysis.findings import Findings, Options, find
from tests.unit import example_chain
from tests.unit.example_run import trials, write


def names(found: Findings) -> list[str]:
    """The figures that there are, as in their files' names, without drawing them."""
    return ["-".join((drawing.kind, *drawing.name)) for drawing in drawings(found, each=True)]


def test_two_hosts_have_no_map_of_two_cuts(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3,), (5,)], backends=["tcp"])
    found = find([example_chain.write(tmp_path, rows, staged)], Options())
    kinds = {drawing.kind for drawing in drawings(found, each=True)}
    assert {"front", "attribution", "utilization"} <= kinds
    assert "cuts" not in kinds


def test_a_constraint_leaves_out_conditions_without_a_feasible_point(tmp_path: Path) -> None:
    more = trials(rounds=1, netem="wifi"), trials(rounds=1, netem="dead", status="failed")
    rows = [row for of_profile in (trials(rounds=1), *more) for row in of_profile[::5]]
    found = find([write(tmp_path, rows)], Options(where="netem == wifi"))
    assert set(worth_showing(found.front)["netem"]) == {"wifi", "dead"}
    assert {drawing.name[1] for drawing in drawings(found, each=True) if drawing.kind == "front"} == {"wifi"}
    assert worth_showing(find([tmp_path], Options()).front)["netem"].nunique() == 3


@pytest.mark.parametrize(
    "rows",
    [
        trials(rounds=1, backends=("rpc",)),
        trials(rounds=1)[::5],
        trials(rounds=1)[:1],
        trials(rounds=1, latency_bound_s="", edge_s="", payload_bytes="", point_name=""),
        trials(rounds=1, codec="fp16")[::6] + trials(rounds=1)[::6],
    ],
    ids=["one round of one backend", "holes", "one trial", "little measured", "two codecs"],
)
def test_partial_runs(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    run = write(tmp_path, rows)
    (run / "manifest.json").unlink()
    assert {"front-mobilenetv2-200ms-5mbit", "attribution-mobilenetv2-200ms-5mbit"} <= set(
        names(find([run], Options()))
    )


def test_batch_sizes_and_profiles_get_files_of_their_own(tmp_path: Path) -> None:
    few = trials(rounds=1)[20:23]
    run = write(tmp_path, few + [row | {"batch_size": 8} for row in few])
    assert set(names(find([run], Options()))) >= {
        "front-mobilenetv2-200ms-5mbit-b1",
        "front-mobilenetv2-200ms-5mbit-b8",
    }
