"""What forecasts count with on a link: its mean, and its best."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.prediction.network import Network
from pareto.predict.links import case, doubts
from pareto.remote.link.probe import Tolerance
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace
from pareto.sweep.networks import profiles
from tests.program import command, measured, refused, well

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
