"""A search on a run without a machine: the command, its files, going on with it, and its budget."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from pareto import analysis
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.runs.load import joined
from pareto.analysis.runs.struck import with_struck
from pareto.hosts.host import TestbedError
from pareto.partitions.engines.registry import ENGINES as ENTRIES
from pareto.predict.search import Contest
from pareto.predict.search_run import Searching
from pareto.remote.link.units import minutes
from pareto.run import session
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import networks_of
from pareto.sweep.plan import ModelFacts
from pareto.sweep.sweep import Sweep
from tests.program import command, measured
from tests.unit.simulated.worlds import MODEL, POINTS

JOB = ("--model", MODEL, "--netem", "20ms-5mbit", "--testbed", "simulated", "--search", "--figures", "none")
NETEMS = ("20ms-5mbit", "1ms-100mbit")
NOISY = ("--netem", ",".join(NETEMS))
Rows = list[dict[str, str]]


def only_run(folder: Path) -> Path:
    (run,) = (folder / "out").iterdir()
    return run


def read(folder: Path, name: str) -> Rows:
    with (only_run(folder) / name).open(newline="") as file:
        return list(csv.DictReader(file))


def key(row: dict[str, str]) -> tuple[str, str]:
    return row["point"], row["backend"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a search's results, and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    done = command(*JOB, "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return folder, done.out


def front(folder: Path) -> pd.DataFrame:
    """As `front.csv`, but for the probabilities."""
    known = joined([only_run(folder)])
    return with_struck(analysis.front(known.trials, resamples=20), known.trials, known.struck)


def best(folder: Path) -> pd.DataFrame:
    rows = front(folder)
    return rows[rows["on_front"].eq(True)]


def test_a_search_measures_a_part_and_says_how_each_cell_was_settled(whole: tuple[Path, str]) -> None:
    folder, out = whole
    rounds = Counter(map(key, read(folder, "trials.csv")))
    physics = {key(row) for row in read(folder, "struck.csv") if row["how"] == "physics"}
    assert physics
    assert not physics & rounds.keys()
    assert len(physics | rounds.keys()) == 2 * POINTS
    rows = pd.read_csv(only_run(folder) / "front.csv", keep_default_na=False)
    assert set(rows["settled"]) <= {"measured", "physics", "rounds"}
    assert set(best(folder)["settled"]) == {"measured"}
    assert (best(folder)["rounds"].astype(int) >= 6).all()
    # A point where nothing crosses is one cell beside the front, whatever backends it was measured under.
    nothing = {str(POINTS - 1)} & {point for point, _ in rounds.keys() | physics}
    assert len(rows) == 2 * POINTS - len(nothing)
    (line,) = re.findall(r"16 cells: [^;]*; [^;]* all cells would take", " ".join(out.split()))
    assert f"{len(physics)} by physics" in line
    assert len(list((only_run(folder) / "profiles").iterdir())) == 1


@pytest.mark.deep
def test_all_cells_give_the_same_front(whole: tuple[Path, str], tmp_path: Path) -> None:
    job = [*(word for word in JOB if word != "--search"), "--trials", "6"]
    assert measured(*job, "--out", str(tmp_path / "out")).code == 0
    assert not (only_run(tmp_path) / "struck.csv").exists()
    assert set(best(tmp_path)["point"]) == set(best(whole[0])["point"])
    words = " ".join(whole[1].split()).partition("all cells would take ")[2]
    foretold_s = sum(
        int(number) * {"h": 3600, "min": 60, "s": 1}[unit]
        for number, unit in re.findall(r"(\d+) (h|min|s)\b", words[:20])
    )
    took_s = sum(float(row["wall_s"]) for row in read(tmp_path, "trials.csv"))
    assert foretold_s == pytest.approx(took_s, rel=0.15)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the results of a run as it is where nobody says how many rounds, and what it printed."""
    folder = tmp_path_factory.mktemp("default")
    job = [word for word in JOB if word != "--search"]
    done = measured(*job, *world(folder), "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return folder, done.out


def test_every_cell_is_measured_once_and_what_can_be_on_a_front_six_times(default: tuple[Path, str]) -> None:
    folder, out = default
    trials, struck = read(folder, "trials.csv"), read(folder, "struck.csv")
    rounds = Counter(map(key, trials))
    assert len(rounds) == 2 * POINTS
    assert Counter(row["round"] for row in trials)["1"] == 2 * POINTS
    off = {key(row) for row in struck}
    assert 0 < len(off) < 2 * POINTS
    assert {key for key, count in rounds.items() if count == 6} == rounds.keys() - off
    words = " ".join(out.split())
    assert "rounds of every cell once, then of what can still be on the front" in words
    assert f"{2 * POINTS} cells: {2 * POINTS - len(off)} in 6 rounds, " in words
    assert not (only_run(folder) / "profiles").exists(), "no model is profiled for it"


def test_each_backend_keeps_a_front_of_its_own(default: tuple[Path, str]) -> None:
    """What strikes a cell off is of its own backend, or a cell where nothing crosses."""
    folder, _ = default
    crossing = {row["point"] for row in read(folder, "trials.csv") if float(row["payload_bytes"])}
    struck = read(folder, "struck.csv")
    assert {row["backend"] for row in struck} == {"tcp", "rpc"}
    for row in struck:
        assert row["by_backend"] == row["backend"] or row["by_point"] not in crossing
    fronts = front(folder)
    assert set(fronts.loc[fronts["on_backend_front"].eq(True), "backend"]) >= {"tcp", "rpc"}


def test_a_run_that_goes_on_does_only_what_is_missing(default: tuple[Path, str], tmp_path: Path) -> None:
    before, after = resumed(default[0], tmp_path)
    assert Counter((*key(row), row["round"]) for row in after) == Counter(
        (*key(row), row["round"]) for row in before
    )


def test_links_alone_bound_what_was_never_profiled() -> None:
    sweep = make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp,rpc"})
    made = searching([], sweep)
    (contest,) = made._contests.values()
    known = contest.search.prospects
    least_s = np.exp(known.bound[:, 0])
    assert not made.lacks_profiles
    assert least_s == pytest.approx([0.198, 0.198, 0.198, 0.198, 0, 0], abs=2e-3)
    assert np.isfinite(known.expected).all()
    assert not known.moves
    assert known.twins is not None
    assert known.twins.tolist() == [[split, backend] for split in range(3) for backend in range(2)]
    assert known.fronts is not None
    assert known.fronts.tolist() == [*[[True, False], [False, True]] * 2, *[[True, True]] * 2]


def test_a_search_that_goes_on_does_only_what_is_missing(whole: tuple[Path, str], tmp_path: Path) -> None:
    """Whatever of its rows are left, it ends with the trials of one that never stopped."""
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    run, trials = only_run(tmp_path), read(tmp_path, "trials.csv")
    struck = (run / "struck.csv").read_text()
    lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    resume = ("--resume", str(run), "--model", MODEL, "--figures", "none")
    (run / "trials.csv").write_text("".join(lines[:4]))
    again = measured(*resume)
    assert again.code == 0, again.err
    after = read(tmp_path, "trials.csv")
    assert Counter((*key(row), row["round"]) for row in after) == Counter(
        (*key(row), row["round"]) for row in trials
    )
    assert (run / "struck.csv").read_text() == struck
    assert measured(*resume).code == 0
    assert read(tmp_path, "trials.csv") == after


def test_rounds_are_added_for_what_is_left_alone(tmp_path: Path) -> None:
    done = measured(*JOB, "--out", str(tmp_path / "out"), "--budget", "60s")
    assert done.code == 0, done.err
    trials, struck = read(tmp_path, "trials.csv"), read(tmp_path, "struck.csv")
    last = str(max(int(row["round"]) for row in trials))
    assert int(last) > 6
    assert not {key(row) for row in trials if row["round"] == last} & {key(row) for row in struck}


def test_a_short_budget_goes_to_the_least_clear_cells(tmp_path: Path) -> None:
    job = (*JOB, "--netem", "100ms-2mbit")
    short = measured(*job, "--out", str(tmp_path / "out"), "--budget", "15s")
    assert short.code == 0, short.err
    assert "least clear" in short.out
    assert 2 < len(read(tmp_path, "trials.csv")) < 2 * POINTS


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted: 0 trials are kept"),
        (TestbedError("the profile broke off: edge ended"), 2, "error: the profile broke off: edge ended"),
    ],
    ids=["interrupted", "broken"],
)
def test_a_first_search_that_ends_in_its_model_profile_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, words: str
) -> None:
    monkeypatch.setattr(session, "_model_profiles", Mock(side_effect=error))
    ended = command(*JOB, "--out", str(tmp_path / "out"))
    assert ended.code == code
    assert words in (ended.out + ended.err).splitlines()
    assert not (tmp_path / "out").exists()


