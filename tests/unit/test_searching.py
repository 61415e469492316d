"""A search on a run without a machine: the command, its files, going on with it, and its budget."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pandas as pd
import pytest

from pareto import analysis
from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.fronts.cells import with_struck
from pareto.analysis.runs.load import joined
from pareto.driver import session
from pareto.hosts.host import TestbedError
from tests import rows_of
from tests.program import command, measured, well
from tests.unit.gating import gating
from tests.unit.simulated.worlds import MODEL, POINTS

SETTING = ("--model", MODEL, "--netem", "20ms-5mbit", "--testbed", "simulated", "--figures", "none")
SEARCH = "--search"
NETEMS = ("20ms-5mbit", "1ms-100mbit")
CODECS = ("--codec", "none,int8,zstd", "--trials", "3", "--backend", "tcp")
BY_ENGINES = ("--engine", "eager,onnx", "--trials", "3")
NOISY = {
    "default": (),
    "grown": (SEARCH, "--netem", ",".join(NETEMS), "--backend", "tcp", "--until", "4%"),
    "codecs": (SEARCH, *CODECS),
    "codecs, every": CODECS,
    "engines": (SEARCH, *BY_ENGINES),
    "engines, every": BY_ENGINES,
}
"""Runs in a world with more noise, by what they are asked for."""
Rows = list[dict[str, str]]
Runs = Callable[[str], "Ran"]


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
        return rows_of(self.run / name)

    @property
    def trials(self) -> Rows:
        return self.read("trials.csv")

    @property
    def struck(self) -> Rows:
        return self.read("struck.csv")

    def front(self) -> pd.DataFrame:
        """As `front.csv`, but for the probabilities."""
        known = joined([self.run])
        return with_struck(analysis.front(known.trials), known.trials, known.struck)

    def best(self, *names: str) -> set[tuple[str, ...]]:
        rows = self.front()
        return set(rows.loc[rows["on_front"].eq(True), [*names]].itertuples(index=False, name=None))


def key(row: dict[str, str], *names: str) -> tuple[str, ...]:
    return tuple(row[name] for name in ("point", "backend", *names))


def counted(rows: Rows) -> Counter[tuple[str, ...]]:
    """How often there is each trial."""
    return Counter(key(row, "round", "netem", "engine", "latency_s", "throughput_ips") for row in rows)


def ran(folder: Path, *words: str) -> Ran:
    done = measured(*SETTING, *words, "--out", str(folder / "out"))
    assert done.code == 0, done.err
    return Ran(folder, done.out)


def copy(of: Ran, folder: Path) -> Ran:
    shutil.copytree(of.folder, folder, dirs_exist_ok=True)
    return Ran(folder)


def resumed(of: Ran, *, keep: int) -> Ran:
    """Go on from its first trials, so many; they stay as they are."""
    path, file = of.run / "trials.csv", of.folder / "world.yaml"
    lines = path.read_text().splitlines(keepends=True)[: 1 + keep]
    path.write_text("".join(lines))
    where = ("--testbed", f"simulated:{file}") if file.exists() else ()
    again = measured("--resume", str(of.run), "--model", MODEL, *where, "--figures", "none")
    assert again.code == 0, again.err
    assert path.read_text().splitlines(keepends=True)[: 1 + keep] == lines
    return of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run by its name in `NOISY`; `whole`: a search, with its report."""

    @cache
    def run(name: str) -> Ran:
        folder = tmp_path_factory.mktemp("run")
        if name == "whole":
            return Ran(folder, well(*SETTING, SEARCH, "--out", str(folder / "out")).out)
        (folder / "world.yaml").write_text("noise: {trial: 3%}\nrequests: 30\n")
        return ran(folder, *NOISY[name], "--testbed", f"simulated:{folder}/world.yaml")

    return run


@pytest.fixture
def whole(runs: Runs) -> Ran:
    return runs("whole")


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


def test_every_cell_is_measured_once_and_what_can_be_on_a_front_six_times(runs: Runs) -> None:
    """A run as it is where nobody says how many rounds."""
    default = runs("default")
    trials, struck = default.trials, default.struck
    rounds, off = Counter(map(key, trials)), {key(row) for row in struck}
    assert len(rounds) == Counter(row["round"] for row in trials)["1"] == 2 * POINTS
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


GOING_ON = [
    *(("whole", 0.1), ("whole", 1.0), ("default", 0.33)),
    *(("grown", 0.0), ("grown", 0.5), ("grown", 0.9), ("engines", 0.33)),
]


@pytest.mark.parametrize("where", gating(GOING_ON, *GOING_ON[:3], ("grown", 0.5)))
def test_a_run_that_goes_on_ends_as_one_that_never_stopped(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[str, float]
) -> None:
    """Whatever of its rows are left: before its first trial, in a later round, in one that was added, and in none."""
    of, share = runs(where[0]), where[1]
    if where[0] == "whole":  # whose folder has its model profile
        monkeypatch.setattr(session, "_model_profiles", Mock(side_effect=AssertionError))
    again = copy(of, tmp_path)
    (again.run / "struck.csv").unlink()
    resumed(again, keep=round(share * len(of.trials)))
    assert counted(again.trials) == counted(of.trials)
    assert again.struck == of.struck


