"""What a sweep may ask for, by options and by a file, and how a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep, requested_sweep
from pareto.sweep.options import ROUNDS

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
]


@pytest.mark.parametrize(
    ("fields", "named"),
    BAD_OPTIONS,
    ids=[" ".join(f"{name}={value}" for name, value in fields.items()) for fields, _ in BAD_OPTIONS],
)
def test_bad_options_are_one_line_that_names_them(
    fields: dict[str, Any], named: str, snapshot: SnapshotAssertion
) -> None:
    given = {"model": "m"} | fields
    line = refused(make_sweep, {name: value for name, value in given.items() if value is not None})
    assert named in line
    assert line == snapshot


def refused(make: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(UserError) as fault:
        make(*arguments)
    assert "\n" not in str(fault.value)
    return str(fault.value)


@pytest.mark.parametrize(
    ("text", "allocators"),
    [
        ("default", ("default",)),
        ("tuned,default", ("tuned", "default")),
        ("edge=default,server=tuned", ("edge=default",)),
        ("tuned,server=default,edge=default", ("tuned", "edge=default+server=default")),
    ],
)
def test_allocators_are_named_as_engines_are(text: str, allocators: tuple[str, ...]) -> None:
    for testbed in ("local", "simulated"):  # there they change nothing
        assert make_sweep({"model": "m", "allocator": text, "testbed": testbed}).allocators == allocators


def test_unknown_profile_is_refused_before_anything_starts() -> None:
    with pytest.raises(UserError):
        make_sweep({"model": "m", "netem": "10mbit-"})


def test_a_file_gives_options_and_the_command_line_overrides_them(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: [alexnet, vgg16]\nnetem: none\ntrials: 5\n")
    wanted = requested_sweep(file, {"trials": 2})
    assert (wanted.models, wanted.trials) == (("alexnet", "vgg16"), 2)


def test_quick_shortens_a_sweep_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\ntrials: 10\nuntil: 5%\nbudget: 20min\nphase: 10s\n")
    quick = requested_sweep(file, {"quick": True})
    assert (quick.trials, quick.until, quick.budget, quick.phase) == (1, None, None, None)
    assert requested_sweep(file, {"quick": True, "trials": 3}).trials == 3


def test_how_long_a_phase_is_replaces_what_a_file_says_of_it_either_way(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\nphase: 10s\n")
    for typed, lengths in (
        ({}, (None, 10)),
        ({"requests": 662}, (662, None)),
        ({"phase": "2min"}, (None, 120)),
    ):
        wanted = requested_sweep(file, typed)
        assert (wanted.requests, wanted.phase) == lengths


def test_quick_means_one_round_unless_told_otherwise() -> None:
    assert requested_sweep(None, {"model": "m", "quick": True}).trials == 1
    assert requested_sweep(None, {"model": "m", "quick": True, "trials": 4}).trials == 4


def test_until_begins_with_the_rounds_that_an_interval_needs(tmp_path: Path) -> None:
    assert ROUNDS == LEAST_VALUES
    for options, rounds in (({}, 6), ({"quick": True}, 6), ({"trials": 2}, 2), ({"budget": "1h"}, 6)):
        assert requested_sweep(None, {"model": "m", "until": "5%", **options}).rounds == rounds
    assert requested_sweep(None, {"model": "m", "budget": "1h"}).rounds == 6
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\nuntil: 5%\nbudget: 20min\n")
    wanted = requested_sweep(file, {})
    assert (wanted.rounds, wanted.until, wanted.budget) == (6, 0.05, 1200)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("modle: alexnet\n", "'modle'"),
        ("- alexnet\n", ""),
        ("model: [\n", ""),
        ("model: alexnet\ntrials: many\n", "trials 'many'"),
        ("model: alexnet\nnetem: wifi\nmodel: resnet18\n", "key 'model'"),
        ("model: alexnet # caf\xe9\n", "UTF-8"),
        ("model: alexnet\nengine: {edge: onnx}\n", "engine"),
        ("[" * 1000, "nested"),
    ],
    ids=["another key", "a list", "no YAML", "another value", "twice", "Latin-1", "a mapping", "too deep"],
)
def test_a_bad_file_is_named_with_its_fault(
    tmp_path: Path, text: str, named: str, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text, encoding="latin-1")
    line = refused(requested_sweep, file, {"model": "alexnet"} if "modle" in text else {})
    assert named in line
    assert str(file) in line
    assert line == snapshot


def test_the_papers_sweep_is_valid_and_found_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = requested_sweep(Path("sweeps/paper.yaml"), {})
    assert len(wanted.models) == 6
    assert set(wanted.netems) == {"none", "200ms-5mbit"}
    assert wanted.trials == 5


def test_points_may_be_numbers_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\npoints: [0, features.3, 4-9]\n")
    assert requested_sweep(file, {}).points == ("0", "features.3", "4-9")
    file.write_text("model: alexnet\npoints: 7\n")
    assert requested_sweep(file, {}).points == ("7",)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("points: 010", "points", ("010",)),
        ("points: 2026-01-02", "points", ("2026-01-02",)),
        ("model: [no, 1_0]", "models", ("no", "1_0")),
        ("sample: off", "sample", None),
        ("search: on", "search", True),
        ("fold: No", "fold", False),
        ("seed: 010", "seed", 10),
        ("batch_size: [1, 08]", "batch_sizes", (1, 8)),
        ("until: ~", "until", None),
        ("edge_cpu: .5", "edge_cpu", 0.5),
    ],
)
def test_a_file_says_what_its_text_says(tmp_path: Path, text: str, field: str, value: object) -> None:
    """Not what YAML 1.1 makes of it: octal and sexagesimal numbers, dates, underscores."""
    file = tmp_path / "sweep.yaml"
    file.write_text(f"{text}\n" if "model" in text else f"model: alexnet\n{text}\n")
    assert getattr(requested_sweep(file, {}), field) == value


@pytest.mark.parametrize(
    "text",
    [
        *("budget: 1:30", "budget: 90", f"seed: {'9' * 5000}", "trials: !!int abc", "seed: 0x10"),
        *("trials: 2026-01-02", "{1: 2}: 3", "seed: .inf", "trials: !!binary abc"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"model: alexnet\n{text}\n")
    line = refused(requested_sweep, file, {})
    assert str(file) in line
    assert len(line) <= 400


@pytest.mark.parametrize("points", ["null", "{a: 1}"])
def test_points_that_are_no_list_are_refused(tmp_path: Path, points: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"model: alexnet\npoints: {points}\n")
    assert "points" in refused(requested_sweep, file, {})


def test_a_file_may_leave_to_the_command_line_where_the_images_are(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\ndataset: folder\n")
    assert requested_sweep(file, {"data_path": tmp_path}).data_path == tmp_path
    with pytest.raises(UserError, match="--data-path"):
        requested_sweep(file, {})


def test_from_jpeg_either_host_decodes_unless_codecs_are_named() -> None:
    given = {"model": "alexnet", **CAMERA}
    assert requested_sweep(None, given).codecs == ("none", "file")
    assert requested_sweep(None, {**given, "codec": "int8"}).codecs == ("int8",)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert "none.yaml" in refused(requested_sweep, tmp_path / "none.yaml", {})


def test_an_engine_may_be_a_middle_hosts_where_there_is_one() -> None:
    assert make_sweep({"model": "m", "engine": "middle1=onnx", "hosts": 3}).engines == ("middle1=onnx",)


def test_a_codec_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pareto.remote.codecs.registry.find_spec", lambda name: None)
    assert "needs the package lz4" in refused(make_sweep, {"model": "m", "codec": "int8+lz4"})


def test_a_users_own_codec_whose_file_is_not_there_is_one_line(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    line = refused(make_sweep, {"model": "m", "codec": f"{tmp_path}/b.py:Own"})
    assert line.replace(str(tmp_path), "FOLDER") == snapshot
