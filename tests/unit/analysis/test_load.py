"""Which folders are meant, and what their files say: of one run, or several as one data set."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing.between_runs import compare
from pareto.analysis.findings import Options
from pareto.analysis.naming import USUAL
from pareto.analysis.reporting import report
from pareto.analysis.runs import reading
from pareto.analysis.runs.load import folders, joined, links, load, stages
from pareto.analysis.runs.points import TRIAL
from pareto.analysis.runs.requests import request_latencies
from pareto.analysis.schema import LINKS, TRIALS
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit import example_chain
from tests.unit.example_run import trials, write
from tests.unit.refusals import refusal

Logged = pytest.LogCaptureFixture


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The `trials.csv` of a run of one round."""
    return write(tmp_path, trials(rounds=1)) / "trials.csv"


def without(path: Path, *columns: str) -> None:
    """Take columns out of a `trials.csv`."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False).drop(columns=list(columns))
    frame.to_csv(path, index=False)


@pytest.mark.parametrize("cut", [1, 5, 60, 150])
def test_a_torn_last_line_is_left_out(table: Path, cut: int) -> None:
    table.write_bytes(table.read_bytes()[: -2 - cut])
    assert len(load(table.parent)) == 43


@pytest.mark.parametrize("kept", ["first\n", "first\nsecond\n", 'first\nsecond\n""quoted""\n'])
def test_a_line_torn_inside_a_quoted_newline_is_left_out(tmp_path: Path, kept: str, caplog: Logged) -> None:
    rows = trials(rounds=1)
    rows[3]["reason"] = rows[-1]["reason"] = 'first\nsecond\n"quoted"\nlast'
    path = write(tmp_path, rows) / "trials.csv"
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.rindex(kept.encode()) + len(kept)])
    frame = load([tmp_path])
    assert len(frame) == 43
    assert frame["reason"][3] == rows[3]["reason"]
    (told,) = caplog.messages
    assert "trials.csv" in told


def test_a_single_quote_that_a_hand_wrote_hides_no_row(table: Path, caplog: Logged) -> None:
    table.write_text(table.read_text().replace(",features.5,", ',5" wide,', 1))
    assert load(table.parent)["point_name"].tolist().count('5" wide') == 1
    assert len(load(table.parent)) == 44
    assert not caplog.messages


def test_5_000_rows_are_what_pandas_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = trials(rounds=12)[:500]
    for row, reason in zip(rows, rng.choice(["", "a, b", 'said "no"\nand left'], len(rows)), strict=True):
        row |= {"reason": reason, "latency_s": rng.lognormal(), "started_at": str(rng.integers(10**12))}
        row["top1"] = rng.choice(["", "0.5", "nan", "1e-05", "12"])
    path = write(tmp_path, rows) / "trials.csv"
    header, _, body = path.read_bytes().partition(b"\r\n")
    bodies = (body.replace(b"mobilenetv2", b"mobilenetv%d" % number) for number in range(10))
    path.write_bytes(header + b"\r\n" + b"".join(bodies))
    quick = load(tmp_path)
    slow = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert len(quick) == 5_000
    assert quick["reason"].nunique() == 3
    assert (quick["round"].dtype, quick["point"][1], quick["point_name"].dtype) == (np.int64, "1", "str")
    for column in TRIALS.columns:
        if quick[column].dtype == "float64":
            expected = slow[column].replace("", "nan").to_numpy(dtype=float)
            np.testing.assert_array_equal(quick[column], expected, err_msg=column)
        elif column not in USUAL:
            assert (quick[column].astype(str) == slow[column]).all(), column


def test_a_column_that_may_be_empty_may_be_missing_and_is_not_measured(tmp_path: Path) -> None:
    missing = {"edge_gpu_s": 0.5, "server_throttled": "0x4", "bound_by": "edge-server out", "top1": 0.75}
    for name in ("new", "old"):
        write(tmp_path / name, trials(rounds=1, edge_throttled="0x0", run=name, **missing))
    without(tmp_path / "old" / "trials.csv", *missing)
    new, old = load(tmp_path / "new"), load(tmp_path / "old")
    assert list(old.columns) == [*TRIALS.columns, "setup"]
    assert new.loc[0, [*missing]].to_dict() == missing
    empty = {"edge_gpu_s": np.nan, "server_throttled": "", "bound_by": "", "top1": np.nan}
    pd.testing.assert_frame_equal(old, new.assign(run="old", **empty), check_dtype=False)
    assert old["edge_gpu_s"].dtype == np.float64
    assert load(tmp_path).groupby("run")["edge_gpu_s"].count().to_dict() == {"new": 44, "old": 0}


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("local", "local"),
        ("simulated", "simulated"),
        ("simulated:worlds/slow.yaml", "simulated"),
        ("labs/pi.two.yaml", "pi.two"),
        ("labs/\x1b.yaml", "\\x1b"),
        (None, ""),
    ],
)
def test_rows_of_older_versions_are_of_the_testbed_that_the_sweep_names(
    tmp_path: Path, option: str | None, name: str
) -> None:
    path = write(tmp_path, trials(rounds=1), sweep={"testbed": option}) / "trials.csv"
    assert set(load([tmp_path])["testbed"]) == {"local"}
    without(path, "testbed")
    assert set(load([tmp_path])["testbed"]) == {name}
    written(tmp_path, HEADER + OK)
    assert set(links([tmp_path])["testbed"]) == {name}


@pytest.mark.parametrize("testbed", ["simulated", "simulated-2", "simulated@lab"])
def test_simulated_rows_never_pass_for_measured_ones_where_the_manifest_is_lost(
    tmp_path: Path, testbed: str
) -> None:
    bare = write(tmp_path / "bare", trials(rounds=1, testbed=testbed, run="bare"))
    (bare / "manifest.json").unlink()
    assert load([bare])["setup"].str.startswith("simulated").all()
    assert any("nothing of this was measured" in note for note in joined([bare]).notes)
    other = write(tmp_path / "other", trials(rounds=1, run="other"))
    if testbed == "simulated":
        assert compare(bare, other).differences["setup"].eq("A simulated").all()
    with pytest.raises(UserError, match="not joined"):
        load([bare, other])
    (other / "manifest.json").unlink()
    assert load([other])["setup"].eq("").all()


def test_a_later_version_s_columns_are_left_out_and_told_once(
    tmp_path: Path, caplog: Logged, snapshot: SnapshotAssertion
) -> None:
    runs = [write(tmp_path / name, trials(rounds=1, run="")) for name in ("a", "b")]
    known = load(runs)
    assert known["run"].value_counts().to_dict() == {"a": 44, "b": 44}, "named after their folders"
    for run in runs:
        text = (run / "trials.csv").read_text().replace("run,model,", "run,mood,model,")
        (run / "trials.csv").write_text(text.replace("\n,mobile", "\n,good,mobile"))
    pd.testing.assert_frame_equal(load(runs), known)
    assert [text for text in caplog.messages if "mood" in text] == snapshot


def test_each_cell_and_round_counts_once_and_it_is_said(tmp_path: Path, caplog: Logged) -> None:
    rows = trials(rounds=2)
    failed = rows[3] | {"status": "failed", "latency_s": "", "reason": "x" * 200_000}
    run = write(tmp_path, [failed, *rows, rows[5] | {"latency_s": 99.0}])
    frame = load(run)
    assert len(frame) == len(rows) == len(frame.drop_duplicates([*TRIAL]))
    assert frame["status"].eq("ok").all(), "what failed was done again"
    assert frame["latency_s"].max() < 99
    (said,) = caplog.messages
    assert "2 rows" in said and "two runs" in said
    assert joined(run).notes == [said]


IMPOSSIBLE: dict[str, tuple[str, ...]] = {
    "latency_s": ("inf", "-inf", "0", "-1", "1e300", "1e-300"),
    "throughput_ips": ("inf", "0", "-2.5"),
    "payload_bytes": ("-1", "1e19", "four"),
    "batch_size": ("0", "-1", "1000001", "9" * 30, "many"),
    "round": ("-1", "1_0", "\u0663", "0.5", ""),
    "point": ("", "-1", "\u0663", "1_0", "9" * 5000, "+".join("1" * 40), "three", "3+"),
    "model": ("", "x\x1b[2J", "x\ny", "x\u202ey", "x" * 1001),
    "bound_by": ("middlex out", "link out", "edge-server"),
    "in_flight_asked": ("many", "-1"),
    "status": ("fine", ""),
}


@pytest.mark.parametrize(
    ("column", "value"), [(name, it) for name, each in IMPOSSIBLE.items() for it in each]
)
def test_what_nobody_can_have_measured_is_refused_with_its_line(
    tmp_path: Path, column: str, value: str
) -> None:
    """Its number counts the lines of reasons."""
    rows = trials(rounds=1)
    rows[0]["reason"] = "one\ntwo"
    rows[2][column] = value
    with pytest.raises(UserError, match=rf"trials\.csv, line [56]: column {column}: ") as refused:
        load(write(tmp_path, rows))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300 + len(str(tmp_path))


REFUSED = {
    "a column that says which trial it is": (b",backend,", b",", "no column backend"),
    "one that says whether it counts": (b",status,", b",", "no column status"),
    "a field too many": (b"v2,3,", b"v2,3,4,", f"line 5: {len(TRIALS.columns) + 1} .* {len(TRIALS.columns)}"),
    "no UTF-8": (b"example", b"\xff\xfe", "trials.csv"),
    "nothing": (b"", b"", "trials.csv: no column"),
}


@pytest.mark.parametrize(("old", "new", "named"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_such_table_is_refused(table: Path, old: bytes, new: bytes, named: str) -> None:
    table.write_bytes(table.read_bytes().replace(old, new, 1) if old else b"")
    assert re.search(named, refusal(UserError, load, table.parent))


@pytest.mark.parametrize("name", ["trials.csv", "stages.csv", "link.csv", "manifest.json", "requests"])
def test_what_is_no_plain_file_is_passed_over_or_refused_and_never_waited_for(
    tmp_path: Path, name: str, caplog: Logged
) -> None:
    run = write(tmp_path / "run", trials(rounds=1)[:3])
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    if name == "trials.csv":
        assert "not a run" in refusal(UserError, load, run)
        return
    known, *_ = joined(run), links([run]), request_latencies(run)
    assert len(known.trials) == 3
    assert any(name in said and "FIFO" in said for said in [*known.notes, *caplog.messages])


def test_no_link_within_a_run_is_followed(tmp_path: Path) -> None:
    run, other = (write(tmp_path / name, trials(rounds=1)) for name in ("run", "other"))
    (run / "trials.csv").unlink()
    (run / "trials.csv").symlink_to(other / "trials.csv")
    assert "trials.csv is a link" in refusal(UserError, load, run)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "there").symlink_to(other)
    assert "not a run" in refusal(UserError, load, tmp_path / "runs")
    assert len(load(tmp_path / "runs" / "there")) == 44, "the user named it"


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Run folders a and b, beside what is no run."""
    results = tmp_path / "results"
    runs = [write(results / name, trials(rounds=1, run=name)) for name in ("b", "a")]
    (results / "README.md").write_text("# results")
    (results / "joined").mkdir()
    return sorted(runs)


