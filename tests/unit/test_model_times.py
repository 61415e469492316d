"""What units take by their runs, whether they have energy, and which hosts are timed at once."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pareto.hosts.host import EDGE
from pareto.predict.backend_costs import QUICK, THOROUGH
from pareto.predict.model_times import at_once, no_unit_energy, unit_times
from pareto.protocol.profile_messages import UnitRuns
from tests.unit.far_end import bed_of, silent


@pytest.mark.parametrize(
    ("facts", "units", "why"),
    [
        ({"device": "cpu", "energy_unit_s": 0.8}, 75, ""),
        ({"device": "cpu", "energy_unit_s": 0.8}, 76, "76 x 0.8 s"),
        ({"device": "cuda:0", "energy_unit_s": 0.1}, 1, "copied"),
    ],
)
def test_units_have_energy_where_a_meter_is_quick_enough(facts: dict[str, Any], units: int, why: str) -> None:
    assert why in no_unit_energy(facts, units)
    assert bool(why) == bool(no_unit_energy(facts, units))


def test_hosts_are_timed_at_once_where_none_disturbs_the_other() -> None:
    own, shared = {"on_one_core": []}, {"on_one_core": [["edge", "server"]]}
    with closing(bed_of(silent(), is_local=True)) as local, closing(bed_of(silent())) as apart:
        for facts, of_search in ((own, True), (shared, False)):
            local.facts.update(facts)
            assert (at_once(local, QUICK), at_once(local, THOROUGH)) == (of_search, False)
        assert at_once(apart, QUICK)
        assert at_once(apart, THOROUGH)


def test_units_add_up_to_the_median_run_and_quantiles_are_over_runs() -> None:
    units_s = [[1.0 + (number % 3 == unit) for unit in range(3)] for number in range(12)]
    times = unit_times(EDGE, {}, 1, 1.0, UnitRuns(units_s, [4.0] * 12, [0.0] * 12, None))
    assert times.median_s.tolist() == pytest.approx([4 / 3] * 3), "each is slow in a third of the runs"
    assert (times.difference, times.least_s.tolist()) == (pytest.approx(0), [1.0] * 3)
    nothing = UnitRuns([[0.0, 0.0]] * 6, [1e-9] * 6, [0.0] * 6, None)
    assert unit_times(EDGE, {}, 1, 1.0, nothing).median_s.tolist() == [0.0, 0.0]
    units_s = [[1.0 + number, 10.0] for number in range(21)]
    times = unit_times(EDGE, {}, 1, 1.0, UnitRuns(units_s, [13.0] * 21, [0.5] * 21, [5, 7]))
    assert (times.median_s.tolist(), times.least_s.tolist()) == ([11.0, 10.0], [2.0, 10.0])
    assert times.whole_s == (13.0, 13.0, 13.0, 12.0), "the last one is of the runs with marks"
    assert (times.outside_s, times.after_pause_s) == (0.5, 0.0)
    paused = UnitRuns(units_s, [13.0] * 21, [0.5] * 21, None, [], [13.0, 14.5, 20.0])
    assert unit_times(EDGE, {}, 1, 1.0, paused).after_pause_s == 1.5
    assert times.peak_bytes.tolist() == [5, 7]
