"""What a sweep may ask for, by options and by a file, how a wrong one is refused, and how it is asked for again."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.commands.app import commands
from pareto.driver.job import may_be_model
from pareto.hosts.host import TcpSettings
from pareto.partitions import registry, yolo
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Tolerance
from pareto.sweep.checked_sweep import make_sweep, requested_sweep
from pareto.sweep.networks import links_of, networks_of, networks_to_check, profiles
from pareto.sweep.options import FIELDS, OPTIONS, REQUIRED, ROUNDS, command
from pareto.sweep.sweep import Sweep
from tests.unit.refusals import refusal

CAMERA = {"from": "jpeg", "dataset": "folder", "data_path": "pictures"}

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "--model"),
    ({"backend": "udp"}, "'udp'"),
    ({"points": []}, "--points"),
    ({"hosts": 1}, "--hosts 1"),
    ({"live_tensors": 0}, "--live-tensors 0"),
    ({"input": "int8"}, "--input 'int8'"),
    ({"dataset": "imagenet"}, "--dataset 'imagenet'"),
    ({"dataset": "folder"}, "--data-path"),
    ({"data_path": "pictures"}, "--data-path"),
    ({"from": "raw"}, "--from 'raw'"),
    ({"from": "jpeg"}, "--from jpeg"),
    ({"load": "15"}, "--load '15'"),
    ({"load": "trace:/nowhere"}, "/nowhere"),
    ({"load": "0.01/s", "slo": "p99 < 1s", "trials": 1}, "--load 0.01/s"),
    ({"every": "fast"}, "--every"),
    ({"every": "2h"}, "--every"),
    ({"load": "15/s", "queue": 0}, "--queue 0"),
    ({"load": "15/s", "slo": "p42 < 1s"}, "--slo"),
    ({"slo": "p95 < 100ms"}, "--slo"),
    ({"codec": "none,file"}, "--codec file"),
    ({"allocator": "jemalloc"}, "'jemalloc'"),
    ({"allocator": "edge=default,server=mine"}, "'server=mine'"),
    ({"allocator": "middle1=default"}, "middle1"),
    ({"allocator": "edge=default", "edge_only": True}, "--allocator default"),
    ({"allocator": "default", "search": True}, "--allocator"),
    ({"prefetch": [0, 2]}, "--prefetch 0,2"),
    ({**CAMERA, "prefetch": 65}, "--prefetch 65"),
    ({**CAMERA, "input": "float32"}, "--input float32"),
    ({**CAMERA, "search": True}, "--search"),
    ({**CAMERA, "testbed": "simulated"}, "--testbed simulated"),
    ({**CAMERA, "codec": "none,file", "hosts": 3}, "--codec file"),
    ({"testbed": "lab.yaml", "hosts": 3}, "--hosts"),
    ({"trials": 0}, "--trials 0"),
    ({"batch_size": "0"}, "--batch-size"),
    ({"edge_cpu": 2.0}, "--edge-cpu 2.0"),
    ({"testbed": "lab.yaml", "threads": 2}, "--threads"),
    ({"testbed": "lab.yaml", "edge_cpu": 0.5}, "--edge-cpu"),
    ({"device": "gpu"}, "--device 'gpu'"),
    ({"device": "server=cuda:0,cuda:1"}, "--device"),
    ({"device": "middle1=cuda:0"}, "'middle1'"),
    ({"device": "edge=cuda:0,edge=cpu"}, "twice"),
    ({"testbed": "lab.yaml", "device": "cuda:0"}, "--device"),
    ({"testbed": "simulated", "device": "cuda:0"}, "--device cuda:0"),
    ({"sample": "1ms"}, "--sample"),
    ({"sample": "200"}, "'200'"),
    ({"until": "0%"}, "--until"),
    ({"until": "200%"}, "--until"),
    ({"until": "5"}, "'5'"),
    ({"until": "sure"}, "'sure'"),
    ({"budget": "1parsec"}, "'1parsec'"),
    ({"budget": "20"}, "'20'"),
    ({"budget": "0min"}, "--budget"),
    ({"budget": "999999h"}, "--budget"),
    ({"granularity": "layer"}, "--granularity 'layer'"),
    ({"congestion": "vegas"}, "--congestion 'vegas'"),
    ({"in_flight": "auto,many"}, "--in-flight many"),
    ({"in_flight": "65"}, "--in-flight 65"),
    ({"in_flight": 0}, "--in-flight 0"),
    ({"requests": 1}, "--requests 1"),
    ({"requests": 10_001}, "--requests 10001"),
    ({"requests": "many"}, "--requests 'many'"),
    ({"phase": "10"}, "--phase '10'"),
    ({"phase": "10ms"}, "--phase '10ms'"),
    ({"phase": "0.01s"}, "--phase 0.01"),
    ({"phase": "1h"}, "--phase 3600"),
    ({"requests": 662, "phase": "10s"}, "--requests and --phase"),
    ({"initial_window": 0}, "--initial-window 0"),
    ({"backend": "tcp:"}, "'tcp:'"),
    ({"backend": "tcp:a/b"}, "'tcp:a/b'"),
    ({"backend": "udp:a"}, "'udp:a'"),
    ({"backend": "tcp,tcp:1"}, "'tcp:1'"),
    ({"backend": "rpc:4"}, "'rpc:4'"),
    ({"secure": "ssl"}, "--secure: 'ssl'"),
    ({"secure": "tls"}, "rpc"),
    ({"backend": "rpc", "secure": "tls"}, "rpc"),
    ({"backend": "rpc:tls"}, "'rpc:tls'"),
    ({"codec": "gzip"}, "--codec 'gzip'"),
    ({"codec": "none,int8+fp16"}, "'int8+fp16'"),
    ({"codec_back": "int8"}, "--codec-back: 'int8'"),
    ({"codec_back": "zstd+lz4"}, "--codec-back: 'zstd+lz4'"),
    ({"codec_back": "zstd:99"}, "--codec-back: 'zstd:99'"),
    ({"codec": "none/zstd", "codec_back": "lz4"}, "none/zstd:3"),
    ({"codec_back": "zstd", "search": True}, "--search"),
    ({"codec": "none/zstd", "testbed": "simulated"}, "--testbed simulated"),
    ({"engine": "tensorrt"}, "--engine 'tensorrt'"),
    ({"engine": "eager,edge=onnx,edge="}, "'edge='"),
    ({"engine": "onnx:int8", "testbed": "simulated"}, "--engine onnx:int8"),
    ({"engine": "eager,middle1=onnx"}, "--engine middle1=onnx"),
    ({"engine": "server=onnx", "server_only": True}, "--server-only has one host"),
    ({"testbed": "lab.yaml", "initial_window": 10}, "--initial-window"),
    ({"testbed": "lab.yaml", "slow_start_after_idle": True}, "--slow-start-after-idle"),
    ({"edge_only": True, "server_only": True}, "--server-only"),
    ({"edge_only": True, "netem": "wifi"}, "--netem"),
    ({"edge_only": True, "backend": "rpc"}, "--backend"),
    ({"server_only": True, "codec": "int8"}, "--codec"),
    ({"server_only": True, "testbed": "simulated"}, "--testbed local"),
    ({"netem": "10mbit-"}, "10mbit-"),
    ({"netem": "wifi+nonsense"}, "nonsense"),
]


def test_bad_options_are_one_line_naming_them(snapshot: object) -> None:
    said = {}
    for fields, named in BAD_OPTIONS:
        given = {name: value for name, value in ({"model": "m"} | fields).items() if value is not None}
        line = refusal(UserError, make_sweep, given)
        assert named in line
        said[" ".join(f"{name}={value}" for name, value in fields.items())] = line
    assert said == snapshot


def test_a_codec_whose_package_or_file_is_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, snapshot: object
) -> None:
    line = refusal(UserError, make_sweep, {"model": "m", "codec": f"{tmp_path}/b.py:Own"})
    assert line.replace(str(tmp_path), "FOLDER") == snapshot
    monkeypatch.setattr("pareto.remote.codecs.registry.find_spec", lambda name: None)
    line = refusal(UserError, make_sweep, {"model": "m", "codec": "int8+lz4"})
    assert "needs the package lz4" in line


@pytest.mark.parametrize("testbed", ["local", "simulated"])  # there they change nothing
def test_allocators_are_named_as_engines_are(testbed: str) -> None:
    for text, named in {
        "default": ("default",), "tuned,default": ("tuned", "default"),
        "edge=default,server=tuned": ("edge=default",),
        "tuned,server=default,edge=default": ("tuned", "edge=default+server=default"),
    }.items():  # fmt: skip
        assert make_sweep({"model": "m", "allocator": text, "testbed": testbed}).allocators == named
    assert make_sweep({"model": "m", "engine": "middle1=onnx", "hosts": 3}).engines == ("middle1=onnx",)


HERE = Path.cwd()
SHORT = "model: alexnet\ntrials: 10\nuntil: 5%\nbudget: 20min\nphase: 10s\n"
ASKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a file": ("model: [alexnet, vgg16]\ntrials: 5", {}, {"models": ("alexnet", "vgg16"), "trials": 5}),
    "what is typed overrides it": ("model: alexnet\ntrials: 5", {"trials": 2}, {"trials": 2}),
    "a quick file": (SHORT, {"quick": True}, {"trials": 1, "until": None, "budget": None, "phase": None}),
    "a quick file with trials": (SHORT, {"quick": True, "trials": 3}, {"trials": 3}),
    "quick": ("", {"quick": True}, {"trials": 1}),
    "quick with trials": ("", {"quick": True, "trials": 4}, {"trials": 4}),
    "its phase": ("phase: 10s", {}, {"requests": None, "phase": 10}),
    "requests instead": ("phase: 10s", {"requests": 662}, {"requests": 662, "phase": None}),
    "another phase": ("phase: 10s", {"phase": "2min"}, {"requests": None, "phase": 120}),
    # As many rounds as an interval needs.
    "until": ("", {"until": "5%"}, {"rounds": LEAST_VALUES}),
    "until, quick": ("", {"until": "5%", "quick": True}, {"rounds": ROUNDS}),
    "until, with trials": ("", {"until": "5%", "trials": 2}, {"rounds": 2}),
    "until or a budget": ("", {"until": "5%", "budget": "1h"}, {"rounds": 6}),
    "a budget": ("", {"budget": "1h"}, {"rounds": 6}),
    "both in a file": ("until: 5%\nbudget: 20min", {}, {"rounds": 6, "until": 0.05, "budget": 1200}),
    "points": ("points: [0, features.3, 4-9]", {}, {"points": ("0", "features.3", "4-9")}),
    "a point": ("points: 7", {}, {"points": ("7",)}),
    "its images": ("dataset: folder", {"data_path": HERE / "a"}, {"data_path": HERE / "a"}),
    # Either host decodes unless codecs are named.
    "a camera": ("", CAMERA, {"codecs": ("none", "file")}),
    "a camera and a codec": ("", {**CAMERA, "codec": "int8"}, {"codecs": ("int8",)}),
    # What its text says, not what YAML 1.1 makes of it: octal and sexagesimal numbers, dates, underscores.
    "an octal number": ("points: 010", {}, {"points": ("010",)}),
    "a date": ("points: 2026-01-02", {}, {"points": ("2026-01-02",)}),
    "underscores": ("model: [no, 1_0]", {}, {"models": ("no", "1_0")}),
    "off": ("sample: off", {}, {"sample": None}),
    "on": ("search: on", {}, {"search": True}),
    "No": ("fold: No", {}, {"fold": False}),
    "a seed that begins with 0": ("seed: 010", {}, {"seed": 10}),
    "a size that begins with 0": ("batch_size: [1, 08]", {}, {"batch_sizes": (1, 8)}),
    "nothing": ("until: ~", {}, {"until": None}),
    "no digit before the point": ("edge_cpu: .5", {}, {"edge_cpu": 0.5}),
}


@pytest.mark.parametrize(("text", "typed", "made"), ASKED.values(), ids=ASKED)
def test_a_file_and_the_command_line_ask_for(tmp_path: Path, text: str, typed: Any, made: Any) -> None:
    (tmp_path / "sweep.yaml").write_text(text if "model" in text else f"model: alexnet\n{text}\n")
    wanted = requested_sweep(tmp_path / "sweep.yaml", typed)
    assert {name: getattr(wanted, name) for name in made} == made
    if not text:
        assert requested_sweep(None, {"model": "alexnet", **typed}) == wanted


BAD_FILES = {
    "another key": ("modle: alexnet\n", "'modle'"), "a list": ("- alexnet\n", ""),
    "no YAML": ("model: [\n", ""), "another value": ("model: alexnet\ntrials: many\n", "trials 'many'"),
    "twice": ("model: alexnet\nnetem: wifi\nmodel: resnet18\n", "key 'model'"),
    "Latin-1": ("model: alexnet # caf\xe9\n", "UTF-8"),
    "a mapping": ("model: alexnet\nengine: {edge: onnx}\n", "engine"), "too deep": ("[" * 1000, "nested"),
}  # fmt: skip


def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, snapshot: object) -> None:
    file, said = tmp_path / "sweep.yaml", {}
    for name, (text, named) in BAD_FILES.items():
        file.write_text(text, encoding="latin-1")
        line = refusal(UserError, requested_sweep, file, {"model": "alexnet"} if "modle" in text else {})
        assert named in line and str(file) in line
        said[name] = line
    assert said == snapshot


BAD_VALUES = ["budget: 1:30", "budget: 90", f"seed: {'9' * 5000}", "trials: !!int abc", "seed: 0x10"]
BAD_VALUES += ["trials: 2026-01-02", "{1: 2}: 3", "seed: .inf", "trials: !!binary abc", "points: null"]


@pytest.mark.parametrize("text", [*BAD_VALUES, "points: {a: 1}", "dataset: folder"])
def test_a_value_that_an_option_does_not_take_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"model: alexnet\n{text}\n")
    line = refusal(UserError, requested_sweep, file, {})
    assert ("--data-path" if "dataset" in text else str(file)) in line
    assert ("points" in line) == ("points" in text)
    assert len(line) <= 400
    assert "none.yaml" in refusal(UserError, requested_sweep, tmp_path / "none.yaml", {})


def test_the_papers_sweep_is_found_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = requested_sweep(Path("sweeps/paper.yaml"), {})
    assert (len(wanted.models), set(wanted.netems), wanted.trials) == (6, {"none", "200ms-5mbit"}, 5)


# Its networks


def names(networks: Any) -> list[list[str]]:
    return [[it.name for it in network] for network in networks]


def test_each_link_has_a_profile(snapshot: object) -> None:
    assert names([profiles("wifi+lte", 2), profiles("wifi", 3)]) == [["wifi", "lte"], ["wifi"] * 3]
    lines = [refusal(UserError, profiles, "wifi+lte", links) for links in (3, 1)]
    assert all("--netem wifi+lte" in line for line in lines)
    assert lines == snapshot


def test_a_check_makes_as_many_hosts_as_the_profiles_need() -> None:
    wanted = make_sweep({"model": "m", "netem": "wifi,wifi+lte"})
    assert names(networks_to_check(wanted)) == [["wifi", "wifi"], ["wifi", "lte"]]
    few = make_sweep({"model": "m", "netem": "wifi+lte", "hosts": 2})
    assert "--netem wifi+lte" in refusal(UserError, networks_to_check, few)


def test_networks_are_told_apart_by_their_profiles_in_order(tmp_path: Path, snapshot: object) -> None:
    networks = networks_of(make_sweep({"model": "m", "netem": "wifi,wifi+lte,lte+lte", "hosts": 3}), 2)
    assert [*networks] == ["wifi", "wifi+lte", "lte"]
    assert names(networks.values()) == [["wifi", "wifi"], ["wifi", "lte"], ["lte", "lte"]]
    file = tmp_path / "wifi.yaml"
    file.write_text("edge_to_server: {delay: 9ms}\n")
    line = refusal(UserError, networks_of, make_sweep({"model": "m", "netem": f"wifi,{file}"}), 1)
    assert str(file) in line
    assert line == snapshot


def test_a_single_host_has_a_network_of_its_own_that_is_none() -> None:
    wanted = make_sweep({"model": "m", "edge_only": True, "batch_size": "1,8"})
    assert (links_of(wanted), networks_of(wanted, 0)) == (0, {"edge-only": ()})
    assert wanted.backends == ("tcp",), "all are the same where nothing crosses"
    assert make_sweep(wanted.model_dump()) == wanted, "as when it is resumed"


# The command that asks for it again


def test_every_field_of_a_sweep_is_an_option_and_the_other_way_round() -> None:
    plain = Sweep.model_validate({"model": "any"})
    assert set(Sweep.model_fields) == set(FIELDS)
    for name, option in OPTIONS.items():
        assert Sweep.model_fields[option.field].alias == name
        assert option.default is REQUIRED or getattr(plain, option.field) == option.default
    assert command(plain.model_dump(mode="json")) == "./pareto.sh --model any"


def test_what_help_says_of_defaults_that_stand_elsewhere() -> None:
    plain = make_sweep({"model": "any"})
    assert plain.link_tolerance == Tolerance()
    assert OPTIONS["initial_window"].shown == str(TcpSettings.initial_window)
    assert f"up to {plain.rounds} rounds" in OPTIONS["trials"].help


@pytest.mark.parametrize(
    "wanted",
    [
        {"model": "resnet18,alexnet", "netem": "wifi+lte,80ms-20mbit", "backend": "tcp:a,tcp:b", "hosts": 3},
        {"model": "nets/my net.py:build", "points": "0,features.7,9-12", "only": True, "live_tensors": 4},
        {"model": "a", "granularity": "op", "fold": False, "input": "uint8", "edge_cpu": 0.25, "threads": 2},
        {"model": "a", "dataset": "folder", "data_path": "/a b/c", "images": 3, "slowdown": 2.5},
        {"model": "a", "trials": "4", "batch_size": "1,8", "in_flight": "auto,4", "congestion": "bbr"},
        {"model": "a", "initial_window": 10, "slow_start_after_idle": True, "weights": "w.pth", "seed": 9},
        {"model": "a", "sample": "off", "tolerance": "7%", "rtt_floor": "0.3ms"},
        {"model": "a", "sample": 0.0123, "tolerance": 0.123, "rtt_floor": 1e-5, "shape_at": "edge"},
        {"model": "a", "quick": True, "trials": 1},
        {"model": "a", "quick": True, "trials": 3},
        {"model": "a", "until": "2.5%", "trials": 6},
        {"model": "a", "budget": "20min", "trials": 3},
        {"model": "a", "budget": "95s", "trials": 1, "until": "10%", "quick": True},
    ],
)
def test_command_asks_for_the_same_sweep_again(wanted: dict[str, Any]) -> None:
    sweep = make_sweep(wanted)
    words = shlex.split(command(sweep.model_dump(mode="json")))
    assert words[0] == "./pareto.sh"
    given = commands().commands["run"].make_context("run", words[1:]).params
    own = {"out", "dry_run", "figures"}
    options = {name: value for name, value in given.items() if value is not None and name not in own}
    assert requested_sweep(None, options) == sweep


# Which names can be a model's, without torch


@pytest.mark.parametrize("name", sorted({*registry.names(), *yolo.NAMES}))
def test_each_model_may_be_one(name: str) -> None:
    assert may_be_model(name)
    assert may_be_model(name.upper().replace("_", "-"))


def test_what_no_model_is_called_and_that_a_file_of_ones_own_is_there(tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    known = {f"{tmp_path}/net.py": True, f"{tmp_path}/net.py:build": True}
    known[f"{tmp_path}/other.py:build"] = False
    known |= dict.fromkeys(("resnet19", "mobilenet", "", "res net 18 x", "no/such/file.py:build"), False)
    assert {name: may_be_model(name) for name in known} == known
    code = "import sys; from pareto.driver.job import may_be_model; assert may_be_model('alexnet');"
    subprocess.run([sys.executable, "-c", f"{code}assert 'torch' not in sys.modules"], check=True)
