"""A search on a run without a machine: the command, its files, going on with it, and its budget."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from pareto import analysis
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.findings import with_struck
from pareto.analysis.runs.load import joined
from pareto.driver import session
from pareto.hosts.host import TestbedError
from pareto.partitions.engines.registry import ENGINES as ENTRIES
from pareto.predict.search import Contest
from pareto.predict.search_run import Searching
from pareto.remote.link.units import minutes
from pareto.sweep import plan
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import networks_of
from pareto.sweep.plan import ModelFacts
from pareto.sweep.sweep import Sweep
from tests.program import command, measured
from tests.unit.gating import gating
from tests.unit.simulated.worlds import MODEL, POINTS

SETTING = ("--model", MODEL, "--netem", "20ms-5mbit", "--testbed", "simulated", "--figures", "none")
SEARCH = "--search"
NETEMS = ("20ms-5mbit", "1ms-100mbit")
Rows = list[dict[str, str]]


class Ran(NamedTuple):
    """A folder of one run's results, and what the command printed."""

    folder: Path
    out: str = ""

    @property
    def run(self) -> Path:
        (run,) = (self.folder / "out").iterdir()
        return run

    @property
    def words(self) -> str:
        return " ".join(self.out.split())

    def read(self, name: str) -> Rows:
        with (self.run / name).open(newline="") as file:
            return list(csv.DictReader(file))

    @property
    def trials(self) -> Rows:
        return self.read("trials.csv")

    @property
    def struck(self) -> Rows:
        return self.read("struck.csv")

    @property
    def ended(self) -> list[str]:
        """Of each session."""
        sessions = json.loads((self.run / "manifest.json").read_text())["sessions"]
        return [session["stopping"]["ended"] for session in sessions]

    @property
    def lines(self) -> list[str]:
        return (self.run / "trials.csv").read_text().splitlines(keepends=True)

    def front(self) -> pd.DataFrame:
        """As `front.csv`, but for the probabilities."""
        known = joined([self.run])
        return with_struck(analysis.front(known.trials, resamples=20), known.trials, known.struck)

    def best(self, *names: str) -> set[tuple[str, ...]]:
        rows = self.front()
        return set(rows.loc[rows["on_front"].eq(True), [*names]].itertuples(index=False, name=None))


def key(row: dict[str, str]) -> tuple[str, ...]:
    return row["point"], row["backend"]


def counted(rows: Rows, *names: str) -> Counter[tuple[str, ...]]:
    """How often there is each trial of these cells."""
    return Counter(tuple(row[name] for name in ("point", "backend", "round", *names)) for row in rows)


