"""What a sweep may ask for, and how a wrong one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.statistics.samples import LEAST_VALUES
from pareto.errors import UserError
from pareto.hosts.host import TcpSettings
from pareto.manifest import resumed_sweep
from pareto.sweep import (
    Sweep,
    links_of,
    make_sweep,
    networks_of,
    networks_to_check,
    profiles,
    requested_sweep,
)
from tests.unit.own_codecs import simple, written


def test_lists_take_commas_and_defaults_are_the_main_job() -> None:
    wanted = make_sweep({"model": "mobilenetv2, resnet18", "netem": "200ms-5mbit,none", "points": "0,7"})
    assert wanted.models == ("mobilenetv2", "resnet18")
    assert wanted.netems == ("200ms-5mbit", "none")
    assert wanted.points == ("0", "7")
    assert wanted.backends == ("tcp", "rpc")
    assert wanted.trials == 6


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
    ({"initial_window": 0}, "--initial-window 0"),
    ({"backend": "tcp:"}, "'tcp:'"),
    ({"backend": "tcp:a/b"}, "'tcp:a/b'"),
    ({"backend": "udp:a"}, "'udp:a'"),
    ({"backend": "tcp,tcp:1"}, "'tcp:1'"),
    ({"backend": "rpc:4"}, "'rpc:4'"),
    ({"secure": "ssl"}, "--secure: 'ssl'"),
    ({"secure": "tls"}, "rpc"),
    ({"backend": "rpc", "secure": "tls,aes-gcm"}, "rpc"),
    ({"backend": "tcp:tls", "secure": "none,aes-gcm"}, "tcp:tls"),
    ({"backend": "rpc:tls"}, "'rpc:tls'"),
    ({"codec": "gzip"}, "--codec 'gzip'"),
    ({"codec": "none,int8+fp16"}, "'int8+fp16'"),
    ({"engine": "tensorrt"}, "--engine 'tensorrt'"),
    ({"engine": "eager,edge=onnx,edge="}, "'edge='"),
    ({"engine": "onnx", "search": True}, "--search"),
    ({"engine": "onnx", "testbed": "simulated"}, "--testbed simulated"),
    ({"engine": "eager,middle1=onnx"}, "--engine middle1=onnx"),
    ({"testbed": "lab.yaml", "initial_window": 10}, "--initial-window"),
    ({"testbed": "lab.yaml", "slow_start_after_idle": True}, "--slow-start-after-idle"),
    ({"edge_only": True, "server_only": True}, "--server-only"),
    ({"edge_only": True, "netem": "wifi"}, "--netem"),
    ({"edge_only": True, "backend": "rpc"}, "--backend"),
    ({"server_only": True, "codec": "int8"}, "--codec"),
    ({"server_only": True, "testbed": "simulated"}, "--testbed local"),
    ({"testbed": "served:192.0.2.1"}, "--token-file"),
    ({"token_file": "token"}, "--token-file"),
    ({"testbed": "served:gpu", "token_file": "token"}, "'gpu'"),
    ({"testbed": "served:192.0.2.1", "token_file": "token", "netem": "none,wifi"}, "--netem wifi"),
    ({"testbed": "served:192.0.2.1", "token_file": "token", "hosts": 3}, "--hosts"),
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
    with pytest.raises(UserError) as refused:
        make_sweep({name: value for name, value in given.items() if value is not None})
    line = str(refused.value)
    assert named in line
    assert "\n" not in line
    assert line == snapshot


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
    file.write_text("model: alexnet\ntrials: 10\nuntil: 5%\nbudget: 20min\n")
    quick = requested_sweep(file, {"quick": True})
    assert (quick.trials, quick.until, quick.budget) == (1, None, None)
    assert requested_sweep(file, {"quick": True, "trials": 3}).trials == 3


def test_quick_means_one_round_unless_told_otherwise() -> None:
    assert requested_sweep(None, {"model": "m", "quick": True}).trials == 1
    assert requested_sweep(None, {"model": "m", "quick": True, "trials": 4}).trials == 4


def test_when_to_stop_is_a_share_and_a_time() -> None:
    wanted = make_sweep({"model": "m", "until": "5%", "budget": "20min"})
    assert (wanted.until, wanted.budget) == (0.05, 1200)
    assert make_sweep(wanted.model_dump(mode="json")) == wanted
    assert [make_sweep({"model": "m", "budget": text}).budget for text in ("90s", "1.5h")] == [90, 5400]
    assert (make_sweep({"model": "m"}).until, make_sweep({"model": "m"}).budget) == (None, None)


def test_until_begins_with_the_rounds_that_an_interval_needs(tmp_path: Path) -> None:
    assert Sweep.model_fields["trials"].default == LEAST_VALUES
    for options, trials in (({}, 6), ({"quick": True}, 6), ({"trials": 2}, 2), ({"budget": "1h"}, 6)):
        assert requested_sweep(None, {"model": "m", "until": "5%", **options}).trials == trials
    assert requested_sweep(None, {"model": "m", "budget": "1h"}).trials == 6
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\nuntil: 5%\nbudget: 20min\n")
    wanted = requested_sweep(file, {})
    assert (wanted.trials, wanted.until, wanted.budget) == (6, 0.05, 1200)


@pytest.mark.parametrize(
    ("options", "backends"),
    [
        ({"secure": "none"}, ("tcp", "rpc")),
        ({"secure": "none,tls"}, ("tcp", "tcp:tls", "rpc")),
        ({"backend": "tcp", "secure": "tls"}, ("tcp:tls",)),
        (
            {"backend": "tcp:4:a,rpc:basic,tcp", "secure": ["none", "tls", "aes-gcm"]},
            ("tcp:4:a", "tcp:4:tls:a", "tcp:4:aes-gcm:a", "rpc:basic", "tcp", "tcp:tls", "tcp:aes-gcm"),
        ),
        ({"backend": "tcp,tcp:tls", "secure": "none,tls"}, ("tcp", "tcp:tls")),
    ],
)
def test_secure_is_written_out_as_backends(
    tmp_path: Path, options: dict[str, Any], backends: tuple[str, ...]
) -> None:
    """A run records the backends, and goes on with the same options, or without them."""
    wanted = make_sweep({"model": "alexnet", **options})
    assert wanted.backends == backends
    assert make_sweep({"model": "alexnet", "backend": ",".join(backends)}) == wanted
    (tmp_path / "manifest.json").write_text(json.dumps({"sweep": wanted.model_dump(mode="json")}))
    assert resumed_sweep(tmp_path, {}) == resumed_sweep(tmp_path, options) == wanted
    with pytest.raises(UserError, match="backend"):
        resumed_sweep(tmp_path, {"backend": "tcp", "secure": "aes-gcm"})


def test_a_run_may_go_on_for_longer_than_it_was_to(tmp_path: Path) -> None:
    begun = make_sweep({"model": "alexnet", "until": "5%"})
    (tmp_path / "manifest.json").write_text(json.dumps({"sweep": begun.model_dump(mode="json")}))
    assert resumed_sweep(tmp_path, {}) == begun
    wanted = resumed_sweep(tmp_path, {"until": "2%", "budget": "1h"})
    assert wanted == begun.model_copy(update={"until": 0.02, "budget": 3600})
    assert wanted.trials == begun.trials == 6


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("modle: alexnet\n", "'modle'"),
        ("- alexnet\n", ""),
        ("model: [\n", ""),
        ("model: alexnet\ntrials: many\n", "trials 'many'"),
    ],
    ids=["another key", "a list", "no YAML", "another value"],
)
def test_a_bad_file_is_named_with_its_fault(
    tmp_path: Path, text: str, named: str, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        requested_sweep(file, {"model": "alexnet"} if "modle" in text else {})
    line = str(refused.value)
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


def test_each_link_has_a_profile(snapshot: SnapshotAssertion) -> None:
    assert [it.name for it in profiles("wifi+lte", 2)] == ["wifi", "lte"]
    assert [it.name for it in profiles("wifi", 3)] == ["wifi"] * 3
    for links in (3, 1):
        with pytest.raises(UserError) as refused:
            profiles("wifi+lte", links)
        assert "--netem wifi+lte" in str(refused.value)
        assert str(refused.value) == snapshot
    with pytest.raises(UserError):
        make_sweep({"model": "m", "netem": "wifi+nonsense"})


def test_points_may_be_numbers_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("model: alexnet\npoints: [0, features.3, 4-9]\n")
    assert requested_sweep(file, {}).points == ("0", "features.3", "4-9")
    file.write_text("model: alexnet\npoints: 7\n")
    assert requested_sweep(file, {}).points == ("7",)


def test_a_check_makes_as_many_hosts_as_the_profiles_need() -> None:
    wanted = make_sweep({"model": "m", "netem": "wifi,wifi+lte"})
    assert [[it.name for it in network] for network in networks_to_check(wanted)] == [
        ["wifi", "wifi"],
        ["wifi", "lte"],
    ]
    with pytest.raises(UserError, match=r"--netem wifi\+lte"):
        networks_to_check(make_sweep({"model": "m", "netem": "wifi+lte", "hosts": 2}))


@pytest.mark.parametrize("points", ["3.5", "null", "{a: 1}"])
def test_points_that_are_no_list_are_refused(tmp_path: Path, points: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"model: alexnet\npoints: {points}\n")
    with pytest.raises(UserError, match="points"):
        requested_sweep(file, {})


def test_what_is_asked_for_twice_is_measured_once() -> None:
    wanted = make_sweep({"model": "m", "backend": "tcp,tcp", "batch_size": "1,8,1", "netem": "wifi,wifi"})
    assert (wanted.backends, wanted.batch_sizes, wanted.netems) == (("tcp",), (1, 8), ("wifi",))


def test_requests_in_flight_are_numbers_however_they_are_written() -> None:
    assert make_sweep({"model": "m", "in_flight": "auto,1,01,8"}).depths == ("auto", "1", "8")
    assert make_sweep({"model": "m", "in_flight": [4, "auto"]}).depths == ("4", "auto")
    assert make_sweep({"model": "m"}).depths == ("auto",)


def test_a_backend_under_several_names_is_one_transport() -> None:
    wanted = make_sweep({"model": "m", "backend": "tcp:a,rpc,tcp:b"})
    assert wanted.backends == ("tcp:a", "rpc", "tcp:b")
    assert wanted.transports == ("tcp", "rpc")


def test_a_variant_is_a_transport_of_its_own() -> None:
    wanted = make_sweep({"model": "m", "backend": "tcp,tcp:4:a,rpc:basic,tcp:4:b,rpc"})
    assert wanted.transports == ("tcp", "tcp:4", "rpc:basic", "rpc")


def test_of_tcps_settings_what_is_not_asked_is_as_ever() -> None:
    assert make_sweep({"model": "m"}).tcp == TcpSettings()
    wanted = make_sweep(
        {"model": "m", "congestion": "bbr", "initial_window": 10, "slow_start_after_idle": True}
    )
    assert wanted.tcp == TcpSettings("bbr", 10, slow_start_after_idle=True)
    assert make_sweep({"model": "m", "testbed": "lab.yaml", "congestion": "reno"}).tcp == TcpSettings("reno")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("congestion", "cubic"),
        ("initial_window", 10),
        ("slow_start_after_idle", True),
        ("backend", "tcp:a,tcp:c"),
    ],
)
def test_a_run_goes_on_with_the_tcp_and_the_names_it_began_with(
    tmp_path: Path, option: str, value: Any, snapshot: SnapshotAssertion
) -> None:
    begun = make_sweep({"model": "alexnet", "congestion": "bbr", "backend": "tcp:a,tcp:b"})
    (tmp_path / "manifest.json").write_text(json.dumps({"sweep": begun.model_dump(mode="json")}))
    assert resumed_sweep(tmp_path, {"congestion": "bbr"}) == begun
    with pytest.raises(UserError) as refused:
        resumed_sweep(tmp_path, {option: value})
    line = str(refused.value)
    assert option in line
    assert str(value) in line
    assert line == snapshot


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


def test_the_home_of_nobody(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data-path"):
        make_sweep({"model": "m", "dataset": "folder", "data_path": "~nobody-of-this-name/images"})


@pytest.mark.parametrize(
    ("options", "named"),
    [({}, "--model"), ({"model": "gone.py:build"}, "gone.py"), ({"model": "nonexistent"}, "nonexistent")],
    ids=["not given", "gone", "unknown"],
)
def test_a_run_that_cannot_go_on_is_one_line(
    tmp_path: Path, options: dict[str, Any], named: str, snapshot: SnapshotAssertion
) -> None:
    model = tmp_path / "gone.py:build"
    begun = make_sweep({"model": str(model), "dataset": "folder", "data_path": tmp_path})
    recorded = {"sweep": begun.model_dump(mode="json")}
    (tmp_path / "manifest.json").write_text(json.dumps(recorded))
    with pytest.raises(UserError) as refused:
        resumed_sweep(tmp_path, {**options, "data_path": tmp_path})
    line = str(refused.value).replace(str(Path.cwd()), "HERE")
    assert named in line
    assert "\n" not in line
    assert line.partition(": did you mean")[0] == snapshot  # what is like it depends on other tests' models


def test_images_may_be_named_again_when_a_run_goes_on(tmp_path: Path) -> None:
    begun = make_sweep({"model": "alexnet", "dataset": "folder", "data_path": tmp_path})
    (tmp_path / "manifest.json").write_text(json.dumps({"sweep": begun.model_dump(mode="json")}))
    assert resumed_sweep(tmp_path, {"data_path": tmp_path}) == begun
    with pytest.raises(UserError, match=r"dataset .* folder.* cifar10"):
        resumed_sweep(tmp_path, {"dataset": "cifar10", "data_path": tmp_path})


def test_what_makes_a_data_set_is_named_again_when_a_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text("")
    dataset = f"{tmp_path / 'data.py'}:make"
    begun = make_sweep({"model": "alexnet", "dataset": dataset})
    (tmp_path / "manifest.json").write_text(json.dumps({"sweep": begun.model_dump(mode="json")}))
    with pytest.raises(UserError, match="--dataset"):
        resumed_sweep(tmp_path, {})
    assert resumed_sweep(tmp_path, {"dataset": dataset}) == begun


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^[^\n]*none\.yaml[^\n]*$"):
        requested_sweep(tmp_path / "none.yaml", {})


def test_networks_are_told_apart_by_their_profiles_in_order() -> None:
    wanted = make_sweep({"model": "m", "netem": "wifi,wifi+lte,lte+lte", "hosts": 3})
    networks = networks_of(wanted, 2)
    assert {name: [it.name for it in network] for name, network in networks.items()} == {
        "wifi": ["wifi", "wifi"],
        "wifi+lte": ["wifi", "lte"],
        "lte": ["lte", "lte"],
    }


def test_profiles_of_one_name_must_be_one(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / "wifi.yaml"
    file.write_text("edge_to_server: {delay: 9ms}\n")
    wanted = make_sweep({"model": "m", "netem": f"wifi,{file}"})
    with pytest.raises(UserError) as refused:
        networks_of(wanted, 1)
    assert str(file) in str(refused.value)
    assert str(refused.value) == snapshot


def test_codecs_have_one_name_each() -> None:
    wanted = make_sweep({"model": "m", "codec": "none,zstd,zstd:3,int8+lz4"})
    assert wanted.codecs == ("none", "zstd:3", "int8+lz4")
    assert make_sweep({"model": "m"}).codecs == ("none",)


def test_engines_have_one_name_each() -> None:
    wanted = make_sweep({"model": "m", "engine": "eager,onnx,edge=onnx,server=compile,edge=eager"})
    assert wanted.engines == ("eager", "onnx", "edge=onnx+server=compile")
    assert make_sweep({"model": "m"}).engines == ("eager",)
    assert make_sweep({"model": "m", "engine": list(wanted.engines)}).engines == wanted.engines


def test_an_engine_may_be_a_middle_hosts_where_there_is_one() -> None:
    assert make_sweep({"model": "m", "engine": "middle1=onnx", "hosts": 3}).engines == ("middle1=onnx",)


def test_a_codec_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pareto.codecs.registry.find_spec", lambda name: None)
    with pytest.raises(UserError, match="needs the package lz4"):
        make_sweep({"model": "m", "codec": "int8+lz4"})


def test_users_own_codecs_have_their_files_in_the_sweep_and_their_names_in_rows(tmp_path: Path) -> None:
    file = written(tmp_path, simple())
    wanted = make_sweep({"model": "m", "codec": f"none,{file}:Own,{file}:Own+zstd"})
    assert wanted.codecs == ("none", f"{file}:Own", f"{file}:Own+zstd:3")
    assert [codec.text for codec in wanted.coding] == ["none", "Own", "Own+zstd:3"]


def test_a_users_own_codec_whose_file_is_not_there_is_one_line(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(UserError) as refused:
        make_sweep({"model": "m", "codec": f"{tmp_path}/b.py:Own"})
    assert str(refused.value).replace(str(tmp_path), "FOLDER") == snapshot


def test_a_single_host_has_a_network_of_its_own_that_is_none() -> None:
    wanted = make_sweep({"model": "m", "edge_only": True, "batch_size": "1,8"})
    assert links_of(wanted) == 0
    assert networks_of(wanted, 0) == {"edge-only": ()}
    assert wanted.backends == ("tcp",), "all are the same where nothing crosses"
    assert make_sweep(wanted.model_dump()) == wanted, "as when it is resumed"
