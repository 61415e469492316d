"""Going on with a run whose folder may be anybody's: what it names is neither run nor read, nothing in it believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.schema import TRIALS
from pareto.partitions import registry
from pareto.protocol.errors import UserError
from pareto.remote.backends.registry import CIPHER
from pareto.run.manifest import _testbed_hosts, check_same, new_manifest, resumed_sweep
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import networks_of
from pareto.sweep.sweep import Sweep, parse_sweep
from pareto.trial.store import Store
from tests.program import Ended, command, measured
from tests.unit.own_codecs import simple, written
from tests.unit.two_hosts import LAB, lab_sweep

EVIL = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
"""
Manifest = dict[str, Any]
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model of one's own, on one's own network and simulated testbed, with a row missing."""
    home = tmp_path_factory.mktemp("stranger")
    (home / "net_of_test_request.py").write_text(EVIL)
    (home / "slow.yaml").write_text("edge_to_server: {delay: 1ms}\n")
    (home / "world.yaml").write_text("hosts: {edge: {gflops: 0.02}}\n")
    done = measured(*named(home), "--trials", "2", "--backend", "tcp", "--out", f"{home}/out")
    assert done.code == 0, done.err
    (run,) = (home / "out").iterdir()
    table = run / "trials.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    return home


def named(home: Path) -> tuple[str, ...]:
    """What the run names outside of its folder."""
    model, world = f"{home}/net_of_test_request.py:build", f"simulated:{home}/world.yaml"
    return "--model", model, "--netem", f"{home}/slow.yaml", "--testbed", world


@pytest.fixture
def home(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same elsewhere, as in a process of its own: its model has not run yet."""
    monkeypatch.setattr(registry, "_adopted", {})
    home = tmp_path / "home"
    shutil.copytree(begun, home)
    (home / "ran").unlink()
    manifest = run_of(home) / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(begun), str(home)))
    return home


def run_of(home: Path) -> Path:
    (run,) = (home / "out").iterdir()
    return run


def begun_in(folder: Path, options: dict[str, Any], **recorded: Any) -> Sweep:
    """The sweep with these options, of which the folder has a run, with other records of it if any."""
    sweep = parse_sweep(options)
    (folder / "manifest.json").write_text(json.dumps({"sweep": sweep.model_dump(mode="json") | recorded}))
    return sweep


def line_of(done: Ended) -> str:
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in done.out
    return line


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_nothing_that_a_folder_names_is_run(home: Path, more: tuple[str, ...]) -> None:
    line = line_of(command("--resume", str(run_of(home)), *more))
    assert not (home / "ran").exists()
    assert all(option in line for option in ("--model", "--netem", "--testbed"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("model", "models", ["alexnet", "NET.py:build"]),
        ("netem", "netems", ["wifi", "wifi+NET.yaml"]),
        ("netem", "netems", ["net.yml+wifi"]),
        ("weights", "weights", "NET.pth"),
        ("codec", "codecs", ["none", "NET.py:Own+zstd:3"]),
        ("data_path", "data_path", "NET"),
        ("testbed", "testbed", "NET.yaml"),
        ("testbed", "testbed", "simulated:NET.yaml"),
    ],
)
def test_each_option_that_may_name_a_file_must_be_given_again(
    tmp_path: Path, option: str, field: str, value: Any
) -> None:
    """A FIFO, which would be waited at for ever if it were opened."""
    text = json.dumps(value).replace("NET", f"{tmp_path}/net")
    for ending in (".py", ".yaml", ".pth", ""):
        os.mkfifo(tmp_path / f"net{ending}")
    begun_in(tmp_path, {"model": "alexnet"}, **{field: json.loads(text)})
    with pytest.raises(UserError) as refused:
        resumed_sweep(tmp_path, {})
    assert f"give --{option.replace('_', '-')} again" in str(refused.value)


