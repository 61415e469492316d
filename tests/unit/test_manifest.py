"""Going on with a run whose folder may be anybody's: what it names is neither run nor read, nothing in it believed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pareto.driver.manifest import _testbed_hosts, check_same, new_manifest, resumed_sweep
from pareto.partitions import registry
from pareto.protocol.errors import UserError
from pareto.remote.backends.registry import CIPHER
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import networks_of
from pareto.sweep.sweep import Sweep, parse_sweep
from pareto.trial.store import Store
from tests.program import Ended, command, measured
from tests.unit.analysis import hostile
from tests.unit.own_codecs import simple, written
from tests.unit.refusals import refusal
from tests.unit.two_hosts import LAB, lab_sweep

EVIL = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
"""
Manifest = dict[str, Any]


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
    return next(path for path in (home / "out").iterdir() if path.name != "victim")


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
        ("data-path", "data_path", "NET"),
        ("testbed", "testbed", "NET.yaml"),
        ("testbed", "testbed", "simulated:NET.yaml"),
    ],
)
def test_options_that_name_files_are_given_again(tmp_path: Path, option: str, field: str, value: Any) -> None:
    """A FIFO, which would be waited at for ever if it were opened."""
    for ending in (".py", ".yaml", ".pth", ""):
        os.mkfifo(tmp_path / f"net{ending}")
    text = json.dumps(value).replace("NET", f"{tmp_path}/net")
    begun_in(tmp_path, {"model": "alexnet"}, **{field: json.loads(text)})
    assert f"give --{option} again" in refusal(UserError, resumed_sweep, tmp_path, {})


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


FIELDS: dict[str, list[Any]] = {
    "evil": [1],
    "models": [[], 3, [["alexnet"]], ["nonexistent"], ["alex\x1b[2Jnet"], ["alexnet\nssh-rsa"]],
    "netems": [["fiveg"], None, ["wifi+wifi"]],
    "backends": [["udp"], {"tcp": 1}],
    "batch_sizes": [[float("inf")], [0], [10**30]],
    "points": [1.5, ["\x1b"]],
    "depths": [["1000000000"]],
    "trials": [float("nan"), -1, 10**9],
    "testbed": [["local"], "lab\0.yaml"],
    "data_path": [4, "~nobody-of-this-name"],
    "hosts": [10**6],
}
TOLD: list[tuple[tuple[str, ...], Any]] = [
    *((("sweep", name), value) for name, values in FIELDS.items() for value in values),
    *((("sweep",), value) for value in (None, [1], "alexnet", {})),
    *((("models",), []), (("profiles",), "wifi"), (("profiles",), {}), (("testbed_hosts",), ["pi"])),
    *(
        (("sessions",), 3),
        (("sessions",), ["one"]),
        (("sweep", "models"), [f"m{each}" for each in range(5000)]),
    ),
    *(
        (("models", "net_of_test_request.build"), None),
        (("models", "net_of_test_request.build", "graph_digest"), [7]),
    ),
]
CELLS = {"round": ["one", "9" * 5000], "point": ["a+b"], "batch_size": [""], "restart": ["often"]}
CELLS |= {"reason": ["x" * (17 << 20)]}
FILLED = ("trials.csv", "stages.csv", "link.csv", "requests", "devices", "profiles", "profiles/net")


def linked(name: str, run: Path) -> None:
    """A link to what would be cut off, appended to, or filled with files."""
    victim, its = run.parent / "victim", run / name
    if its.suffix == ".csv":
        victim.write_bytes(its.read_bytes() + b"without a last line break")
        its.unlink()
    else:
        shutil.rmtree(its, ignore_errors=True)
        its.parent.mkdir(exist_ok=True)
        victim.mkdir()
    its.symlink_to(victim)


def relined(change: Callable[[list[str]], list[str]], run: Path) -> None:
    table = run / "trials.csv"
    table.write_text("".join(change(table.read_text().splitlines(keepends=True))))


