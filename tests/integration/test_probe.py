"""The link probe for real: one at each end, the relay between. It tells all that was asked, and nothing is early.

What it makes of arrivals: tests/unit/worker/test_datagrams.py; how true it reads: tests/measure/test_probe.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pareto.protocol.constants import GOODPUT
from pareto.remote.worker.datagrams import PAYLOAD_SHARE, PING_WIRE_BYTES
from pareto.remote.worker.probe import TCP_PING_BYTES
from tests.integration.relay_net import SLEW_S, Relay, Shape, probed_link
from tests.less_than_root import needs_networks

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

SAMPLE = {"sent": 200, "received": 200, "duplicates": 0, "reordered": 0}


@pytest.fixture(scope="module")
def link() -> Iterator[tuple[Relay, Shape]]:
    with probed_link() as link:
        yield link


@pytest.mark.parametrize("datagrams", [False, True])
def test_a_probe_tells_all_that_was_asked_and_is_never_early(
    link: tuple[Relay, Shape], datagrams: bool
) -> None:
    relay, shape = link
    probe = shape({"rate_bps": 10e6, "delay_s": 0.03}, {"rate_bps": 20e6, "delay_s": 0.02})
    asked: dict[str, Any] = {"bulk_out": 100_000, "bulk_back": 100_000, "message": 100_000, "pings": 7}
    sample = {"sample_out": 200, "sample_back": 200, "sample_gap_s": 0.0005, "wait_s": 60.0}
    told = probe(**asked, **sample, datagrams=datagrams)
    wire_bytes = PING_WIRE_BYTES if datagrams else TCP_PING_BYTES
    assert len(told["rtts_s"]) == 7
    assert min(told["rtts_s"]) >= 0.05 + 8 * wire_bytes / 10e6 + 8 * wire_bytes / 20e6 - SLEW_S
    assert told["rtt_s"] == sorted(told["rtts_s"])[3]
    assert told["ping_bytes"] == wire_bytes
    assert told["payload_share"] == (PAYLOAD_SHARE if datagrams else GOODPUT)
    assert min(told["rate_bps"], told["rate_back_bps"]) > 0
    assert told["sample"] == told["sample_back"] == SAMPLE
    assert told["message_s"] >= 0.05 + 100_000 * 8 / (10e6 * GOODPUT) - SLEW_S
    assert relay.stats()["dropped"] == 0
