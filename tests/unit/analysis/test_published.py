"""Published results beside a run: what their files say, and when a conclusion holds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.published import ABSENT, FAILS, HOLDS, SAME, UNSURE, Figure, Published, beside
from pareto.analysis.tables.compare import published_table
from pareto.commands.compare import read
from pareto.sweep.checked_sweep import requested_sweep
from tests import REPOSITORY
from tests.program import command, refused, well
from tests.unit.example_run import trials, write

EXAMPLE = REPOSITORY / "results" / "example"
FILES = sorted((REPOSITORY / "sweeps" / "published").glob("*.yaml"))


def paper(**conclusion: Any) -> Published:
    said = {"says": "tcp is faster", "source": "a paper", "where": "payload_bytes > 0", **conclusion}
    rest = {"title": "t", "link": "l", "sweep": "s", "differs": ["hardware"]}
    return Published.model_validate({**rest, "conclusions": [said]})


SIDES = {"better": "backend == tcp", "than": "backend == rpc"}
MORE = {**SIDES, "by": "throughput"}


@pytest.mark.parametrize(
    ("rounds", "conclusion", "verdict"),
    [
        (6, SIDES, HOLDS),
        (6, {"better": "backend == rpc", "than": "backend == tcp"}, FAILS),
        (3, SIDES, UNSURE),
        (6, MORE, HOLDS),
        (3, MORE, UNSURE),
        (3, SIDES | {"than": "point != 1"}, SAME),
        (3, SIDES | {"than": "backend == carrier-pigeon"}, ABSENT),
    ],
)
def test_a_conclusion_holds_if_rounds_tell(
    tmp_path: Path, rounds: int, conclusion: dict[str, Any], verdict: str
) -> None:
    said = paper(**conclusion)
    found = beside([write(tmp_path / "run", trials(rounds=rounds, noise=0.01))], said)
    (row,) = found.conclusions.to_dict("records")
    assert row["verdict"] == verdict
    if verdict in (HOLDS, FAILS):
        assert (row["rounds"], row["wins"]) == (rounds, rounds if verdict == HOLDS else 0)
        assert (row["times"] > 1) == (verdict == HOLDS)
    if conclusion is MORE:
        assert row["times"] == row["better_value"] / row["than_value"] > 1, "more throughput is better"
    # Where the conditions of a conclusion differ in rounds, one with too few for the strictest test can be sure.
    out = Console(width=200, file=io.StringIO(), record=True)
    found = found._replace(conclusions=found.conclusions.assign(needed=7))
    out.print(published_table(said, found, "a run", "pareto"))
    text = out.export_text()
    assert verdict in text
    assert ("it takes 7" in text) == (verdict == UNSURE)


PIPELINED = {"better": "point == 17", "than": "point == 17", "by": "pipelining", "where": "backend == tcp"}


@pytest.mark.parametrize(
    ("rounds", "conclusion", "verdict"),
    [
        (6, MORE | {"times": 1.04}, HOLDS),
        (6, MORE | {"times": 1.04 * 1.25}, UNSURE),  # part of our interval is as close, and part is not
        (6, MORE | {"times": 6.38}, FAILS),
        (6, MORE | {"times": 0.5}, FAILS),
        (6, SIDES | {"times": 1.04}, HOLDS),
        (6, SIDES | {"times": 4.17}, FAILS),
        (5, MORE | {"times": 6.38}, UNSURE),
        (6, PIPELINED | {"times": 2}, HOLDS),
        (6, PIPELINED | {"times": 6.38}, FAILS),
        (6, PIPELINED, HOLDS),
    ],
)
def test_a_published_number_of_times_holds_where_ours_is_surely_close(
    tmp_path: Path, rounds: int, conclusion: dict[str, Any], verdict: str
) -> None:
    rows = trials(rounds=rounds, noise=0.01)
    for row in rows:
        row["sequential_ips"] = row["throughput_ips"] / 2
    said = paper(**conclusion)
    found = beside([write(tmp_path / "run", rows, beyond=True)], said)
    (row,) = found.conclusions.to_dict("records")
    assert row["verdict"] == verdict
    assert (row["low"] <= row["times"] <= row["high"]) == (rounds >= 6 and "times" in conclusion)
    if said.conclusions[0].by == "pipelining":
        assert row["times"] == pytest.approx(2)
        assert row["than_value"] == pytest.approx(row["better_value"] / 2)
    out = Console(width=200, file=io.StringIO(), record=True)
    out.print(published_table(said, found, "a run", "pareto"))
    text = out.export_text()
    assert ("95 % interval" in text) == (rounds >= 6 and "times" in conclusion)
    assert ("it takes 6" in text) == (rounds < 6)
    assert ("images/s one at a time" in text) == (said.conclusions[0].by == "pipelining")


def test_sides_that_share_no_round_are_not_sure(tmp_path: Path) -> None:
    rows = [row for row in trials(rounds=6) if (row["backend"] == "tcp") == (row["round"] < 3)]
    said = paper(**MORE, times=1.04)
    found = beside([write(tmp_path / "run", rows)], said)
    (row,) = found.conclusions.to_dict("records")
    assert (row["verdict"], row["rounds"]) == (UNSURE, 0)
    assert row["times"] > 1, "of the medians"
    out = Console(width=200, file=io.StringIO(), record=True)
    out.print(published_table(said, found, "a run", "pareto"))
    assert "better in 0 of 0 rounds" in out.export_text()


def test_a_run_without_rates_of_single_requests_says_nothing_of_pipelining(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(rounds=6, sequential_ips=""))
    (row,) = beside([run], paper(**PIPELINED, times=2)).conclusions.to_dict("records")
    assert row["verdict"] == ABSENT


def test_what_cannot_be_judged_is_told_with_its_reason(tmp_path: Path) -> None:
    published = "sweeps/published/splittracr.yaml"
    done = well("compare", str(EXAMPLE), published, "--out", str(tmp_path))
    (path,) = tmp_path.glob("*/*.csv")
    assert path.name == "cannot.csv"
    for each in read(REPOSITORY / published).cannot:
        assert f"{each.says}: {each.because}" in " ".join(done.out.split())
        assert each.because in path.read_text()


@pytest.mark.parametrize(
    ("rounds", "within", "verdict"),
    [(6, "30%", HOLDS), (6, "1%", FAILS), (6, "19%", UNSURE), (3, "50%", UNSURE)],
)
def test_what_is_alike_differs_by_no_more_than_a_share(
    tmp_path: Path, rounds: int, within: str, verdict: str
) -> None:
    """By the interval of the difference, not by medians: rpc takes 18 to 20 % longer at this point."""
    said = paper(**SIDES, where="point == 4", within=within)
    found = beside([write(tmp_path / "run", trials(rounds=rounds, noise=0.01))], said)
    (row,) = found.conclusions.to_dict("records")
    assert row["verdict"] == verdict


def test_the_noise_floor_widens_what_is_alike(tmp_path: Path) -> None:
    rows = trials(rounds=6, noise=0.01)
    for row in rows:  # two names of one treatment, where nothing crosses, are 20 % apart
        if not row["payload_bytes"] and row["backend"] == "rpc":
            row["latency_s"] *= 1.2
    said = paper(**SIDES, where="point == 4", within="30%")
    plain, noisy = (
        beside([write(tmp_path / name, each)], said).conclusions.iloc[0]
        for name, each in (("a", trials(rounds=6, noise=0.01)), ("b", rows))
    )
    assert noisy["high_percent"] > plain["high_percent"] + 10
    assert (plain["verdict"], noisy["verdict"]) == (HOLDS, UNSURE)


@pytest.mark.parametrize(
    ("rounds", "sign", "times", "within", "verdict"),
    [
        (6, "<", 1.3, 0, HOLDS),
        (6, "<=", 0.7, 0, FAILS),
        (6, "<", 1.0, 0, UNSURE),
        (3, "<", 1.3, 0, UNSURE),
        (6, ">", 0.7, 0, HOLDS),
        (6, ">=", 1.3, 0, FAILS),
        (6, ">", 1.3, 0.5, HOLDS),
        (6, "~", 1.0, 0.2, HOLDS),
        (6, "~", 1.3, 0.1, FAILS),
        (6, "~", 1.0, 0.001, UNSURE),
        (6, "", 9.0, 0, ""),
    ],
)
def test_a_figure_is_judged_by_its_interval(
    tmp_path: Path, rounds: int, sign: str, times: float, within: float, verdict: str
) -> None:
    run = write(tmp_path / "run", trials(rounds=rounds, noise=0.01))
    cell = {"says": "f", "where": "backend == tcp and point == 4", "column": "latency_s"}
    (ours,) = beside(
        [run], paper(**SIDES).model_copy(update={"figures": (Figure(**cell, value=1),)})
    ).figures["ours"]
    claim = Figure(**cell, value=ours * times, **{"is": sign}, **({"within": within} if within else {}))
    (row,) = beside([run], paper(**SIDES).model_copy(update={"figures": (claim,)})).figures.to_dict("records")
    assert row["verdict"] == verdict


def test_bytes_are_exact(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(rounds=1))
    cell = {
        "says": "f",
        "where": "backend == tcp and point == 4",
        "column": "payload_bytes",
        "value": 294 * 1024,
    }
    signs = {"<": FAILS, "<=": HOLDS, ">": FAILS, ">=": HOLDS, "~": HOLDS}
    figures = tuple(Figure(**cell, **{"is": sign}) for sign in signs)
    found = beside([run], paper(**SIDES).model_copy(update={"figures": figures}))
    assert dict(zip(found.figures["sign"], found.figures["verdict"], strict=True)) == signs


def test_a_rate_of_single_requests_has_no_interval_to_judge_by(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(rounds=6, sequential_ips=5.0))
    cell = {"says": "f", "where": "backend == tcp and point == 4", "column": "sequential_ips", "value": 1}
    claim = Figure(**cell, **{"is": ">"})  # type: ignore[arg-type]
    (row,) = beside([run], paper(**SIDES).model_copy(update={"figures": (claim,)})).figures.to_dict("records")
    assert (row["ours"], row["verdict"]) == (5.0, UNSURE)


def test_claims_on_a_run_by_its_name(tmp_path: Path) -> None:
    """Beside a run whose name the file has, what it says of others is left out; another run gets all of it."""
    said = "title: t\nconclusions:\n"
    for run in ("one", "two"):
        said += f"  - {{says: of {run}, run: {run}, where: point == 4, better: backend == tcp, than: backend == rpc}}\n"
    (tmp_path / "claims.yaml").write_text(said)
    shown = {}
    for name in ("one", "three"):
        run = write(tmp_path / name, trials(rounds=6, noise=0.01))
        shown[name] = well("compare", str(run), str(tmp_path / "claims.yaml"), "--out", str(tmp_path)).out
    assert ("of one" in shown["one"], "of two" in shown["one"]) == (True, False)
    assert ("of one" in shown["three"], "of two" in shown["three"]) == (True, True)


def test_the_examples_claims(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = well("compare", str(EXAMPLE), str(EXAMPLE / "claims.yaml"), "--out", str(tmp_path))
    lines = [line.rstrip() for line in done.out.splitlines() if str(tmp_path) not in line]
    assert "\n".join(lines).replace(str(REPOSITORY), "HERE") == snapshot


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_names_its_sweep_and_every_source(path: Path) -> None:
    published = read(path)
    said = [*published.conclusions, *published.fronts, *published.figures]
    assert all(each.source for each in [*said, *published.cannot])
    assert said or published.cannot
    assert published.differs
    assert bool(said) == bool(published.sweep)
    if said:
        sweep = requested_sweep(Path(published.sweep), {})
    if published.figures:
        assert any(name in published.figures[0].where for name in sweep.models)


def test_a_run_beside_a_paper(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = well("compare", str(EXAMPLE), "sweeps/published/paretopipe.yaml", "--out", str(tmp_path))
    # The folder for temporary files may lie beneath, or beside, the repository.
    lines = [line.rstrip() for line in done.out.splitlines() if str(tmp_path) not in line]
    assert "\n".join(lines).replace(str(REPOSITORY), "HERE") == snapshot
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        ".made",
        "conclusions.csv",
        "fronts.csv",
        "figures.csv",
        "cannot.csv",
    }


def test_a_simulated_run_says_so(tmp_path: Path) -> None:
    run = write(tmp_path / "run", trials(rounds=1), simulated=True)
    done = command("compare", str(run), "sweeps/published/neurosurgeon.yaml", "--out", str(tmp_path))
    assert "(simulated: nothing was measured)" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("better: point = 17", "point = 17"),
        ("better: point == 17\n    besser: 1", "besser"),
        ("better: point == 17\n    times: 0", "times"),
        ("", "better"),
    ],
)
def test_a_fault_in_a_file_is_one_line_that_names_it(tmp_path: Path, written: str, words: str) -> None:
    path = tmp_path / "paper.yaml"
    path.write_text(
        "title: t\nlink: l\nsweep: s\ndiffers: [d]\nconclusions:\n"
        f"  - says: s\n    source: s\n    than: point == 0\n    {written}\n"
    )
    line = refused("compare", str(EXAMPLE), str(path), "--out", str(tmp_path))
    assert f"{path}:" in line
    assert words in line