CHANGES: dict[str, hostile.Attack] = {
    **{name: attack for name, attack in hostile.SPOILED.items() if name != "trials.csv column twice"},
    **{f"{'.'.join(keys)} is {value!r:.30}": partial(hostile.told, keys, value) for keys, value in TOLD},
    "a manifest that is cut": lambda run: os.truncate(run / "manifest.json", 700),
    "a manifest that is too large": lambda run: os.truncate(run / "manifest.json", 65 << 20),
    **{
        f"{name} is {each!r:.9}": partial(hostile.cells, "trials.csv", {name: each})
        for name, values in CELLS.items()
        for each in values
    },
    "too few cells": partial(relined, lambda lines: [lines[0], "a,b\n"]),
    "too many cells": partial(relined, lambda lines: [lines[0], lines[1][:-1] + ",,,\n"]),
    "another column": partial(relined, lambda lines: [lines[0].replace("round", "rounds"), *lines[1:]]),
    "no header": partial(relined, lambda lines: lines[1:]),
    "no table": lambda run: (run / "trials.csv").unlink(),
    "link.csv is a fifo": partial(hostile.instead, "link.csv", "fifo"),
    **{f"{name} is a link": partial(linked, name) for name in FILLED},
    "the lock is a link": partial(hostile.instead, ".lock", "link"),
    "the lock is a folder": partial(hostile.instead, ".lock", "folder"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_malformed_folder_is_one_line_and_no_link_followed(home: Path, change: hostile.Attack) -> None:
    victim = (run := run_of(home)).parent / "victim"
    change(run)
    before = victim.read_bytes() if victim.is_file() else None
    files = sorted(run.rglob("*"))
    line = line_of(command("--resume", str(run), *named(home), "--figures", "none"))
    assert str(run) in line
    assert line.isprintable()
    assert len(line) < 1500
    assert sorted(run.rglob("*")) == files
    assert (victim.read_bytes() if victim.is_file() else None) == before
    assert not victim.is_dir() or not any(victim.iterdir())


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


HOSTS = [("threads: 4", "threads: 2"), ("cuda:0", "cuda:1"), ("pi@pi.local", "pi@other.local")]
HOSTS += [("192.168.7.1", "192.168.7.9"), ("  pi:", "  raspberry:")]


def test_a_run_goes_on_with_the_same_hosts_alone(sweep: Sweep, tmp_path: Path, snapshot: object) -> None:
    store, file = created(tmp_path, sweep), Path(sweep.testbed)
    check(store, sweep)
    lines = LAB.replace("/srv/pareto", "/mnt/pareto").splitlines()
    file.write_text("\n".join(["# turned round", lines[0], lines[2], lines[1]]))
    check(store, sweep)
    for was, now in HOSTS:
        file.write_text(LAB.replace(was, now))
        line = refusal(UserError, check, store, sweep)
        assert str(store.folder) in line, now
        assert str(file) in line, now
    (tmp_path / "local").mkdir()
    local = created(tmp_path / "local", sweep.model_copy(update={"testbed": "local"}))
    line = refusal(UserError, check, local, sweep)
    assert sweep.testbed in line
    assert line == snapshot


MADE: Manifest = {
    **{"weights_digest": "w", "graph_digest": "g", "source_digest": None, "input_shape": [3, 32, 32]},
    "dataset": {"name": "own", "inputs": {"1": {"images": 4, "digest": "i"}}, "labels": "by name"},
}
OWN = {"source_digest": "s", "weights_digest": "w", "points": [2]}


def of_codec(**changed: Any) -> dict[str, Any]:
    return {"own_codecs": {"Bottleneck": OWN | changed}}


OTHERS: dict[str, tuple[Manifest, Manifest]] = {
    **{what: ({}, {f"{what}_digest": "x"}) for what in ("weights", "graph", "source")},
    "dataset": ({}, {"dataset": {**MADE["dataset"], "inputs": {"1": {"images": 4, "digest": "x"}}}}),
    "codec's source": (of_codec(), of_codec(source_digest="t")),
    "codec's weights": (of_codec(), of_codec(weights_digest="x")),
    "codec's points": (of_codec(), of_codec(points=[3])),
}


@pytest.mark.parametrize(("made", "other"), OTHERS.values(), ids=OTHERS)
def test_a_run_does_not_go_on_with_another_model_or_codec_of_the_users_own(
    sweep: Sweep, tmp_path: Path, made: Manifest, other: Manifest, snapshot: object
) -> None:
    networks = networks_of(sweep, 1)
    store = Store.create(tmp_path, "run", new_manifest(sweep, {"net": {**MADE, **made}}, networks))
    check_same(store, sweep, {"net": {**MADE, **made, "input_shape": (3, 32, 32)}}, networks)
    line = refusal(UserError, check_same, store, sweep, {"net": {**MADE, **other}}, networks)
    assert ("codec Bottleneck" in line) == bool(made)
    assert line == snapshot


def test_what_is_the_users_own_is_named_again_and_may_have_moved(tmp_path: Path) -> None:
    begun_in(tmp_path, {"model": "alexnet", "codec": f"none,{tmp_path}/b.py:Own+zstd"})
    (tmp_path / "moved").mkdir()
    file = written(tmp_path / "moved", simple(), "c.py")
    whole = resumed_sweep(tmp_path, {"codec": f"none,{file}:Own+zstd"})
    assert whole.codecs == ("none", f"{file}:Own+zstd:3")
    for other in (f"{file}:Own+zstd", f"none,{file}:Other+zstd", f"none,{file}:Own"):
        assert "codec was" in refusal(UserError, resumed_sweep, tmp_path, {"codec": other})
    begun = begun_in(tmp_path, {"model": "alexnet", "dataset": "folder", "data_path": tmp_path})
    assert resumed_sweep(tmp_path, {"data_path": tmp_path}) == begun
    with pytest.raises(UserError, match=r"dataset .* folder.* cifar10"):
        resumed_sweep(tmp_path, {"dataset": "cifar10", "data_path": tmp_path})
    own = tmp_path / "data.py"
    own.touch()
    begun = begun_in(tmp_path, {"model": "alexnet", "dataset": f"{own}:make"})
    assert "--dataset" in refusal(UserError, resumed_sweep, tmp_path, {})
    assert resumed_sweep(tmp_path, {"dataset": f"{own}:make"}) == begun


def test_a_run_may_go_on_for_longer_but_keeps_its_tcp_and_its_names(tmp_path: Path, snapshot: object) -> None:
    begun = begun_in(tmp_path, {"model": "alexnet", "until": "5%"})
    assert resumed_sweep(tmp_path, {}) == begun
    wanted = resumed_sweep(tmp_path, {"until": "2%", "budget": "1h"})
    assert wanted == begun.model_copy(update={"until": 0.02, "budget": 3600})
    assert wanted.rounds == begun.rounds == 6
    made = {"model": "alexnet", "congestion": "bbr", "backend": "tcp:a,tcp:b", "requests": 662}
    begun = begun_in(tmp_path, made)
    assert resumed_sweep(tmp_path, {"congestion": "bbr"}) == begun
    others = {"congestion": "cubic", "initial_window": 10, "slow_start_after_idle": True, "requests": 100}
    for option, value in {**others, "backend": "tcp:a,tcp:c"}.items():
        line = refusal(UserError, resumed_sweep, tmp_path, {option: value})
        assert option in line
        assert str(value) in line
        assert line == snapshot


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "--model"), ({"model": "gone.py:build"}, "gone.py"), ({"model": "nonexistent"}, "nonexistent")],
    ids=["not given", "gone", "unknown"],
)
def test_what_cannot_go_on_is_one_line(tmp_path: Path, options: Any, named: str, snapshot: object) -> None:
    begun_in(tmp_path, {"model": f"{tmp_path}/gone.py:build", "dataset": "folder", "data_path": tmp_path})
    line = refusal(UserError, resumed_sweep, tmp_path, {**options, "data_path": tmp_path})
    line = line.replace(f"{Path.cwd()}/", "HERE/")
    assert named in line
    assert line.partition(": did you mean")[0] == snapshot  # what is like it depends on other tests' models


@pytest.mark.parametrize(("secure", "cipher"), [("none", None), ("tls", CIPHER), ("none,tls", CIPHER)])
def test_the_cipher_is_recorded_where_something_is_encrypted(secure: str, cipher: str | None) -> None:
    sweep = make_sweep({"model": "alexnet", "backend": "tcp", "secure": secure})
    assert new_manifest(sweep, {}, {})["tls_cipher"] == cipher
