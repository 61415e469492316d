"""What forecasts count with: of a link its mean and its best; of a model what its units take by their runs."""

from __future__ import annotations

from contextlib import closing
from math import inf
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.prediction.network import Network
from pareto.hosts.host import EDGE
from pareto.predict.backend_costs import QUICK, THOROUGH
from pareto.predict.links import case, doubts
from pareto.predict.model_times import at_once, no_unit_energy, unit_times
from pareto.protocol.profile_messages import UnitRuns
from pareto.remote.link.probe import Tolerance
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep.networks import profiles
from tests.program import command, measured, refused, well
from tests.unit.far_end import bed_of, silent

BACK = Direction(delay_s=0.02)
TRACE = Trace("drive", 4.0, (Step(0.0, 0.25, 1e6), Step(2.0, 0.75, 9e6)))


@pytest.mark.parametrize(
    ("profile", "usual", "best"),
    [
        (Profile("still", Direction(0.01, 5e6), BACK), (0.01, 5e6, 0.02, inf), (0.01, 5e6, 0.02, inf)),
        (Profile("jittery", Direction(0.01, 5e6, jitter_s=0.004)), (0.01, 5e6, 0, inf), (0.006, 5e6, 0, inf)),
        (Profile("bucket", Direction(0.01, 5e6), bucket=Bucket()), (0.01, 5e6, 0, inf), (0.01, inf, 0, inf)),
        (Profile("overtaken", Direction(0.01, 5e6, reorder=0.1)), (0.01, 5e6, 0, inf), (0.01, inf, 0, inf)),
        (Profile("drive", Direction(trace=TRACE)), (0.5, 5e6, 0, inf), (0.25, 9e6, 0, inf)),
    ],
)  # fmt: skip
def test_a_link_is_as_in_the_mean_and_at_its_best(
    profile: Profile, usual: tuple[float, ...], best: tuple[float, ...]
) -> None:
    """Or off by what probes allow."""
    made = case("", [profile, profile], Tolerance(0.1, 0.002, 0.3), 1, "auto", "none")
    assert (made.usual, made.at_best) == ((Network(*usual),) * 2, (Network(*best),) * 2)
    assert made.slack == Tolerance(0.1, 0.002, 0.3)


NET = """
from torch import nn
def build():
    layers = [nn.Conv2d(3 if not layer else 16, 16, 3, stride=2, padding=1) for layer in range(5)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 10))
build.input_shape = (3, 32, 32)
"""


def test_the_front_is_predicted_from_a_profile_that_is_made_and_kept(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "net_to_predict.py").write_text(NET)
    done = well(
        *f"advise -m {tmp_path}/net_to_predict.py:build --testbed simulated --hosts 3 --netem wifi+5g".split(),
        *f"--granularity op --batch-size 4 --in-flight 2 --out {tmp_path}".split(),
    )
    assert max(len(line) for line in done.out.splitlines() if not line.startswith(str(tmp_path))) <= 80
    assert done.out.replace(str(tmp_path), "FOLDER") == snapshot
    assert {path.suffix for path in (tmp_path / "predictions").iterdir()} == {".csv"}
    (kept,) = (tmp_path / "profiles").iterdir()
    again = f"advise --profile {kept} --netem wifi+5g --in-flight 2 --out {tmp_path}"
    assert command(*again.split()) == done


def test_each_codec_has_a_front_of_its_own(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "net_with_codecs.py").write_text(NET)
    done = well(
        *f"advise -m {tmp_path}/net_with_codecs.py:build --testbed simulated --netem 5ms-1mbit".split(),
        *f"--backend tcp --codec none,int8+zstd,jpeg --out {tmp_path}".split(),
    )
    assert done.out.replace(str(tmp_path), "FOLDER") == snapshot
    assert "int8+zstd-3" in " ".join(path.name for path in (tmp_path / "predictions").iterdir())


def test_a_report_and_an_advice_are_by_the_profile_in_their_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "net_of_chain.py").write_text(NET)
    model = f"{tmp_path}/net_of_chain.py:build"
    where = ("--granularity", "op", "--testbed", "simulated", "--hosts", "3")
    run_it = ("--model", model, *where, "--netem", "wifi", "--points", "0+0,0+2,6+6", "--trials", "1")
    assert measured(*run_it, "--figures", "none", "--out", str(tmp_path)).code == 0
    (run,) = {path.parent for path in tmp_path.glob("*/trials.csv")}
    wanted = ("advise", str(run), "--latency", "20ms", "--rate", "30mbit")
    assert "--profile" in command(*wanted).err
    assert command("partitions", model, "--times", *where, "--out", str(run)).code == 0
    advised, reported = command(*wanted), command("report", str(run), "--figures", "none")
    for done in (advised, reported):
        assert (done.code, done.err) == (0, "")
        assert "the model profile predicted latency off by" in " ".join(done.out.split())
    assert " ".join(advised.out.split()).startswith("net_of_chain.build at 20 ms and 30 Mbit/s: ")
    rows = pd.read_csv(run / "prediction.csv")
    assert set(rows["backend"]) == {"tcp", "rpc", "none"}
    assert rows["latency_off"].abs().max() < 0.2


@pytest.mark.parametrize(
    ("name", "doubted"), [("wifi", False), ("200ms-5mbit-tbf", True), ("10ms-10mbit-1%", True)]
)
def test_a_link_of_which_the_arithmetic_does_not_hold_is_named(name: str, doubted: bool) -> None:
    (profile,) = profiles(name)
    said = list(doubts([profile, profile]))
    assert [profile.name in line for line in said] == [True] * doubted


def test_results_through_a_codec_are_not_predicted() -> None:
    assert "none/zstd:3" in refused(*["advise", "-m", "alexnet", "--netem", "wifi", "--codec", "none/zstd"])


@pytest.mark.parametrize(
    ("facts", "units", "why"),
    [
        ({"device": "cpu", "energy_unit_s": 0.8}, 75, ""),
        ({"device": "cpu", "energy_unit_s": 0.8}, 76, "76 x 0.8 s"),
        ({"device": "cuda:0", "energy_unit_s": 0.1}, 1, "copied"),
    ],
)
def test_units_have_energy_where_a_meter_is_quick_enough(facts, units, why) -> None:
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
