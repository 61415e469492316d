"""Which values each option of a sweep takes, and what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pareto.driver.manifest import resumed_sweep
from pareto.hosts.host import TcpSettings
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.sweep import parse_sweep
from tests.unit.own_codecs import simple, written

TCP = {"congestion": "bbr", "initial_window": 10, "slow_start_after_idle": True}
ENGINES = ("eager", "onnx", "edge=onnx+server=compile")
READ = [
    # Lists take commas, and defaults are the main job.
    ({"model": "mobilenetv2, resnet18"}, {"models": ("mobilenetv2", "resnet18"), "backends": ("tcp", "rpc")}),
    (
        {"netem": "200ms-5mbit,none", "points": "0,7"},
        {"netems": ("200ms-5mbit", "none"), "points": ("0", "7")},
    ),
    (
        {},
        {
            "trials": None, "rounds": 6, "until": None, "budget": None, "depths": ("auto",),
            "tcp": TcpSettings(),
        },
    ),
    ({}, {"codecs": ("none",), "engines": ("eager",)}),
    # When to stop is a share and a time.
    ({"until": "5%", "budget": "20min"}, {"until": 0.05, "budget": 1200}),
    ({"budget": "90s"}, {"budget": 90}),
    ({"budget": "1.5h"}, {"budget": 5400}),
    # What is asked for twice is measured once.
    ({"backend": "tcp,tcp", "batch_size": "1,8,1"}, {"backends": ("tcp",), "batch_sizes": (1, 8)}),
    ({"netem": "wifi,wifi"}, {"netems": ("wifi",)}),
    # Requests in flight are numbers, however they are written.
    ({"in_flight": "auto,1,01,8"}, {"depths": ("auto", "1", "8")}),
    ({"in_flight": [4, "auto"]}, {"depths": ("4", "auto")}),
    # A backend under several names is one transport, and a variant is one of its own.
    ({"backend": "tcp:a,rpc,tcp:b"}, {"backends": ("tcp:a", "rpc", "tcp:b"), "transports": ("tcp", "rpc")}),
    (
        {"backend": "tcp,tcp:4:a,rpc:basic,tcp:4:b,rpc"},
        {"transports": ("tcp", "tcp:4", "rpc:basic", "rpc")},
    ),
    (TCP, {"tcp": TcpSettings("bbr", 10, slow_start_after_idle=True)}),
    ({"testbed": "lab.yaml", "congestion": "reno"}, {"tcp": TcpSettings("reno")}),
    # Codecs and engines have one name each.
    ({"codec": "none,zstd,zstd:3,int8+lz4"}, {"codecs": ("none", "zstd:3", "int8+lz4")}),
    ({"engine": "eager,onnx,edge=onnx,server=compile,edge=eager"}, {"engines": ENGINES}),
    ({"engine": [*ENGINES]}, {"engines": ENGINES}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "means"), READ, ids=[", ".join(options) or "nothing" for options, _ in READ]
)
def test_what_options_mean(options: dict[str, Any], means: dict[str, Any]) -> None:
    wanted = make_sweep({"model": "m", **options})
    assert {name: getattr(wanted, name) for name in means} == means
    assert make_sweep(wanted.model_dump(mode="json")) == wanted


@pytest.mark.parametrize(
    ("options", "focused"),
    [
        ({}, True), ({"trials": 6}, False), ({"trials": 6, "search": True}, True), ({"until": "5%"}, True),
        ({"testbed": "simulated,simulated"}, False),
    ],
)  # fmt: skip
def test_cells_are_struck_off_unless_every_round_is_to_have_all(
    options: dict[str, Any], focused: bool
) -> None:
    assert parse_sweep({"model": "m", **options}).focused is focused


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


def test_the_home_of_nobody(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--data-path"):
        make_sweep({"model": "m", "dataset": "folder", "data_path": "~nobody-of-this-name/images"})


def test_users_own_codecs_have_their_files_in_the_sweep_and_their_names_in_rows(tmp_path: Path) -> None:
    file = written(tmp_path, simple())
    wanted = make_sweep({"model": "m", "codec": f"none,{file}:Own,{file}:Own+zstd"})
    assert wanted.codecs == ("none", f"{file}:Own", f"{file}:Own+zstd:3")
    assert [codec.text for codec in wanted.coding] == ["none", "Own", "Own+zstd:3"]