def ran(folder: Path, *words: str) -> Ran:
    done = measured(*SETTING, *words, "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return Ran(folder, done.out)


def world(folder: Path) -> tuple[str, ...]:
    (folder / "world.yaml").write_text("noise: {trial: 3%}\nrequests: 30\n")
    return ("--testbed", f"simulated:{folder}/world.yaml")


def copy(of: Ran, folder: Path) -> Ran:
    shutil.copytree(of.folder, folder, dirs_exist_ok=True)
    return Ran(folder)


def resumed(of: Ran, *, keep: int) -> Ran:
    """Go on from its first trials, so many; they stay as they are."""
    lines = of.lines[: 1 + keep]
    (of.run / "trials.csv").write_text("".join(lines))
    file = of.folder / "world.yaml"
    where = ("--testbed", f"simulated:{file}") if file.exists() else ()
    again = measured("--resume", str(of.run), "--model", MODEL, *where, "--figures", "none")
    assert again.code == 0, again.err
    assert of.lines[: 1 + keep] == lines
    return of


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A search, with its report."""
    folder = tmp_path_factory.mktemp("whole")
    done = command(*SETTING, SEARCH, "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return Ran(folder, done.out)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A search at two networks to which rounds were added until it was sure."""
    folder = tmp_path_factory.mktemp("grown")
    networks = ("--netem", ",".join(NETEMS), "--backend", "tcp")
    return ran(folder, SEARCH, *networks, "--until", "4%", *world(folder))


CODECS = ("--codec", "none,int8,zstd", "--trials", "3", "--backend", "tcp")
ENGINES = ("--engine", "eager,onnx", "--trials", "3")


@pytest.fixture(scope="module")
def of_engines(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("engines")
    return ran(folder, SEARCH, *ENGINES, *world(folder))


def test_a_search_measures_a_part_and_says_how_each_cell_was_settled(whole: Ran) -> None:
    rounds = Counter(map(key, whole.trials))
    physics = {key(row) for row in whole.struck if row["how"] == "physics"}
    assert physics
    assert not physics & rounds.keys()
    assert len(physics | rounds.keys()) == 2 * POINTS
    rows = pd.read_csv(whole.run / "front.csv", keep_default_na=False)
    assert set(rows["settled"]) <= {"measured", "physics", "rounds"}
    assert {(settled, int(rounds) >= 6) for settled, rounds in whole.best("settled", "rounds")} == {
        ("measured", True)
    }
    # A point where nothing crosses is one cell beside the front, whatever backends it was measured under.
    nothing = {str(POINTS - 1)} & {point for point, _ in rounds.keys() | physics}
    assert len(rows) == 2 * POINTS - len(nothing)
    (line,) = re.findall(r"16 cells: [^;]*; [^;]* all cells would take", whole.words)
    assert f"{len(physics)} by physics" in line
    assert len(list((whole.run / "profiles").iterdir())) == 1


@pytest.mark.deep
def test_all_cells_give_the_same_front(whole: Ran, tmp_path: Path) -> None:
    every = ran(tmp_path, "--trials", "6")
    assert not (every.run / "struck.csv").exists()
    assert every.best("point") == whole.best("point")
    foretold = re.findall(r"(\d+) (h|min|s)\b", whole.words.partition("all cells would take ")[2][:20])
    foretold_s = sum(int(number) * {"h": 3600, "min": 60, "s": 1}[unit] for number, unit in foretold)
    assert foretold_s == pytest.approx(sum(float(row["wall_s"]) for row in every.trials), rel=0.15)


def test_every_cell_is_measured_once_and_what_can_be_on_a_front_six_times(tmp_path: Path) -> None:
    """A run as it is where nobody says how many rounds; one that goes on does only what is missing."""
    default = ran(tmp_path, *world(tmp_path))
    trials, struck = default.trials, default.struck
    rounds = Counter(map(key, trials))
    assert len(rounds) == 2 * POINTS
    assert Counter(row["round"] for row in trials)["1"] == 2 * POINTS
    off = {key(row) for row in struck}
    assert 0 < len(off) < 2 * POINTS
    assert {key for key, count in rounds.items() if count == 6} == rounds.keys() - off
    assert "rounds of every cell once, then of what can still be on the front" in default.words
    assert f"{2 * POINTS} cells: {2 * POINTS - len(off)} in 6 rounds, " in default.words
    assert not (default.run / "profiles").exists(), "no model is profiled for it"
    # Each backend keeps a front of its own: what strikes off is of it, or a cell where nothing crosses.
    crossing = {row["point"] for row in trials if float(row["payload_bytes"])}
    assert {row["backend"] for row in struck} == {"tcp", "rpc"}
    for row in struck:
        assert row["by_backend"] == row["backend"] or row["by_point"] not in crossing
    fronts = default.front()
    assert set(fronts.loc[fronts["on_backend_front"].eq(True), "backend"]) >= {"tcp", "rpc"}
    assert counted(resumed(default, keep=len(trials) // 3).trials) == counted(trials)


def test_a_search_that_goes_on_does_only_what_is_missing(whole: Ran, tmp_path: Path) -> None:
    """Whatever of its rows are left, it ends with the trials of one that never stopped."""
    again = resumed(copy(whole, tmp_path), keep=3)
    trials = again.trials
    assert counted(trials) == counted(whole.trials)
    assert (again.run / "struck.csv").read_text() == (whole.run / "struck.csv").read_text()
    assert resumed(again, keep=len(trials)).trials == trials


def test_a_budget_adds_rounds_for_what_is_left_alone_or_goes_to_the_least_clear_cells(tmp_path: Path) -> None:
    made = ran(tmp_path, SEARCH, "--budget", "60s")
    last = str(max(int(row["round"]) for row in made.trials))
    assert int(last) > 6
    assert not {key(row) for row in made.trials if row["round"] == last} & {key(row) for row in made.struck}
    short = ran(tmp_path / "short", SEARCH, "--netem", "100ms-2mbit", "--budget", "15s")
    assert "least clear" in short.out
    assert 2 < len(short.trials) < 2 * POINTS


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
    ended = command(*SETTING, SEARCH, "--out", str(tmp_path / "out"))
    assert ended.code == code
    assert words in (ended.out + ended.err).splitlines()
    assert not (tmp_path / "out").exists()


def test_a_search_goes_on_with_the_model_profile_of_its_folder_or_with_none(
    whole: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None: it would take longer than it can spare."""
    monkeypatch.setattr(session, "_model_profiles", Mock(side_effect=AssertionError))
    again = resumed(copy(whole, tmp_path / "again"), keep=len(whole.trials) - 1)
    assert len(again.trials) == len(whole.trials)
    monkeypatch.setattr(session, "_model_profiles", made := Mock(return_value={}))
    without = ran(tmp_path, SEARCH, "--netem", "200ms-5mbit")
    assert not (without.run / "profiles").exists()
    assert "model profile's" not in without.out
    assert without.struck, "by rounds that all cells have had"
    before = counted(without.trials)
    assert counted(resumed(without, keep=before.total() - 3).trials) == before
    assert made.call_count == 2


ELSEWHERE = ("--latency", "3ms", "--rate", "300mbit")


def test_advice_for_another_network_is_by_the_model_profile_in_the_folder(whole: Ran) -> None:
    run = whole.run
    (profile,) = (run / "profiles").iterdir()
    done = command("advise", str(run), *ELSEWHERE)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(command("advise", "--profile", str(profile), str(run), *ELSEWHERE).out)
    physics = [row for row in whole.struck if row["how"] == "physics"]
    assert f"struck off {len(physics)} cells without a trial" in " ".join(done.out.split())
    there = command("advise", str(run), "--latency", "20ms", "--rate", "5mbit")
    assert "measured at 20ms-5mbit" in " ".join(there.out.split())
    assert "model profile" not in there.out


@pytest.mark.parametrize("why", ["constraint", "broken", "none"])
def test_advice_that_no_model_profile_gives_is_by_the_trials_and_says_what_they_lack(
    whole: Ran, tmp_path: Path, why: str
) -> None:
    run = copy(whole, tmp_path).run
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


def test_profiles_are_learnt_once_and_without_them_a_search_knows_the_links_alone() -> None:
    """Where a profile takes longer than it can spare: no cell waits for what will not come."""
    search = searching([])
    assert search.lacks_profiles
    search.learn(Mock(keys=lambda: {"m"}, get=lambda name: None))
    assert not search.lacks_profiles
    search = searching([], sweep_of(netem="200ms-5mbit"))
    (contest,) = search._contests.values()
    assert np.isnan(contest.search.prospects.expected).all()
    search.learn({}, are_all=True)
    assert not search.lacks_profiles
    known = contest.search.prospects
    assert np.isfinite(known.expected).all()
    assert np.isfinite(known.bound[:2]).all()
    assert not known.moves
    assert (known.fronts, set(known.tiers)) == (None, {0}), "one front, and all in the first round"
    # Where no model is ever profiled, too.
    made = searching([], make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp,rpc"}))
    (contest,) = made._contests.values()
    known = contest.search.prospects
    assert not made.lacks_profiles
    assert np.exp(known.bound[:, 0]) == pytest.approx([0.198, 0.198, 0.198, 0.198, 0, 0], abs=2e-3)
    assert np.isfinite(known.expected).all()
    assert not known.moves
    assert known.twins is not None
    assert known.twins.tolist() == [[split, backend] for split in range(3) for backend in range(2)]
    assert known.fronts is not None
    assert known.fronts.tolist() == [*[[True, False], [False, True]] * 2, *[[True, True]] * 2]


def test_rounds_are_added_until_what_is_left_is_sure(grown: Ran) -> None:
    assert grown.ended == ["sure"]
    off = {(row["netem"], *key(row)) for row in grown.struck}
    rounds = [(row["netem"], int(row["round"])) for row in grown.trials]
    last = {netem: max(number for of, number in rounds if of == netem) for netem in NETEMS}
    added = [row for row in grown.trials if int(row["round"]) > 6]
    assert added and off
    assert not {(row["netem"], *key(row)) for row in added if int(row["round"]) == last[row["netem"]]} & off
    assert "sure after" in grown.out
    rows = grown.front()
    assert dict(rows[rows["settled"] == "measured"].groupby("netem")["rounds"].max()) == last


@pytest.mark.parametrize("share", gating([0.0, 0.5, 0.9], 0.5))
def test_a_search_until_it_is_sure_goes_on_from_wherever_it_was(
    grown: Ran, tmp_path: Path, share: float
) -> None:
    """Before its first trial, in a later round, and in one that was added."""
    again = copy(grown, tmp_path)
    (again.run / "struck.csv").unlink()
    resumed(again, keep=round(share * len(grown.trials)))
    names = ("netem", "latency_s", "throughput_ips")
    assert counted(again.trials, *names) == counted(grown.trials, *names)


@pytest.mark.parametrize("rows", gating([1, 14], 14))
def test_a_search_with_a_budget_goes_on_and_loses_nothing(tmp_path: Path, rows: int) -> None:
    after = resumed(ran(tmp_path, SEARCH, "--netem", "100ms-2mbit", "--budget", "40s"), keep=rows)
    assert len(after.trials) > rows
    assert set(counted(after.trials).values()) == {1}
    assert after.ended == ["budget", "budget"]


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


def sweep_of(**options: Any) -> Sweep:
    return make_sweep({"model": "m", "trials": 2, "search": True, "backend": "tcp", **options})


def searching(rows: Rows, sweep: Sweep | None = None, nbytes: int = 5) -> Searching:
    sweep = sweep or sweep_of()
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


def test_a_search_over_codecs_has_the_front_of_each_of_them(tmp_path: Path) -> None:
    coded, every = (
        ran(folder, *search, *CODECS, *world(tmp_path))
        for folder, search in ((tmp_path / "coded", [SEARCH]), (tmp_path, []))
    )
    trials, struck = coded.trials, coded.struck
    cells = {(*key(row), row["codec"]) for row in every.trials}
    assert {(*key(row), row["codec"]) for row in trials + struck} == cells
    assert f"{len(cells)} cells: " in coded.words
    front = coded.best("point", "codec")
    assert front == every.best("point", "codec")
    assert {codec for _, codec in front} == {"none", "int8", "zstd:3"}
    assert len(trials) < 0.7 * len(every.trials)
    # What strikes a cell off has its codec, or none at work.
    assert {row["codec"] for row in struck} > {"int8"}
    of_codec = {(*key(row), row["codec"]) for row in trials}
    for row in struck:
        by = row["by_point"], row["by_backend"]
        assert {(*by, row["codec"]), (*by, "none")} & of_codec


def by_engine(row: dict[str, str]) -> tuple[str, ...]:
    return (*key(row), row["engine"])


@pytest.mark.deep
def test_a_search_over_engines_has_the_front_of_each_of_them(of_engines: Ran, tmp_path: Path) -> None:
    every = ran(tmp_path, *ENGINES, *world(tmp_path))
    struck, trials = of_engines.struck, of_engines.trials
    cells = set(map(by_engine, every.trials))
    assert set(map(by_engine, trials + struck)) == cells
    assert f"{len(cells)} cells: " in of_engines.words
    assert {row["engine"] for row in struck if row["how"] == "physics"} == {row["engine"] for row in trials}
    for row in struck:
        assert (row["by_point"], row["by_backend"], row["engine"]) in set(map(by_engine, trials))
    front = of_engines.best("point", "backend", "engine")
    assert front == every.best("point", "backend", "engine")
    assert len({engine for *_, engine in front}) == 2
    (note,) = [line for line in compare(of_engines.run, every.run).notes if "struck off" in line]
    off = {(row["point"], int(row["payload_bytes"]) and row["backend"], row["engine"]) for row in struck}
    assert f"A: its search struck off {len(off)} cells" in note
    assert len(trials) < 0.7 * len(every.trials)


def test_what_is_struck_off_of_one_engine_counts_of_another(of_engines: Ran) -> None:
    struck = set(map(by_engine, of_engines.struck))
    cells = set(map(by_engine, of_engines.trials)) - struck
    apart = {cell for cell in cells if any((*cell[:2], engine) in struck for engine in ("eager", "onnx"))}
    assert apart, "no cell is struck off of one engine alone"
    settled = {
        (str(row["point"]), row["backend"], row["engine"]): row["settled"]
        for row in of_engines.front().to_dict("records")
    }
    assert {settled[cell] for cell in apart} == {"measured"}


@pytest.mark.deep
def test_a_search_over_engines_goes_on_from_wherever_it_was(of_engines: Ran, tmp_path: Path) -> None:
    after = resumed(copy(of_engines, tmp_path), keep=len(of_engines.trials) // 3)
    assert counted(after.trials, "engine") == counted(of_engines.trials, "engine")


def test_what_is_less_accurate_strikes_nothing_off() -> None:
    """The driver knows each codec's accuracy at each split before the first trial."""
    sweep = sweep_of(codec="none,int8")
    points = (("input", 9), ("mid", 5), ("late", 5), ("output", 0))
    accuracy = {(1, "int8", "eager", (1,)): 0.5, (1, "int8", "eager", (2,)): 0.75}
    dtypes, splits = (("uint8",), ("float32",), ("float32",)), ((0,), (1,), (2,), (3,))
    facts = {"m": ModelFacts(points, 0.1, splits=splits, accuracy=accuracy, dtypes=dtypes)}
    search = Searching(sweep, facts, networks_of(sweep, 1), cast(Any, Rounds([])), {})
    (contest,) = search._contests.values()
    known = contest.search.prospects
    assert known.fronts is not None
    assert known.accuracy is not None
    names = [(cell.point, cell.codec) for cell in contest.cells]
    known_of = zip(known.fronts.tolist(), known.accuracy.tolist(), strict=True)
    made = dict(zip(names, known_of, strict=True))
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
    # But for what failed in the session: a cell that always fails must not keep the others from being measured.
    search = searching([row(0, 1), row(1, 1, "failed", ""), row(2, 1)])
    search.is_measuring = True
    search.update()
    part = search.part()
    assert part is not None
    assert {(trial.cell.point, trial.round) for trial in part.trials} == {("0", 2), ("1", 2), ("2", 2)}


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
    sweep = sweep_of(netem="none,200ms-5mbit", trials=3, **({"budget": budget} if budget else {}))
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


def test_stages_and_rounds_that_are_left_are_foreseen() -> None:
    """The edge alone takes 0.1 s, and any payload 20 s: that has its first round alone."""
    sweep = make_sweep({"model": "m", "netem": "200ms-5mbit", "backend": "tcp"})

    def left(rows: list[dict[str, str]]) -> Counter[str]:
        return Counter(trial.cell.point for trial in searching(rows, sweep, HUGE).expected().trials)

    far = [row(point, 1) | {"netem": "200ms-5mbit"} for point in (0, 2)]
    assert left([]) == {"0": 6, "1": 1, "2": 6}
    assert left(far) == {"0": 5, "1": 1, "2": 5}
    assert left([far[1], far[0] | {"latency_s": "0.2", "throughput_ips": "5"}]) == {"1": 1, "2": 5}
    # Stages that no trial had yet take their time to build.
    sweep = sweep_of(engine="compile")
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
    sweep = sweep_of(until="1%")
    rest = part_of([*whole, *(row(point, 3) for point in added)], sweep)
    assert {(trial.cell.point, trial.round) for trial in rest} == {
        (str(point), 3) for point in range(3) if point not in added
    }
    for rows in (whole, [*whole, *(row(point, 3) for point in range(3))]):
        assert part_of(rows, sweep) == ()


def test_each_condition_is_added_a_round_of_its_own() -> None:
    rows = [row(point, number) for number in (1, 2, 3) for point in range(3)]
    rows += [each | {"batch_size": "2"} for each in rows[:6]]
    sweep = sweep_of(batch_size="1,2", until="1%")
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