def test_a_run_is_given_by_path_text_pattern_or_the_folder_around_it(
    two: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    around = two[0].parent
    assert folders(two[0]) == folders(str(two[0])) == [two[0]]
    assert folders(around) == folders(f"{around}/*") == folders([f"{around}/[ab]"]) == two
    assert folders(f"{around.parent}/res*") == two, "of a pattern's folders too"
    assert folders(reversed(two)) == two[::-1], "in the order asked for"
    assert folders([]) == []
    run = write(around / "net[1]", trials(rounds=1))
    write(around / "net1", trials(rounds=1))
    assert folders(str(run)) == [run], "a folder named like a pattern"
    monkeypatch.chdir(around)
    monkeypatch.setenv("HOME", str(around))
    assert folders("?") == [Path("a"), Path("b")]
    assert folders("~/a") == [two[0]]


@pytest.mark.parametrize(
    "asked",
    ["nowhere", "nowh*", "results/README.md", "results/joined", ""],
    ids=["nothing", "no match", "a file", "no run in it", "no run beside it"],
)
def test_what_is_no_run_is_refused(two: list[Path], asked: str, snapshot: SnapshotAssertion) -> None:
    assert refusal(UserError, load, str(two[0].parents[1] / asked)) == snapshot


HEADER = ",".join(name for name in LINKS.columns if name != "testbed") + "\n"
OK = "2026-11-21T17:54:54.170+00:00,net,wifi,edge-server,net-k00,before,ok,,0.2,5e+06,,0.200763,4.8e+06,,,,,,,\n"
OFF = (
    "2026-11-21T17:55:54.170+00:00,net,wifi,edge-server,net-k00,after,off,"
    '"RTT 0.3 s, asked 0.2 s",0.2,5e+06,,0.3,,,,,,,,\n'
)


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "link.csv").write_text(text)
    return folder