def test_it_goes_on_with_the_users_own_files_wherever_they_are(home: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in ("net_of_test_request.py", "slow.yaml", "world.yaml"):
        (home / file).rename(moved / file)
    done = measured("--resume", str(run_of(home)), *named(moved))
    assert done.code == 0, done.err
    assert len((run_of(home) / "trials.csv").read_text().splitlines()) == 1 + 3 * 2
    (moved / "slow.yaml").write_text("edge_to_server: {delay: 2ms}\n")
    assert "slow" in line_of(command("--resume", str(run_of(home)), *named(moved)))


def test_what_is_said_of_going_on_can_be_typed(home: Path) -> None:
    (home / "world.yaml").write_text("hosts: {edge: {gflops: 0.02}}\nfaults: {failed: 100%}\n")
    done = measured(*named(home), "--trials", "1", "--out", f"{home}/again")
    assert done.code == 1
    (line,) = (line for line in done.out.splitlines() if line.startswith("go on with: ./pareto.sh "))
    again = command(*line.split()[4:], "--dry-run")
    assert again.code == 0, again.err


def of(change: Callable[[Manifest], object]) -> Change:
    def write(path: Path) -> None:
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return write


def with_field(field: str, value: Any) -> Change:
    return of(lambda manifest: manifest["sweep"].update({field: value}))


def of_bytes(content: bytes) -> Change:
    return lambda path: path.write_bytes(content) and None


def instead(make: Callable[[Path], object]) -> Change:
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


MALFORMED: dict[str, Change] = {
    "empty": of_bytes(b""),
    "cut": lambda path: path.write_text(path.read_text()[:700]) and None,
    "no JSON": of_bytes(b"model: alexnet\n"),
    "not UTF-8": of_bytes(b'{"sweep": "\xff\xfe"}'),
    "UTF-16": of_bytes('{"sweep": {}}'.encode("utf-16")),
    "zero bytes": of_bytes(bytes(4096)),
    "a list": of_bytes(b"[]"),
    "a number": of_bytes(b"7"),
    "null": of_bytes(b"null"),
    "a text": of_bytes(b'"sweep"'),
    "an empty mapping": of_bytes(b"{}"),
    "deep": of_bytes(b"[" * 100_000),
    "deep in a mapping": of_bytes(b'{"sweep": ' * 50_000),
    "a number of 10000 digits": of_bytes(b'{"sweep": {"seed": ' + b"9" * 10_000 + b"}}"),
    "no sweep": of(lambda manifest: manifest.pop("sweep")),
    "sweep is null": of(lambda manifest: manifest.update(sweep=None)),
    "sweep is a list": of(lambda manifest: manifest.update(sweep=[1])),
    "sweep is a text": of(lambda manifest: manifest.update(sweep="alexnet")),
    "no models in the sweep": of(lambda manifest: manifest["sweep"].pop("models")),
    "an unknown key": with_field("evil", 1),
    "no model": with_field("models", []),
    "a model that is a number": with_field("models", 3),
    "models that are lists": with_field("models", [["alexnet"]]),
    "an unknown model": with_field("models", ["nonexistent"]),
    "a model with an ESC": with_field("models", ["alex\x1b[2Jnet"]),
    "a model with a line break": with_field("models", ["alexnet\nssh-rsa"]),
    "too many models": with_field("models", [f"model{number}" for number in range(5000)]),
    "an unknown network": with_field("netems", ["fiveg"]),
    "a network that is null": with_field("netems", None),
    "networks for more links": with_field("netems", ["wifi+wifi"]),
    "an unknown backend": with_field("backends", ["udp"]),
    "a backend that is a mapping": with_field("backends", {"tcp": 1}),
    "an infinite batch": with_field("batch_sizes", [float("inf")]),
    "a batch of none": with_field("batch_sizes", [0]),
    "a batch of 10^30": with_field("batch_sizes", [10**30]),
    "points that are a number": with_field("points", 1.5),
    "a point with an ESC": with_field("points", ["\x1b"]),
    "a depth of 10^9": with_field("depths", ["1000000000"]),
    "NaN trials": with_field("trials", float("nan")),
    "negative trials": with_field("trials", -1),
    "10^9 trials": with_field("trials", 10**9),
    "a testbed that is a list": with_field("testbed", ["local"]),
    "a testbed with a zero byte": with_field("testbed", "lab\0.yaml"),
    "a data path that is a number": with_field("data_path", 4),
    "the home of nobody": with_field("data_path", "~nobody-of-this-name"),
    "more hosts than there can be": with_field("hosts", 10**6),
    "models are a list": of(lambda manifest: manifest.update(models=[])),
    "a model that is null": of(lambda manifest: manifest.update(models=dict.fromkeys(manifest["models"]))),
    "another graph": of(lambda manifest: next(iter(manifest["models"].values())).update(graph_digest=[7])),
    "profiles are a text": of(lambda manifest: manifest.update(profiles="wifi")),
    "profiles are missing": of(lambda manifest: manifest.pop("profiles")),
    "sessions are a number": of(lambda manifest: manifest.update(sessions=3)),
    "sessions are texts": of(lambda manifest: manifest.update(sessions=["one"])),
    "hosts are a list": of(lambda manifest: manifest.update(testbed_hosts=["pi"])),
    "a folder": instead(Path.mkdir),
    "a FIFO": instead(os.mkfifo),
    "a link": instead(lambda path: path.symlink_to("trials.csv")),
    "a link to a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "a link to nothing": instead(lambda path: path.symlink_to("nowhere")),
    "too large": lambda path: os.truncate(path, 65 << 20),
}


def rows_of(change: Callable[[list[str]], list[str]]) -> Change:
    def write(path: Path) -> None:
        table = path.with_name("trials.csv")
        table.write_text("".join(change(table.read_text().splitlines(keepends=True))))

    return write


def with_cell(column: str, value: str) -> Change:
    def change(lines: list[str]) -> list[str]:
        cells = lines[1].split(",")
        cells[TRIALS.columns.index(column)] = value
        return [lines[0], ",".join(cells), *lines[2:]]

    return rows_of(change)


def linked(name: str) -> Change:
    """A link to what would be cut off, appended to, or filled with files."""

    def write(path: Path) -> None:
        target = path.parent.parent.parent / "target"
        its = path.parent / name
        if its.suffix != ".csv":
            shutil.rmtree(its, ignore_errors=True)
            its.parent.mkdir(exist_ok=True)
            target.mkdir()
        else:
            target.write_bytes(its.read_bytes() + b"without a last line break")
            its.unlink()
        its.symlink_to(target)

    return write


DAMAGED: dict[str, Change] = {
    "a round that is a text": with_cell("round", "one"),
    "a round of 10^5000": with_cell("round", "9" * 5000),
    "a point that is none": with_cell("point", "a+b"),
    "a batch that is a text": with_cell("batch_size", ""),
    "a start that is a text": with_cell("restart", "often"),
    "a reason of 17 MB": with_cell("reason", "x" * (17 << 20)),
    "too few cells": rows_of(lambda lines: [lines[0], "a,b\n"]),
    "too many cells": rows_of(lambda lines: [lines[0], lines[1][:-1] + ",,,\n"]),
    "other columns": rows_of(lambda lines: [lines[0].replace("round", "rounds"), *lines[1:]]),
    "no header": rows_of(lambda lines: lines[1:]),
    "empty": rows_of(lambda lines: []),
    "not UTF-8": lambda path: path.with_name("trials.csv").write_bytes(b"\xff\n") and None,
    "none": lambda path: path.with_name("trials.csv").unlink(),
    "a FIFO": lambda path: instead(os.mkfifo)(path.with_name("link.csv")),
    "trials are a link": linked("trials.csv"),
    "stages are a link": linked("stages.csv"),
    "links are a link": linked("link.csv"),
    **{f"{name} is a link": linked(name) for name in ("requests", "devices", "profiles", "profiles/net")},
    "the lock is a link": lambda path: path.with_name(".lock").symlink_to(path.parents[2] / "target"),
    "the lock is a folder": lambda path: path.with_name(".lock").mkdir(),
}


CHANGES = {f"manifest: {name}": change for name, change in MALFORMED.items()}
CHANGES |= {f"table: {name}": change for name, change in DAMAGED.items()}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_malformed_manifest_or_table_is_one_line_and_no_link_is_followed(
    home: Path, change: Change
) -> None:
    target = home / "target"
    change(run_of(home) / "manifest.json")
    before = target.read_bytes() if target.is_file() else None
    files = sorted(run_of(home).rglob("*"))
    line = line_of(command("--resume", str(run_of(home)), *named(home), "--figures", "none"))
    assert str(run_of(home)) in line
    assert line.isprintable()
    assert len(line) < 1500
    assert sorted(run_of(home).rglob("*")) == files
    assert (target.read_bytes() if target.is_file() else None) == before
    assert not target.is_dir() or not any(target.iterdir())


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return lab_sweep(tmp_path)


def test_what_of_a_testbed_file_decides(sweep: Sweep) -> None:
    empty = dict.fromkeys(("data_interface", "next_address", "next_interface", "python"), "")
    pi = {"name": "pi", "ssh": "pi@pi.local", "data_address": "192.168.7.2", "device": "cpu", "threads": 4}
    gpu = {"name": "gpu", "ssh": "local", "data_address": "192.168.7.1", "device": "cuda:0", "threads": 1}
    assert _testbed_hosts(sweep) == {"edge": empty | pi, "server": empty | gpu}
    assert _testbed_hosts(sweep.model_copy(update={"testbed": "local"})) is None


def created(folder: Path, sweep: Sweep) -> Store:
    return Store.create(folder, "run", new_manifest(sweep, {}, networks_of(sweep, 1)))


def check(store: Store, sweep: Sweep) -> None:
    check_same(store, sweep, {}, networks_of(sweep, 1))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("threads: 4", "threads: 2"),
        ("cuda:0", "cuda:1"),
        ("pi@pi.local", "pi@other.local"),
        ("192.168.7.1", "192.168.7.9"),
        ("  pi:", "  raspberry:"),
    ],
)
def test_a_run_does_not_go_on_with_other_hosts(sweep: Sweep, tmp_path: Path, was: str, now: str) -> None:
    store = created(tmp_path, sweep)
    file = Path(sweep.testbed)
    file.write_text(LAB.replace(was, now))
    with pytest.raises(UserError) as refused:
        check(store, sweep)
    assert str(store.folder) in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_run_goes_on_with_the_same_hosts_however_they_are_written(sweep: Sweep, tmp_path: Path) -> None:
    store = created(tmp_path, sweep)
    check(store, sweep)
    lines = LAB.replace("/srv/pareto", "/mnt/pareto").splitlines()
    Path(sweep.testbed).write_text("\n".join(["# turned round", lines[0], lines[2], lines[1]]))
    check(store, sweep)


