"""The privileged helper and the offload switches on a real interface; what needs sch_netem is in tests/vm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute, netns

from pareto.link import offload, qdisc

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
]

REPO = Path(__file__).resolve().parents[2]
ALL_OFF = {"tso": False, "gso": False, "gro": False}


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with one end of a veth, data0; this thread is in it."""
    name = f"pareto-test-{os.getpid()}-host"
    netns.create(name)
    netns.pushns(name)
    with IPRoute() as ip:
        ip.link("add", ifname="data0", kind="veth", peer="peer0")
        ip.link("set", index=ip.link_lookup(ifname="data0")[0], state="up")
    yield name
    netns.popns()
    netns.remove(name)


class Helper:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pareto.link"], cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(10)
        self.process.stdout.close()
        return code


@pytest.fixture
def helper(namespace: str) -> Iterator[Helper]:
    helper = Helper()
    yield helper
    helper.close()


def test_offloads_go_off_and_back(namespace: str) -> None:
    before = offload.read("data0")
    assert before["tso"]
    assert before["gso"]
    assert offload.switch_off("data0") == before
    assert offload.read("data0") == ALL_OFF
    offload.write("data0", before)
    assert offload.read("data0") == before


def test_the_helper_sets_offloads_for_the_rate_and_restores_them(helper: Helper) -> None:
    before = offload.read("data0")
    assert helper.ask("offloads", interface="data0", rate_bps=5e6)["result"]["offloads"] == ALL_OFF
    assert helper.ask("offloads", interface="data0", rate_bps=1e9)["result"]["offloads"] == before
    helper.ask("offloads", interface="data0", rate_bps=5e6)
    assert helper.close() == 0
    assert offload.read("data0") == before


def test_restore_is_at_once(helper: Helper) -> None:
    before = offload.read("data0")
    helper.ask("offloads", interface="data0", rate_bps=5e6)
    assert helper.ask("restore")["ok"]
    assert offload.read("data0") == before


def test_an_unshaped_egress_touches_nothing(helper: Helper) -> None:
    before = offload.read("data0")
    reply = helper.ask("apply", interface="data0", egress={})
    assert reply["result"] == {
        "shaper": "none",
        "delay_s": 0.0,
        "rate_bps": None,
        "limit_packets": None,
        "offloads": before,
    }


def test_a_foreign_qdisc_is_left_alone(helper: Helper) -> None:
    with IPRoute() as ip:
        index = ip.link_lookup(ifname="data0")[0]
        ip.tc("add", "tbf", index, rate=125_000, burst=16_000, latency=50_000)
        reply = helper.ask("apply", interface="data0", egress={"delay_s": 0.01})
        assert "data0 already has a root qdisc tbf" in reply["error"]
        reply = helper.ask("apply", interface="data0", egress={})
        assert "data0 already has a root qdisc tbf" in reply["error"]  # unshaped it is not
        helper.ask("restore")
        assert [q.get_attr("TCA_KIND") for q in ip.get_qdiscs(index=index)] == ["tbf"]


def test_errors_are_one_line(helper: Helper) -> None:
    for fields, message in (
        (
            {"interface": "nosuch0", "egress": {"delay_s": 0.01}},
            "there is no interface 'nosuch0' here: there are lo,",
        ),
        ({"egress": {}}, "there is no interface 'None' here"),
        ({"interface": "data0", "egress": {"jitter_s": 1}}, "unknown field 'jitter_s'"),
    ):
        reply = helper.ask("apply", **fields)
        assert message in reply["error"]
        assert "\n" not in reply["error"]
    assert "data0 is not shaped by this program" in helper.ask("drops", interface="data0")["error"]


def test_a_kernel_without_netem_is_told(helper: Helper) -> None:
    supported = helper.ask("supported")["result"]["netem"]
    reply = helper.ask("apply", interface="data0", egress={"delay_s": 0.01})
    assert reply["ok"] == supported
    if not supported:
        assert reply["error"] == qdisc.NO_NETEM
    assert helper.close() == 0
    with IPRoute() as ip:
        index = ip.link_lookup(ifname="data0")[0]
        assert [q.get_attr("TCA_KIND") for q in ip.get_qdiscs(index=index)] == ["noqueue"]