def test_a_search_without_a_model_profile_goes_on_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take longer than it can spare."""
    monkeypatch.setattr(session, "_model_profiles", made := Mock(return_value={}))
    without = ran(tmp_path, SEARCH, "--netem", "200ms-5mbit")
    assert not (without.run / "profiles").exists()
    assert "model profile's" not in without.out
    assert without.struck, "by rounds that all cells have had"
    before = counted(without.trials)
    assert counted(resumed(without, keep=before.total() - 3).trials) == before
    assert made.call_count == 2


def test_a_budget_adds_rounds_for_what_is_left_alone_or_goes_to_the_least_clear_cells(tmp_path: Path) -> None:
    made = ran(tmp_path, SEARCH, "--budget", "60s")
    last = str(max(int(row["round"]) for row in made.trials))
    assert int(last) > 6
    assert not {key(row) for row in made.trials if row["round"] == last} & {key(row) for row in made.struck}
    short = ran(tmp_path / "short", SEARCH, "--netem", "100ms-2mbit", "--budget", "15s")
    assert "least clear" in short.out
    assert 2 < len(short.trials) < 2 * POINTS
    # It goes on, and loses nothing.
    assert len(resumed(short, keep=2).trials) > 2
    assert set(counted(short.trials).values()) == {1}
    sessions = json.loads((short.run / "manifest.json").read_text())["sessions"]
    assert [each["stopping"]["ended"] for each in sessions] == ["budget", "budget"]


def test_rounds_are_added_until_what_is_left_is_sure(runs: Runs) -> None:
    grown = runs("grown")
    assert "sure after" in grown.out
    off = {key(row, "netem") for row in grown.struck}
    last = {
        netem: max(int(row["round"]) for row in grown.trials if row["netem"] == netem) for netem in NETEMS
    }
    assert off and max(last.values()) > 6
    assert (
        not {key(row, "netem") for row in grown.trials if int(row["round"]) == max(6 + 1, last[row["netem"]])}
        & off
    )
    rows = grown.front()
    assert dict(rows[rows["settled"] == "measured"].groupby("netem")["rounds"].max()) == last


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


ELSEWHERE = ("--latency", "3ms", "--rate", "300mbit")


@pytest.mark.parametrize("lacks", ["", "constraint", "broken", "none"])
def test_advice_for_another_network_is_by_the_model_profile_or_says_what_trials_lack(
    whole: Ran, tmp_path: Path, lacks: str
) -> None:
    run = copy(whole, tmp_path).run
    (profile,) = (run / "profiles").iterdir()
    if lacks == "broken":
        (profile / "profile.json").write_text("{}")
    if lacks == "none":
        shutil.rmtree(run / "profiles")
    where = ("--where", "edge_s < 10") if lacks == "constraint" else ()
    advised = well("advise", str(run), *ELSEWHERE, *where).out
    said = "".join(advised.split())  # a path may be on two lines
    if lacks:
        assert "attention:asearchstruckoff" in said
        assert (f"advise--profile{profile}" in said) == (lacks != "none")
        return
    assert advised.startswith(command("advise", "--profile", str(profile), str(run), *ELSEWHERE).out)
    physics = [row for row in whole.struck if row["how"] == "physics"]
    assert f"struckoff{len(physics)}cellswithoutatrial" in said
    there = command("advise", str(run), "--latency", "20ms", "--rate", "5mbit").out
    assert "measured at 20ms-5mbit" in " ".join(there.split())
    assert "model profile" not in there


@pytest.mark.parametrize("column", gating(["codec", "engine"], "codec"))
def test_a_search_over_codecs_or_engines_has_the_front_of_each_of_them(runs: Runs, column: str) -> None:
    found, every = runs(f"{column}s"), runs(f"{column}s, every")
    trials, struck = found.trials, found.struck
    cells, of_trials = ({key(row, column) for row in rows} for rows in (every.trials, trials))
    assert {key(row, column) for row in trials + struck} == cells
    assert f"{len(cells)} cells: " in found.words
    front = found.best("point", "backend", column)
    assert front == every.best("point", "backend", column)
    assert len({each for *_, each in front}) == (3 if column == "codec" else 2)
    assert len(trials) < 0.7 * len(every.trials)
    # What strikes a cell off has its codec, or none at work; or its engine.
    for row in struck:
        of = row["by_point"], row["by_backend"]
        assert {(*of, row[column]), (*of, "none")} & of_trials
    if column == "engine":
        physics = {row["engine"] for row in struck if row["how"] == "physics"}
        assert physics == {row["engine"] for row in trials}
        (note,) = [line for line in compare(found.run, every.run).notes if "struck off" in line]
        off = {(row["point"], int(row["payload_bytes"]) and row["backend"], row["engine"]) for row in struck}
        assert f"A: its search struck off {len(off)} cells" in note


def test_what_is_struck_off_of_one_engine_counts_of_another(runs: Runs) -> None:
    of = runs("engines")
    struck = {key(row, "engine") for row in of.struck}
    cells = {key(row, "engine") for row in of.trials} - struck
    apart = {cell for cell in cells if any((*cell[:2], engine) in struck for engine in ("eager", "onnx"))}
    assert apart, "no cell is struck off of one engine alone"
    rows = of.front().astype({"point": str}).set_index(["point", "backend", "engine"])
    assert set(rows.loc[list(apart), "settled"]) == {"measured"}


@pytest.mark.deep
def test_where_a_search_strikes_off_all_that_crosses_a_slow_link_figures_are_drawn_or_left_out(
    tmp_path: Path,
) -> None:
    words = f"--model {MODEL} --netem 500ms-64kbit --backend tcp --testbed simulated --search".split()
    assert measured(*words, "--out", str(tmp_path)).code == 0
    (run,) = tmp_path.glob("*-simulated-*")
    assert "cannot be drawn" not in well("report", str(run), "--format", "pdf").out
    kinds = {path.name.partition("-")[0] for path in (run / "figures").iterdir()}
    assert {"front", "attribution", "payload"} <= kinds