def test_probes_are_typed_and_runs_follow_each_other(tmp_path: Path) -> None:
    one, other = written(tmp_path / "b", HEADER + OK), written(tmp_path / "a", HEADER + OFF + OK)
    (missing := tmp_path / "missing").mkdir()
    frame = links([one, missing, other])
    assert list(frame) == ["run", *LINKS.columns]
    told = frame[["run", "verdict", "reason", "rtt_s"]].reset_index().to_numpy().tolist()
    off = [1, "a", "off", "RTT 0.3 s, asked 0.2 s", 0.3]
    assert told == [[0, "b", "ok", "", 0.200763], off, [2, "a", "ok", "", 0.200763]]
    assert frame["rate_bps"].isna().tolist() == [False, True, False], "empty is not zero"
    assert frame[["asked_rate_back_bps", "loss", "position_s"]].isna().all(axis=None)
    for none in (links([missing]), links([]), links([written(tmp_path / "begun", HEADER)])):
        assert none.empty and list(none) == list(frame)
        assert none["rtt_s"].dtype == frame["rtt_s"].dtype == frame["position_s"].dtype == "float64"


def test_the_same_run_twice_is_refused_under_whatever_path(
    two: list[Path], snapshot: SnapshotAssertion
) -> None:
    a, around = two[0], two[0].parent
    (around.parent / "link").symlink_to(a)
    for twice in ([a, a], [a, around], [a, around.parent / "link"], [a, os.path.relpath(a)]):
        said = refusal(UserError, load, twice)
        assert str(a) in said or os.path.relpath(a) in said
    assert refusal(UserError, joined, [a, shutil.copytree(a, around / "c")]) == snapshot


