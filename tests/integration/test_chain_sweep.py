"""A sweep over three hosts with a model, points and images of the user's own: the command, its files, its numbers."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from tests.integration.test_sweep import Rows, exit_code, only_run, read, sound
from tests.less_than_root import needs_networks
from tests.program import LENIENT, pareto

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

NET = """
import torch
from torch import nn

from partitions.registry import register


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x)) + x


@register(input_shape=(3, 64, 64))
def small():
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=4), *(Block(32) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
    )
"""
IMAGES = 6
LINKS = {"edge-middle1": 0.01, "middle1-server": 0.03}
SPLITS = {"0+0", "0+last", "last+last", "2+4"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    (folder / "net.py").write_text(NET)
    noise = np.random.default_rng(0)
    for number in range(IMAGES):
        of_class = folder / "images" / f"class{number % 3}"
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 255, (80, 90, 3), dtype=np.uint8)).save(of_class / f"{number}.png")
    process = pareto(
        *("--model", f"{folder / 'net.py'}:small", "--hosts", "3", "--netem", "10ms-50mbit+30ms-20mbit"),
        *("--granularity", "op", "--live-tensors", "2", "--points", "input,output,2+4"),
        *("--dataset", "folder", "--data-path", str(folder / "images"), "--images", str(IMAGES)),
        *("--input", "uint8", "--quick", "--out", str(folder / "out"), *LENIENT),
    )
    out, err = process.communicate(timeout=240)
    assert process.returncode == exit_code(trials(only_run(folder / "out"))), out + err
    said = " ".join(out.split())
    assert "on the links in order: 10ms-50mbit, 30ms-20mbit" in said
    assert "fold into their neighbours" in said
    return only_run(folder / "out")


def points(run: Path) -> list[dict[str, object]]:
    return list(json.loads((run / "manifest.json").read_text())["models"]["net.small"]["points"])


def trials(run: Path) -> Rows:
    return read(run / "trials.csv")


def test_every_split_is_measured_over_both_backends(run: Path) -> None:
    last = str(len(points(run)) - 1)
    wanted = {split.replace("last", last) for split in SPLITS}
    assert {(row["point"], row["backend"]) for row in trials(run)} == {
        (split, backend) for split in wanted for backend in ("tcp", "rpc")
    }
    for row in trials(run):
        assert sound(row), row["reason"]
        assert float(row["max_abs_error"]) == 0.0
        assert row["netem"] == "10ms-50mbit+30ms-20mbit"


def test_latency_holds_every_link_that_was_crossed(run: Path) -> None:
    last = str(len(points(run)) - 1)
    for row in trials(run):
        crossed = [cut != last for cut in row["point"].split("+")]
        delays_s = sum(delay for delay, was in zip(LINKS.values(), crossed, strict=True) if was)
        assert float(row["latency_bound_s"]) >= delays_s
        assert row["status"] != "ok" or float(row["latency_s"]) >= float(row["latency_bound_s"])
        assert [row["middle_s"] != "", row["server_s"] != ""] == crossed
        if any(crossed):
            parts = ("edge_s", "middle_s", "server_s", "serialize_s", "network_s")
            together_s = sum(float(row[part] or 0) for part in parts)
            assert together_s == pytest.approx(float(row["latency_s"]), rel=0.3), "each a median of its own"


def test_each_host_tells_what_it_did(run: Path) -> None:
    at = points(run)
    of_trial = defaultdict(list)
    for row in read(run / "stages.csv"):
        of_trial[row["point"], row["backend"]].append(row)
    for row in trials(run):
        cuts = [int(cut) for cut in row["point"].split("+")]
        hosts = of_trial[row["point"], row["backend"]]
        taking_part = 1 + sum(cut < len(at) - 1 for cut in cuts)
        assert [host["host"] for host in hosts] == ["edge", "middle1", "server"][:taking_part]
        for cut, host in zip(cuts, hosts[: taking_part - 1], strict=False):
            assert int(host["payload_bytes"]) == at[cut]["payload_bytes"]
            assert 0 <= float(host["utilization"]) <= 1
            assert float(host["bubble_s"]) >= 0
        sent = [host["payload_bytes"] for host in hosts]
        assert sent[-1] == ""
        if row["point"] == "2+4":
            weights = [int(host["weights_bytes"]) for host in hosts]
            assert min(weights) > 0
            whole = max(int(host["weights_bytes"]) for rows in of_trial.values() for host in rows)
            assert sum(weights) == whole  # each parameter on one host, all of them together


def test_bytes_are_sent_and_every_image_counts_at_every_point(run: Path) -> None:
    assert points(run)[0]["payload_bytes"] == 3 * 64 * 64
    assert {row["top1_images"] for row in trials(run)} == {str(IMAGES)}
    assert len({row["top1"] for row in trials(run)}) == 1


def test_both_links_are_probed_and_shaped_each_in_its_way(run: Path) -> None:
    probes = read(run / "link.csv")
    for link, delay_s in LINKS.items():
        rtts = sorted(float(probe["rtt_s"]) for probe in probes if probe["link"] == link)
        assert len(rtts) > len(trials(run))
        assert rtts[0] == pytest.approx(delay_s, abs=0.003)  # a busy machine is late, never early
    (session,) = json.loads((run / "manifest.json").read_text())["sessions"]
    assert set(session["hosts"]) == {"edge", "middle1", "server"}
    in_force = session["links"]["10ms-50mbit+30ms-20mbit"]
    assert [it["in_force"]["edge_to_server"]["rate_bps"] for it in in_force.values()] == [50e6, 20e6]


def test_requests_have_the_middles_time(run: Path) -> None:
    table = parquet.read_table(
        run / "requests" / "net.small-k02+04-tcp-10ms-50mbit+30ms-20mbit-b1-r01.parquet"
    )
    for request in table.to_pylist():
        assert len(request["middle_s"]) == 1
        assert request["middle_s"][0] > 0
        assert request["server_s"] > 0


def test_figures_of_the_chain_are_made(run: Path) -> None:
    made = {path.name.split("-")[0] for path in (run / "figures").glob("*.png")}
    assert made >= {"front", "attribution", "utilization", "cuts"}