def test_a_run_of_the_local_testbed_does_not_go_on_elsewhere(
    sweep: Sweep, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    store = created(tmp_path, sweep.model_copy(update={"testbed": "local"}))
    with pytest.raises(UserError) as refused:
        check(store, sweep)
    assert sweep.testbed in str(refused.value)
    assert str(refused.value) == snapshot


MADE: Manifest = {
    "weights_digest": "w",
    "graph_digest": "g",
    "source_digest": None,
    "dataset": {"name": "own", "inputs": {"1": {"images": 4, "digest": "i"}}, "labels": "by name"},
    "input_shape": [3, 32, 32],
}


OWN = {"source_digest": "s", "weights_digest": "w", "points": [2]}


def of_codec(**changed: Any) -> dict[str, Any]:
    return {"own_codecs": {"Bottleneck": OWN | changed}}


@pytest.mark.parametrize(
    ("made", "other"),
    [
        *(({}, {what: "x"}) for what in ("weights_digest", "graph_digest", "source_digest")),
        ({}, {"dataset": {**MADE["dataset"], "inputs": {"1": {"images": 4, "digest": "x"}}}}),
        (of_codec(), of_codec(source_digest="t")),
        (of_codec(), of_codec(weights_digest="x")),
        (of_codec(), of_codec(points=[3])),
    ],
    ids=["weights", "graph", "source", "dataset", "codec's source", "codec's weights", "codec's points"],
)
def test_a_run_does_not_go_on_with_another_model_or_codec_of_the_users_own(
    sweep: Sweep, tmp_path: Path, made: Manifest, other: Manifest, snapshot: SnapshotAssertion
) -> None:
    networks = networks_of(sweep, 1)
    store = Store.create(tmp_path, "run", new_manifest(sweep, {"net": {**MADE, **made}}, networks))
    check_same(store, sweep, {"net": {**MADE, **made, "input_shape": (3, 32, 32)}}, networks)
    with pytest.raises(UserError) as refused:
        check_same(store, sweep, {"net": {**MADE, **other}}, networks)
    assert ("codec Bottleneck" in str(refused.value)) == bool(made)
    assert str(refused.value) == snapshot


def test_a_users_own_codec_may_have_moved(tmp_path: Path) -> None:
    begun_in(tmp_path, {"model": "alexnet", "codec": f"none,{tmp_path}/b.py:Own+zstd"})
    moved = tmp_path / "moved"
    moved.mkdir()
    file = written(moved, simple(), "c.py")
    whole = resumed_sweep(tmp_path, {"codec": f"none,{file}:Own+zstd"})
    assert whole.codecs == ("none", f"{file}:Own+zstd:3")
    for other in (f"{file}:Own+zstd", f"none,{file}:Other+zstd", f"none,{file}:Own"):
        with pytest.raises(UserError, match="codec was"):
            resumed_sweep(tmp_path, {"codec": other})


def test_a_run_may_go_on_for_longer_than_it_was_to(tmp_path: Path) -> None:
    begun = begun_in(tmp_path, {"model": "alexnet", "until": "5%"})
    assert resumed_sweep(tmp_path, {}) == begun
    wanted = resumed_sweep(tmp_path, {"until": "2%", "budget": "1h"})
    assert wanted == begun.model_copy(update={"until": 0.02, "budget": 3600})
    assert wanted.rounds == begun.rounds == 6


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("congestion", "cubic"),
        ("initial_window", 10),
        ("slow_start_after_idle", True),
        ("backend", "tcp:a,tcp:c"),
        ("requests", 100),
    ],
)
def test_a_run_goes_on_with_the_tcp_and_the_names_it_began_with(
    tmp_path: Path, option: str, value: Any, snapshot: SnapshotAssertion
) -> None:
    made = {"model": "alexnet", "congestion": "bbr", "backend": "tcp:a,tcp:b", "requests": 662}
    begun = begun_in(tmp_path, made)
    assert resumed_sweep(tmp_path, {"congestion": "bbr"}) == begun
    with pytest.raises(UserError) as refused:
        resumed_sweep(tmp_path, {option: value})
    line = str(refused.value)
    assert option in line
    assert str(value) in line
    assert line == snapshot


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "--model"), ({"model": "gone.py:build"}, "gone.py"), ({"model": "nonexistent"}, "nonexistent")],
    ids=["not given", "gone", "unknown"],
)
def test_a_run_that_cannot_go_on_is_one_line(
    tmp_path: Path, options: dict[str, Any], named: str, snapshot: SnapshotAssertion
) -> None:
    model = tmp_path / "gone.py:build"
    begun_in(tmp_path, {"model": str(model), "dataset": "folder", "data_path": tmp_path})
    with pytest.raises(UserError) as refused:
        resumed_sweep(tmp_path, {**options, "data_path": tmp_path})
    line = str(refused.value).replace(f"{Path.cwd()}/", "HERE/")
    assert named in line
    assert "\n" not in line
    assert line.partition(": did you mean")[0] == snapshot  # what is like it depends on other tests' models


def test_a_data_set_is_named_again_when_a_run_goes_on(tmp_path: Path) -> None:
    begun = begun_in(tmp_path, {"model": "alexnet", "dataset": "folder", "data_path": tmp_path})
    assert resumed_sweep(tmp_path, {"data_path": tmp_path}) == begun
    with pytest.raises(UserError, match=r"dataset .* folder.* cifar10"):
        resumed_sweep(tmp_path, {"dataset": "cifar10", "data_path": tmp_path})
    own = tmp_path / "data.py"
    own.touch()
    begun = begun_in(tmp_path, {"model": "alexnet", "dataset": f"{own}:make"})
    with pytest.raises(UserError, match="--dataset"):
        resumed_sweep(tmp_path, {})
    assert resumed_sweep(tmp_path, {"dataset": f"{own}:make"}) == begun


@pytest.mark.parametrize(("secure", "cipher"), [("none", None), ("tls", CIPHER), ("none,tls", CIPHER)])
def test_the_cipher_is_recorded_where_something_is_encrypted(secure: str, cipher: str | None) -> None:
    sweep = make_sweep({"model": "alexnet", "backend": "tcp", "secure": secure})
    assert new_manifest(sweep, {}, {})["tls_cipher"] == cipher
