"""How true the link probe reads: one at each end, and the relay between them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from pareto.protocol.constants import GOODPUT
from pareto.remote.worker.datagrams import PAYLOAD_SHARE
from tests.integration.relay_net import Shape, probed_link
from tests.less_than_root import needs_networks
from tests.measure.conftest import Figures

pytestmark = needs_networks


@pytest.fixture(scope="module")
def shape() -> Iterator[Shape]:
    with probed_link() as (_, shape):
        yield shape


DELAY = {"delay_s": 0.02}
BULK = {"bulk_out": 62_500, "bulk_back": 62_500, "sample_out": 50}


@pytest.mark.parametrize(
    ("name", "out", "asked"),
    [
        ("by TCP", DELAY, {}),
        ("by datagrams", DELAY, {"datagrams": True}),
        ("beside all else", DELAY | {"rate_bps": 5e6}, BULK | {"datagrams": True}),
    ],
)
def test_round_trip(
    shape: Shape, figures: Figures, name: str, out: dict[str, Any], asked: dict[str, Any]
) -> None:
    told = shape(out, DELAY)(**asked)
    figures.state(f"probe: round trip of 40 ms, {name}", 1e3 * told["rtt_s"], "ms", least=40, most=40.5)


@pytest.mark.parametrize(
    ("mbit", "datagrams", "skip"),
    [(5, True, 0), (50, True, 0), (20, False, 0), (20, False, 20_000)],
)
def test_rate(shape: Shape, figures: Figures, mbit: int, datagrams: bool, skip: int) -> None:
    """A tenth of a second of bulk each way, the other way free."""
    slow, free = {"rate_bps": mbit * 1e6, "delay_s": 0.005}, {"delay_s": 0.005}
    bulk = 12_500 * mbit
    asked = {"bulk_out": bulk, "bulk_back": bulk, "skip_out": skip, "skip_back": skip, "datagrams": datagrams}
    aim = mbit * (PAYLOAD_SHARE if datagrams else GOODPUT)
    for field, ways in (("rate_bps", (slow, free)), ("rate_back_bps", (free, slow))):
        probe = shape(*ways)
        probe(**asked)  # opens the window
        by = "datagrams" if datagrams else f"TCP but for {skip / 1e3:.0f} kB"
        name = f"probe: {mbit} Mbit/s {'out' if ways[0] is slow else 'back'} by {by}"
        figures.about(name, probe(**asked)[field] / 1e6, "Mbit/s", aim=aim, within=0.01 * aim)


def test_message(shape: Shape, figures: Figures) -> None:
    probe = shape({"rate_bps": 10e6, "delay_s": 0.01}, {"delay_s": 0.01})
    probe(message=100_000)  # opens the window
    aim = 20 + 100_000 * 8 / (10e3 * GOODPUT)
    took_ms = 1e3 * probe(message=100_000)["message_s"]
    figures.about("probe: message of 100 kB at 10 Mbit/s", took_ms, "ms", aim=aim, within=0.02 * aim)


def test_where_every_tenth_packet_is_lost(shape: Shape, figures: Figures) -> None:
    """TCP has neither a round trip nor a rate to tell there. Shares within four standard deviations."""
    way = {"rate_bps": 20e6, "delay_s": 0.02, "loss": 0.1}
    probe = shape(way, way)
    asked = {"sample_out": 1000, "sample_back": 1000, "sample_gap_s": 0.0005, "wait_s": 0.15, "pings": 9}
    told = [probe(**asked, bulk_out=250_000, bulk_back=250_000, datagrams=True) for _ in range(3)]
    for field in ("sample", "sample_back"):
        lost = 100 - sum(each[field]["received"] for each in told) / 30
        figures.about(f"probe: loss of 10 %, {field}", lost, "%", aim=10, within=2.2)
        odd = sum(each[field][count] for each in told for count in ("duplicates", "reordered"))
        figures.about(f"probe: repeated or out of order, {field}", odd, aim=0, within=0)
    rtt_ms = 1e3 * statistics.median(each["rtt_s"] for each in told)
    figures.state("probe: round trip of 40 ms where 10 % are lost", rtt_ms, "ms", least=40, most=41)
    for field in ("rate_bps", "rate_back_bps"):
        mbit, aim = statistics.median(each[field] for each in told) / 1e6, 20 * PAYLOAD_SHARE
        figures.about(f"probe: {field} of 20 Mbit/s, 10 % lost", mbit, "Mbit/s", aim=aim, within=0.03 * aim)


def test_where_every_tenth_packet_comes_twice_or_overtakes(shape: Shape, figures: Figures) -> None:
    """Those that overtake are counted, not the twenty that each leaves behind."""
    for field, way in (("duplicates", {"duplicate": 0.1}), ("reordered", {"reorder": 0.1})):
        probe = shape(DELAY | way, {"delay_s": 0.01})
        told = probe(sample_out=1000, sample_back=100, sample_gap_s=0.001, wait_s=0.1)
        share = told["sample"][field] / 10
        figures.about(f"probe: {field}, 10 %", share, "%", aim=10, within=3.8)
        others = {"received": 1000} | ({"reordered": 0} if field == "duplicates" else {"duplicates": 0})
        assert others.items() <= told["sample"].items()
        assert told["sample_back"] == {"sent": 100, "received": 100, "duplicates": 0, "reordered": 0}