def test_a_search_that_goes_on_takes_the_model_profile_of_its_folder(
    whole: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    run = only_run(tmp_path)
    lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    (run / "trials.csv").write_text("".join(lines[:-1]))
    monkeypatch.setattr(session, "_model_profiles", Mock(side_effect=AssertionError))
    assert measured("--resume", str(run), "--model", MODEL, "--figures", "none").code == 0
    assert len(read(tmp_path, "trials.csv")) == len(lines) - 1


def test_a_search_for_which_no_profile_is_made_ends_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes longer than it can spare."""
    made = Mock(return_value={})
    monkeypatch.setattr(session, "_model_profiles", made)
    done = measured(*JOB, "--netem", "200ms-5mbit", "--out", str(tmp_path / "out"))
    assert done.code == 0, done.err
    run, struck = only_run(tmp_path), read(tmp_path, "struck.csv")
    assert not (run / "profiles").exists()
    assert "model profile's" not in done.out
    assert struck, "by rounds that all cells have had"
    before = {(*key(row), row["round"]) for row in read(tmp_path, "trials.csv")}
    lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    (run / "trials.csv").write_text("".join(lines[:-3]))
    assert measured("--resume", str(run), "--model", MODEL, "--figures", "none").code == 0
    assert {(*key(row), row["round"]) for row in read(tmp_path, "trials.csv")} == before
    assert made.call_count == 2


ELSEWHERE = ("--latency", "3ms", "--rate", "300mbit")


def test_advice_for_another_network_is_by_the_model_profile_in_the_folder(whole: tuple[Path, str]) -> None:
    run = only_run(whole[0])
    (profile,) = (run / "profiles").iterdir()
    done = command("advise", str(run), *ELSEWHERE)
    assert (done.code, done.err) == (0, "")
    by_profile = command("advise", "--profile", str(profile), str(run), *ELSEWHERE).out
    assert done.out.startswith(by_profile)
    physics = [row for row in read(whole[0], "struck.csv") if row["how"] == "physics"]
    assert f"struck off {len(physics)} cells without a trial" in " ".join(done.out.split())
    there = command("advise", str(run), "--latency", "20ms", "--rate", "5mbit")
    assert "measured at 20ms-5mbit" in " ".join(there.out.split())
    assert "model profile" not in there.out


@pytest.mark.parametrize("why", ["constraint", "broken", "none"])
def test_advice_that_no_model_profile_gives_is_by_the_trials_and_says_what_they_lack(
    whole: tuple[Path, str], tmp_path: Path, why: str
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    run = only_run(tmp_path)
    (profile,) = (run / "profiles").iterdir()
    where = ("--where", "edge_s < 10") if why == "constraint" else ()
    if why == "broken":
        (profile / "profile.json").write_text("{}")
    if why == "none":
        shutil.rmtree(run / "profiles")
    done = command("advise", str(run), *ELSEWHERE, *where)
    assert (done.code, done.err) == (0, "")
    said = "".join(done.out.split())  # a path may be on two lines
    assert "attention:asearchstruckoff" in said
    assert (f"advise--profile{profile}" in said) == (why != "none")


def test_profiles_are_learnt_once() -> None:
    search = searching([])
    assert search.lacks_profiles
    search.learn(Mock(keys=lambda: {"m"}, get=lambda name: None))
    assert not search.lacks_profiles


def test_a_search_without_profiles_knows_the_links_alone() -> None:
    """Where a profile takes longer than it can spare: no cell waits for what will not come."""
    search = searching(
        [], make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp", "search": True})
    )
    (contest,) = search._contests.values()
    assert np.isnan(contest.search.prospects.expected).all()
    search.learn({}, are_all=True)
    assert not search.lacks_profiles
    known = contest.search.prospects
    assert np.isfinite(known.expected).all()
    assert np.isfinite(known.bound[:2]).all()
    assert not known.moves
    assert (known.fronts, set(known.tiers)) == (None, {0}), "one front, and all in the first round"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A search at two networks to which rounds were added until it was sure, and what it printed."""
    folder = tmp_path_factory.mktemp("grown")
    done = measured(
        *JOB, *NOISY, "--out", str(folder / "out"), "--until", "4%", "--backend", "tcp", *world(folder)
    )
    assert done.code == 0, done.err
    return folder, done.out


def world(folder: Path) -> tuple[str, ...]:
    (folder / "world.yaml").write_text("noise: {trial: 3%}\nrequests: 30\n")
    return ("--testbed", f"simulated:{folder}/world.yaml")


def test_rounds_are_added_until_what_is_left_is_sure(grown: tuple[Path, str]) -> None:
    folder, out = grown
    (session,) = json.loads((only_run(folder) / "manifest.json").read_text())["sessions"]
    assert session["stopping"]["ended"] == "sure"
    trials, struck = read(folder, "trials.csv"), read(folder, "struck.csv")
    added = [row for row in trials if int(row["round"]) > 6]
    off = {(row["netem"], *key(row)) for row in struck}
    last = {netem: max(int(row["round"]) for row in trials if row["netem"] == netem) for netem in NETEMS}
    assert added and off
    assert not {(row["netem"], *key(row)) for row in added if int(row["round"]) == last[row["netem"]]} & off
    assert "sure after" in out
    rows = front(folder)
    least = rows[rows["settled"] == "measured"].groupby("netem")["rounds"].max()
    assert dict(least) == last


@pytest.mark.parametrize(
    "share", [pytest.param(0.0, marks=pytest.mark.deep), 0.5, pytest.param(0.9, marks=pytest.mark.deep)]
)
def test_a_search_until_it_is_sure_goes_on_from_wherever_it_was(
    grown: tuple[Path, str], tmp_path: Path, share: float
) -> None:
    """Before its first trial, in a later round, and in one that was added."""
    shutil.copytree(grown[0], tmp_path, dirs_exist_ok=True)
    run, trials = only_run(tmp_path), read(tmp_path, "trials.csv")
    head, *lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    kept = lines[: round(share * len(lines))]
    (run / "trials.csv").write_text("".join([head, *kept]))
    (run / "struck.csv").unlink()
    named = ("--model", MODEL, "--testbed", f"simulated:{grown[0]}/world.yaml", "--figures", "none")
    again = measured("--resume", str(run), *named)
    assert again.code == 0, again.err
    after = read(tmp_path, "trials.csv")
    assert (run / "trials.csv").read_text().splitlines(keepends=True)[1 : len(kept) + 1] == kept
    names = ("netem", "point", "backend", "round", "latency_s", "throughput_ips")
    assert sorted(tuple(row[name] for name in names) for row in after) == sorted(
        tuple(row[name] for name in names) for row in trials
    )


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that had 40 s."""
    folder = tmp_path_factory.mktemp("budgeted")
    job = (*JOB, "--netem", "100ms-2mbit", "--out", str(folder / "out"), "--budget", "40s")
    assert measured(*job).code == 0
    return folder


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.deep), 14])
def test_a_search_with_a_budget_goes_on_and_loses_nothing(budgeted: Path, tmp_path: Path, rows: int) -> None:
    shutil.copytree(budgeted, tmp_path, dirs_exist_ok=True)
    run = only_run(tmp_path)
    lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    (run / "trials.csv").write_text("".join(lines[: rows + 1]))
    assert measured("--resume", str(run), "--model", MODEL, "--figures", "none").code == 0
    after = (run / "trials.csv").read_text().splitlines(keepends=True)
    assert after[: rows + 1] == lines[: rows + 1]
    assert len(after) > rows + 1
    each = Counter((*key(row), row["round"]) for row in read(tmp_path, "trials.csv"))
    assert set(each.values()) == {1}
    sessions = json.loads((run / "manifest.json").read_text())["sessions"]
    assert [session["stopping"]["ended"] for session in sessions] == ["budget", "budget"]


class Rounds:
    """A store with these rows."""

    run = "r"

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.struck: list[Any] = []
        self.sessions: list[dict[str, Any]] = [{}]

    def manifest(self) -> dict[str, Any]:
        return {"sessions": self.sessions}

    def rows(self) -> Rows:
        return self._rows

    def write_struck(self, rows: list[Any]) -> None:
        self.struck = rows


def searching(rows: Rows, sweep: Sweep | None = None, nbytes: int = 5) -> Searching:
    sweep = sweep or make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp"})
    facts = {"m": ModelFacts((("input", 9), ("mid", nbytes), ("output", 0)), 0.1, splits=((0,), (1,), (2,)))}
    store: Any = Rounds(rows)
    return Searching(sweep, facts, networks_of(sweep, 1), store, {})


def part_of(rows: Rows, sweep: Sweep | None = None, nbytes: int = 5) -> tuple[plan.Trial, ...]:
    """The next trials after these rows; none when all is measured."""
    search = searching(rows, sweep, nbytes)
    search.update()
    part = search.part()
    return () if part is None else part.trials


def test_a_figure_that_stands_is_known_and_the_other_is_not() -> None:
    base = row(1, 1, latency_s="2") | {"netem": "200ms-5mbit"}
    statuses = ("ok", "latency only", "throughput only", "invalid", "failed")
    rows = [{**base, "round": str(number), "status": each} for number, each in enumerate(statuses, 1)]
    (made,) = searching(rows)._contests.values()
    contest = Contest((*made.group[:1], "200ms-5mbit", *made.group[2:]))
    contest.cells = made.cells
    contest.read(rows, with_unsound=True)
    known = [[False] * 2, [False, True], [True, False], [True] * 2, [True] * 2]
    assert np.isnan(contest.measured[:, 1]).tolist() == known
    assert contest.tried[:, 1].all()
    contest.read(rows, with_unsound=False)
    assert len(contest.tried) == 3, "what none counts of is due again"


CODECS = ("--codec", "none,int8,zstd", "--trials", "3", "--backend", "tcp")


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A search over codecs, and what it printed."""
    folder = tmp_path_factory.mktemp("coded")
    done = measured(*JOB, *CODECS, *world(folder), "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return folder, done.out


def test_a_search_over_codecs_has_the_front_of_each_of_them(coded: tuple[Path, str], tmp_path: Path) -> None:
    folder, out = coded
    job = [word for word in JOB if word != "--search"]
    every = measured(*job, *CODECS, *world(tmp_path), "--out", str(tmp_path / "out"))
    assert every.code == 0, every.err
    cells = {(*key(row), row["codec"]) for row in read(tmp_path, "trials.csv")}
    settled = {(*key(row), row["codec"]) for row in read(folder, "trials.csv") + read(folder, "struck.csv")}
    assert settled == cells
    assert f"{len(cells)} cells: " in " ".join(out.split())
    names = ["point", "codec"]
    fronts = [set(best(each)[names].itertuples(index=False, name=None)) for each in (folder, tmp_path)]
    assert fronts[0] == fronts[1]
    assert {codec for _, codec in fronts[0]} == {"none", "int8", "zstd:3"}
    assert len(read(folder, "trials.csv")) < 0.7 * len(read(tmp_path, "trials.csv"))


def test_what_strikes_a_cell_off_has_its_codec_or_none_at_work(coded: tuple[Path, str]) -> None:
    struck = read(coded[0], "struck.csv")
    assert {row["codec"] for row in struck} > {"int8"}
    of_codec = {(*key(row), row["codec"]) for row in read(coded[0], "trials.csv")}
    for row in struck:
        by = row["by_point"], row["by_backend"]
        assert (*by, row["codec"]) in of_codec or (*by, "none") in of_codec


def resumed(whole: Path, tmp_path: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The trials of a search, and those of its copy that goes on from a third of them."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    run, before = only_run(tmp_path), read(tmp_path, "trials.csv")
    lines = (run / "trials.csv").read_text().splitlines(keepends=True)
    (run / "trials.csv").write_text("".join(lines[: len(lines) // 3]))
    named = ("--model", MODEL, "--testbed", f"simulated:{whole}/world.yaml", "--figures", "none")
    again = measured("--resume", str(run), *named)
    assert again.code == 0, again.err
    return before, read(tmp_path, "trials.csv")


ENGINES = ("--engine", "eager,onnx")


def by_engine(row: dict[str, str]) -> tuple[str, str, str]:
    return (*key(row), row["engine"])


@pytest.fixture(scope="module")
def of_engines(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A search over engines, and what it printed."""
    folder = tmp_path_factory.mktemp("engines")
    done = measured(*JOB, *ENGINES, "--trials", "3", *world(folder), "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return folder, done.out


@pytest.mark.deep
def test_a_search_over_engines_has_the_front_of_each_of_them(
    of_engines: tuple[Path, str], tmp_path: Path
) -> None:
    folder, out = of_engines
    job = [word for word in JOB if word != "--search"]
    every = measured(*job, *ENGINES, "--trials", "3", *world(tmp_path), "--out", str(tmp_path / "out"))
    assert every.code == 0, every.err
    struck, trials = read(folder, "struck.csv"), read(folder, "trials.csv")
    cells = set(map(by_engine, read(tmp_path, "trials.csv")))
    assert set(map(by_engine, trials + struck)) == cells
    assert f"{len(cells)} cells: " in " ".join(out.split())
    assert {row["engine"] for row in struck if row["how"] == "physics"} == {row["engine"] for row in trials}
    for row in struck:
        assert (row["by_point"], row["by_backend"], row["engine"]) in set(map(by_engine, trials))
    names = ["point", "backend", "setup"]
    fronts = [set(best(each)[names].itertuples(index=False, name=None)) for each in (folder, tmp_path)]
    assert fronts[0] == fronts[1]
    assert len({setup for *_, setup in fronts[0]}) == 2
    (note,) = [line for line in compare(only_run(folder), only_run(tmp_path)).notes if "struck off" in line]
    off = {(row["point"], int(row["payload_bytes"]) and row["backend"], row["engine"]) for row in struck}
    assert f"A: its search struck off {len(off)} cells" in note
    assert len(trials) < 0.7 * len(read(tmp_path, "trials.csv"))


def test_what_is_struck_off_of_one_engine_counts_of_another(of_engines: tuple[Path, str]) -> None:
    folder, _ = of_engines
    struck = set(map(by_engine, read(folder, "struck.csv")))
    counts = {
        by_engine(row): sum(by_engine(row) == by_engine(each) for each in read(folder, "trials.csv"))
        for row in read(folder, "trials.csv")
        if by_engine(row) not in struck
    }
    apart = {cell for cell in counts if any((*cell[:2], engine) in struck for engine in ("eager", "onnx"))}
    assert apart, "no cell is struck off of one engine alone"
    settled = {
        (str(row["point"]), row["backend"], row["engine"]): row["settled"]
        for row in front(folder).to_dict("records")
    }
    assert {settled[cell] for cell in apart} == {"measured"}


@pytest.mark.deep
def test_a_search_over_engines_goes_on_from_wherever_it_was(
    of_engines: tuple[Path, str], tmp_path: Path
) -> None:
    before, after = resumed(of_engines[0], tmp_path)
    assert Counter((*by_engine(row), row["round"]) for row in after) == Counter(
        (*by_engine(row), row["round"]) for row in before
    )


def test_what_is_less_accurate_strikes_nothing_off() -> None:
    """The driver knows each codec's accuracy at each split before the first trial."""
    sweep = make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp", "codec": "none,int8"})
    points = (("input", 9), ("mid", 5), ("late", 5), ("output", 0))
    accuracy = {(1, "int8", "eager", (1,)): 0.5, (1, "int8", "eager", (2,)): 0.75}
    facts = {
        "m": ModelFacts(
            points, 0.1, splits=((0,), (1,), (2,), (3,)), accuracy=accuracy,
            dtypes=(("uint8",), ("float32",), ("float32",)),
        )
    }  # fmt: skip
    store: Any = Rounds([])
    search = Searching(sweep, facts, networks_of(sweep, 1), store, {})
    (contest,) = search._contests.values()
    known = contest.search.prospects
    assert known.fronts is not None
    assert known.accuracy is not None
    made = {
        (cell.point, cell.codec): (front, share)
        for cell, front, share in zip(
            contest.cells, known.fronts.tolist(), known.accuracy.tolist(), strict=True
        )
    }
    int8, none = made["1", "int8"][0], made["1", "none"][0]
    assert sorted([int8, none]) == [[False, True], [True, False]]
    assert made == {
        **{("1", "none"): (none, 1.0), ("1", "int8"): (int8, 0.5), ("0", "none"): ([True, True], 1.0)},
        **{("2", "none"): (none, 1.0), ("2", "int8"): (int8, 0.75), ("3", "none"): ([True, True], 1.0)},
    }


def row(point: int, number: int, status: str = "ok", latency_s: str = "0.1") -> dict[str, str]:
    return {
        **{"model": "m", "netem": "none", "batch_size": "1", "codec": "none", "engine": "eager"},
        **{"in_flight_asked": "auto", "prefetch_asked": "0", "allocator": "tuned", "backend": "tcp"},
        **{"point": str(point), "round": str(number), "status": status, "latency_s": latency_s},
        **{"throughput_ips": "10", "wall_s": "2"},
    }


def test_trials_of_which_no_figure_counts_are_due_again() -> None:
    due = part_of([row(0, 1), row(1, 1, "failed", ""), row(2, 1, "latency only")])
    assert [(trial.cell.point, trial.round) for trial in due] == [("1", 1)]


def test_what_fails_in_a_session_is_not_due_again_in_it() -> None:
    """A cell that always fails must not keep the others from being measured."""
    search = searching([row(0, 1), row(1, 1, "failed", ""), row(2, 1)])
    search.is_measuring = True
    search.update()
    part = search.part()
    assert part is not None
    assert {trial.round for trial in part.trials} == {2}
    assert {trial.cell.point for trial in part.trials} == {"0", "1", "2"}


HUGE = 10_000_000


def test_the_first_round_begins_with_what_tells_which_trials_may_be_short() -> None:
    """Over this link a payload takes 20 s: whatever the hosts take, the edge alone is better in both."""
    sweep = make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp"})
    far = [row(point, 1) | {"netem": "200ms-5mbit"} for point in (0, 2)]
    efforts = [{it.cell.point: it.effort for it in part_of(known, sweep, HUGE)} for known in ([], far)]
    assert efforts == [{"0": plan.THOROUGH, "2": plan.THOROUGH}, {"1": plan.SHORT}]
    asked = make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp", "requests": 64})
    slow = [each | {"latency_s": "90", "throughput_ips": "0.01"} for each in far]
    for rows, by, effort in ((slow, sweep, plan.THOROUGH), (far, asked, plan.Effort((64, 0.0), (64, 0.0)))):
        measured_by = [trial.effort for trial in part_of(rows, by, HUGE)]
        assert measured_by == [effort], "by what was measured, and what was asked for"


@pytest.mark.parametrize("budget", [None, "1h"])
def test_a_network_has_its_later_rounds_in_a_row_but_within_a_budget(budget: str | None) -> None:
    options = {"model": "m", "netem": "none,200ms-5mbit", "backend": "tcp", "trials": 3, "search": True}
    sweep = make_sweep({**options, **({"budget": budget} if budget else {})})
    rows: Rows = []
    order = []
    while due := part_of(rows, sweep):
        rows += [row(each.cell.cuts[0], each.round) | {"netem": each.cell.netem} for each in due]
        order.append((due[0].cell.netem, due[0].round))
    first, second = "none", "200ms-5mbit"
    in_a_row = [(first, 1), (second, 1), (first, 2), (first, 3), (second, 2), (second, 3)]
    assert list(dict.fromkeys(order)) == (
        in_a_row if budget is None else sorted(in_a_row, key=lambda each: each[1])
    )


def test_what_is_left_is_foreseen_by_what_was_measured_or_else_by_the_plan() -> None:
    """The edge alone takes 0.1 s, and any payload 20 s: that has its first round alone."""
    sweep = make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp"})

    def left(rows: list[dict[str, str]]) -> Counter[str]:
        return Counter(trial.cell.point for trial in searching(rows, sweep, HUGE).expected().trials)

    far = [row(point, 1) | {"netem": "200ms-5mbit"} for point in (0, 2)]
    assert left([]) == {"0": 6, "1": 1, "2": 6}
    assert left(far) == {"0": 5, "1": 1, "2": 5}
    assert left([far[1], far[0] | {"latency_s": "0.2", "throughput_ips": "5"}]) == {"1": 1, "2": 5}


def test_stages_that_no_trial_had_yet_take_their_time_to_build() -> None:
    sweep = make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp", "engine": "compile"})
    rows = [row(point, 1) | {"engine": "compile"} for point in (0, 1)]
    waits_s = []
    for known in (rows[:1], rows):
        due = part_of([*known, row(2, 1, "failed", "") | {"engine": "compile"}], sweep)
        waits_s.append({trial.cell.point: trial.waiting_s for trial in due})
    least_s = ENTRIES["compile"].stage_s
    assert waits_s[0].keys() == {"1", "2"}
    assert min(waits_s[0].values()) > least_s
    assert waits_s[1]["2"] > least_s, "of the whole model"
    second = part_of([*rows, row(2, 1) | {"engine": "compile"}], sweep)
    assert max(trial.waiting_s for trial in second) < least_s


@pytest.mark.parametrize("added", [(0,), (0, 2)])
def test_an_added_round_that_was_interrupted_is_completed(added: tuple[int, ...]) -> None:
    whole = [row(point, number) for number in (1, 2) for point in range(3)]
    sweep = make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp", "until": "1%"})
    rest = part_of([*whole, *(row(point, 3) for point in added)], sweep)
    assert {(trial.cell.point, trial.round) for trial in rest} == {
        (str(point), 3) for point in range(3) if point not in added
    }
    for rows in (whole, [*whole, *(row(point, 3) for point in range(3))]):
        assert part_of(rows, sweep) == ()


def test_each_condition_is_added_a_round_of_its_own() -> None:
    rows = [row(point, number) for number in (1, 2, 3) for point in range(3)]
    rows += [each | {"batch_size": "2"} for each in rows[:6]]
    sweep = make_sweep(
        {"model": "m", "trials": 2, "search": True, "backend": "tcp", "batch_size": "1,2", "until": "1%"}
    )
    search = searching(rows, sweep)
    search.update()
    part = search.further({condition: 1 + search.last(condition) for condition in search.conditions})
    assert {(trial.cell.batch_size, trial.round) for trial in part.trials} == {(1, 4), (2, 3)}


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_the_cells_are_counted_by_their_rounds(rounds: int) -> None:
    search = searching([row(point, number + 1) for number in range(rounds) for point in range(3)])
    search.update()
    (line,) = search.summary()
    counted = {0: "3 open", 1: "3 in 1 round", 2: "3 in 2 rounds"}[rounds]
    assert line.startswith(f"3 cells: {counted}; ")
    assert (search.part() is None) == (rounds == 2)
    cast(Rounds, search.store).sessions = [{"profiling_s": 5.0}, {}, {"profiling_s": 2.2}]
    took_s = 7.2 + sum(float(each["wall_s"]) for each in search.store.rows())
    assert f"{counted}; {minutes(took_s)} with the model profile's 7 s, all cells" in search.summary()[0]


@pytest.mark.deep
def test_where_a_search_strikes_off_all_that_crosses_a_slow_link_figures_are_drawn_or_left_out(
    tmp_path: Path,
) -> None:
    words = f"--model {MODEL} --netem 500ms-64kbit --backend tcp --testbed simulated --search".split()
    assert measured(*words, "--out", str(tmp_path)).code == 0
    (run,) = tmp_path.glob("*-simulated-*")
    done = command("report", str(run), "--format", "pdf")
    assert (done.code, done.err) == (0, "")
    assert "cannot be drawn" not in done.out
    kinds = {path.name.partition("-")[0] for path in (run / "figures").iterdir()}
    assert {"front", "attribution", "payload"} <= kinds
