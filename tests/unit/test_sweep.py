"""Which values each option of a sweep takes, and what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts.host import TcpSettings
from pareto.protocol.errors import UserError
from pareto.run.manifest import resumed_sweep
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import parse_sweep
from tests.unit.own_codecs import simple, written


def test_lists_take_commas_and_defaults_are_the_main_job() -> None:
    wanted = make_sweep({"model": "mobilenetv2, resnet18", "netem": "200ms-5mbit,none", "points": "0,7"})
    assert wanted.models == ("mobilenetv2", "resnet18")
    assert wanted.netems == ("200ms-5mbit", "none")
    assert wanted.points == ("0", "7")
    assert wanted.backends == ("tcp", "rpc")
    assert (wanted.trials, wanted.rounds) == (None, 6)


@pytest.mark.parametrize(
    ("options", "focused"),
    [
        ({}, True),
        ({"trials": 6}, False),
        ({"trials": 6, "search": True}, True),
        ({"until": "5%"}, True),
        ({"testbed": "simulated,simulated"}, False),
    ],
)
def test_cells_are_struck_off_unless_every_round_is_to_have_all(
    options: dict[str, Any], focused: bool
) -> None:
    assert parse_sweep({"model": "m", **options}).focused is focused


def test_when_to_stop_is_a_share_and_a_time() -> None:
    wanted = make_sweep({"model": "m", "until": "5%", "budget": "20min"})
    assert (wanted.until, wanted.budget) == (0.05, 1200)
    assert make_sweep(wanted.model_dump(mode="json")) == wanted
    assert [make_sweep({"model": "m", "budget": text}).budget for text in ("90s", "1.5h")] == [90, 5400]
    assert (make_sweep({"model": "m"}).until, make_sweep({"model": "m"}).budget) == (None, None)


@pytest.mark.parametrize(
    ("options", "backends"),
    [
        ({"secure": "none"}, ("tcp", "rpc")),
        ({"secure": "none,tls"}, ("tcp", "tcp:tls", "rpc")),
        ({"backend": "tcp", "secure": "tls"}, ("tcp:tls",)),
        (
            {"backend": "tcp:4:a,rpc:basic,tcp", "secure": ["none", "tls"]},
            ("tcp:4:a", "tcp:4:tls:a", "rpc:basic", "tcp", "tcp:tls"),
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
        resumed_sweep(tmp_path, {"backend": "tcp:4", "secure": "tls"})


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


def test_the_home_of_nobody(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data-path"):
        make_sweep({"model": "m", "dataset": "folder", "data_path": "~nobody-of-this-name/images"})


def test_codecs_have_one_name_each() -> None:
    wanted = make_sweep({"model": "m", "codec": "none,zstd,zstd:3,int8+lz4"})
    assert wanted.codecs == ("none", "zstd:3", "int8+lz4")
    assert make_sweep({"model": "m"}).codecs == ("none",)


def test_engines_have_one_name_each() -> None:
    wanted = make_sweep({"model": "m", "engine": "eager,onnx,edge=onnx,server=compile,edge=eager"})
    assert wanted.engines == ("eager", "onnx", "edge=onnx+server=compile")
    assert make_sweep({"model": "m"}).engines == ("eager",)
    assert make_sweep({"model": "m", "engine": list(wanted.engines)}).engines == wanted.engines


def test_users_own_codecs_have_their_files_in_the_sweep_and_their_names_in_rows(tmp_path: Path) -> None:
    file = written(tmp_path, simple())
    wanted = make_sweep({"model": "m", "codec": f"none,{file}:Own,{file}:Own+zstd"})
    assert wanted.codecs == ("none", f"{file}:Own", f"{file}:Own+zstd:3")
    assert [codec.text for codec in wanted.coding] == ["none", "Own", "Own+zstd:3"]