def test_joined_runs_are_their_trials_and_stages_below_each_other(tmp_path: Path) -> None:
    runs = []
    for seed, name in enumerate("ab"):
        both = example_chain.trials([(3, 10), (3, 21)], seed=seed)
        named = ([row | {"run": name} for row in rows] for rows in both)
        runs.append(example_chain.write(tmp_path / name, *named))
    found = joined(runs)
    assert [run.folder for run in found.runs] == runs
    assert found.runs[0].manifest["testbed"].startswith("local")
    for each, of in ((found.trials, load), (found.stages, stages)):
        pd.testing.assert_frame_equal(each, pd.concat([of(run) for run in runs], ignore_index=True))
    pd.testing.assert_frame_equal(found.stages, stages(tmp_path))
    assert found.trials["setup"].eq("").all() and found.notes == []
    old = write(tmp_path / "old", trials(rounds=1, run="old"))
    assert set(joined([old, *runs]).stages["run"]) == {"a", "b"}, "an old run has none"
    assert joined([]).trials.empty


def test_versions_that_differ_are_told(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    def run(name: str, pareto: str, torch: str) -> Path:
        session = {"driver": {"hostname": "lab", "packages": {"torch": torch}}}
        return write(tmp_path / name, trials(rounds=1, run=name), pareto=pareto, sessions=[session])

    alike = [run("a", "0.1.0", "2.13.0"), run("b", "0.1.0", "2.13.0")]
    assert joined(alike).notes == []
    assert joined([*alike, run("c", "0.2.0", "2.12.0")]).notes == snapshot


def test_a_large_run_is_held_as_categories_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, made = REPOSITORY / "results/example", []
    for large in (0, reading.LARGE):
        monkeypatch.setattr(reading, "LARGE", large)
        out = tmp_path / str(large)
        report(example, out, Options(figures="none"))
        made.append({path.name: path.read_bytes() for path in out.glob("*.[cm]*")})
        assert isinstance(load(example)["backend"].dtype, pd.CategoricalDtype) == (large == 0)
    assert made[0] == made[1]
    assert len(made[0]) > 5
