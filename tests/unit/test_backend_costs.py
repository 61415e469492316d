"""What a backend adds on a link: payloads of several sizes, the quiet rounds, a real link's own time; codecs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pareto.analysis.backend_cost import BackendCost
from pareto.hosts.host import EDGE, SERVER, End, Host, TestbedError
from pareto.hosts.session import Session
from pareto.hosts.testbed import Link
from pareto.models.prepare import Artifact, recipe
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.partitions.model import Outline
from pareto.predict import backend_costs
from pareto.predict.backend_costs import OF_USUAL, QUICK, THOROUGH, USUAL, Care, Ends, link_s
from pareto.predict.model_times import BATCHES, codec_times, coded_at, examples
from pareto.protocol.constants import GOODPUT
from pareto.protocol.profile_messages import CodecRuns, Taken, Timed
from pareto.remote.codecs.registry import parse_all
from pareto.remote.link.probe import Reading
from pareto.trial.workers import Workers
from tests.unit.far_end import HOSTS, FakeShaper, FarEnd, StandIn, bed_of
from tests.unit.refusals import refusal
from tests.unit.simulated.worlds import MODEL, POINTS, sweep

SLOW = Reading(0.002, 8e6, 8e6)


class FakeEnds:
    """Round trips of 1 ms and 2 ns a byte by tcp, 5 ms by rpc, on top of `link`; every third is far longer, if any."""

    def __init__(self, link: Callable[[int], float] = lambda nbytes: 0.0, *, any_late: bool = True) -> None:
        self.link = link
        self.rounds: Iterator[int] = itertools.count() if any_late else itertools.repeat(0)
        self.streamed: list[float] = []

    def stream(
        self, backend: str, nbytes: int, count: int, in_flight: int | None, *, kept: bool = False
    ) -> tuple[Timed, Taken]:
        """Round trips; or 0.1 ms a payload at the near end, and 0.2 ms and 3 ns a byte at the far end."""
        taken = Taken(count * (2e-4 + 3e-9 * nbytes), count, None)
        if in_flight is not None:
            assert 1 < in_flight <= count
            self.streamed.append(count * self.link(nbytes))
            return Timed([1.0], count * 1e-4, 0), taken
        late = 1.0 if next(self.rounds) % 3 == 2 and not kept else 0.0
        each_s = late + self.link(nbytes) + (1e-3 if backend == "tcp" else 5e-3) + 2e-9 * nbytes
        return Timed([each_s] * count, 0.0, 0), taken


LINK = Link(*(End(role, host.data_address, "eth0") for role, host in HOSTS.items()), FakeShaper())
TWICE = np.array([1e4, 1e6])


def costs(
    reading: Reading | None = None, largest_bytes: int = 3_000_000, care: Care = THOROUGH
) -> dict[str, BackendCost]:
    """What tcp and rpc add on a link, by name."""
    ends = cast(Ends, FakeEnds(lambda nbytes: link_s(reading, nbytes), any_late=care is THOROUGH))
    made = backend_costs.added(ends, LINK, reading, ("tcp", "rpc"), largest_bytes, care)
    return {cost.backend: cost for cost in made}


def test_a_time_for_each_request_and_one_for_each_byte_of_payloads_within_bounds() -> None:
    made = costs()
    for backend, fixed_s in (("tcp", 1e-3), ("rpc", 5e-3)):
        cost = made[backend]
        assert (cost.fixed_s, cost.per_byte_s) == pytest.approx((fixed_s, 2e-9)), "late rounds do not count"
    for asked, most in ((3_000_000,) * 2, (10, backend_costs.USUAL_BYTES), (10**9, backend_costs.MOST_BYTES)):
        assert costs(None, asked)["tcp"].payload_bytes.max() == most


def test_a_search_takes_few_payloads_that_span_what_models_send() -> None:
    tcp = costs(None, 0, QUICK)["tcp"]
    assert tcp.payload_bytes.tolist() == [1_000, 10_000, 100_000, 1_000_000], "whatever the model"
    assert (tcp.fixed_s, tcp.per_byte_s) == pytest.approx((1e-3, 2e-9))
    waits = costs(OF_USUAL, 0, QUICK)["tcp"]
    assert (waits.link_s > 0).all()
    assert waits.fixed_s == pytest.approx(1e-3)
    streamed = waits.processor_s("far_s", np.array([1e6]))
    assert streamed == pytest.approx(2e-4 + 3e-3), "of those that are streamed"


@dataclass
class FakeWorkers:
    """Whose connections are open by one group of backends at a time."""

    of: list[list[str]] = field(default_factory=list)

    def opened(self, backends: list[str]) -> dict[str, tuple[str, str]]:
        self.of.append(backends)
        return {"edge-middle": ("edge", "middle"), "middle-server": ("middle", "server")}

    def bare_links(self) -> dict[str, Reading]:
        return {"edge-middle": SLOW, "middle-server": SLOW}


@pytest.mark.parametrize("is_local", [True, False])
def test_links_have_every_backend_and_are_left_bare(monkeypatch: pytest.MonkeyPatch, is_local: bool) -> None:
    """Of rpc's agents a process has one: tcp and the first are connected, then the other alone."""
    between: list[tuple[str, ...]] = []

    def fake(*ends: str) -> FakeEnds:
        between.append(ends)
        return FakeEnds()

    monkeypatch.setattr(backend_costs, "Ends", fake)
    middle = Host("hub", "192.168.7.9", "eth1", "/home/ada/.pareto", "python3")
    hosts = {EDGE: HOSTS[EDGE], "middle": middle, SERVER: HOSTS[SERVER]}
    shaper, workers, backends = FakeShaper(), FakeWorkers(), ("rpc", "tcp", "rpc:basic")
    stand_ins = {role: StandIn(host, lambda _: FarEnd({})) for role, host in hosts.items()}
    with closing(bed_of(stand_ins, is_local=is_local, shaper=shaper)) as bed:
        made = backend_costs.on_links(bed, cast(Workers, workers), backends, 0, QUICK)
    links = "edge-middle", "middle-server"
    assert [(it.link, it.backend) for it in made] == [(link, name) for link in links for name in backends]
    turns = 1 + is_local
    assert workers.of == [["rpc", "tcp"], ["rpc:basic"]] * turns
    assert between == [("edge", "middle", "eth0"), ("middle", "server", "eth1")] * 2 * turns
    names = [profile.name for profile in shaper.applied]
    assert names == (["none"] * 2 + ["usual"] * 2 + ["none"] * 2 if is_local else [])
    for cost in made:
        bare, *slowed = cost.parts
        nbytes = bare.payload_bytes
        assert bare.link_s == pytest.approx(0 * nbytes if is_local else 0.002 + 8 * nbytes / 8e6)
        assert [part.link_s for part in slowed] == [
            pytest.approx(0.01 + 8 / GOODPUT * nbytes / 100e6)
        ] * is_local


@pytest.mark.parametrize("reading", [None, Reading(0.01, 1e8, 1e8), SLOW])
def test_what_sending_takes_of_the_processors(reading: Reading | None) -> None:
    tcp = costs(reading)["tcp"]
    assert tcp.processor_s("near_s", TWICE) == pytest.approx([1e-4, 1e-4])
    assert tcp.processor_s("far_s", TWICE) == pytest.approx(2e-4 + 3e-9 * TWICE)
    long = tcp.link_s > backend_costs.MOST_STREAM_S
    assert (np.isnan(tcp.near_s) == long).all(), "payloads that take a link long are not streamed"
    assert long.any() == (reading is not None)


def test_a_relay_takes_processor_time_too_and_it_alone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shaping(FakeShaper):
        def __init__(self, facts: dict[str, object]) -> None:
            super().__init__()
            self.said = facts

        def facts(self) -> dict[str, object]:
            return self.said

    for facts, spent in (({"relay": {"cpu_s": 2.5}}, 2.5), ({"netem": {}}, 0.0), ({}, 0.0)):
        link = Link(*(End(role, "", "") for role in (EDGE, SERVER)), Shaping(facts))
        assert backend_costs.shaping_s(link) == spent
    spent_s = itertools.count(step=0.01)
    monkeypatch.setattr(backend_costs, "shaping_s", lambda _: next(spent_s))
    tcp = costs()["tcp"]
    assert (tcp.shaper_s > 0).all()
    assert (tcp.shaper_s <= 0.01 / backend_costs.LEAST_STREAMED).all()


def test_a_real_links_own_time_is_no_cost_of_a_backend_however_slow_it_is() -> None:
    tcp = costs(SLOW)["tcp"]
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-3), pytest.approx(2e-9, rel=1e-3))
    assert tcp.link_s == pytest.approx(0.002 + 8 * tcp.payload_bytes / 8e6)
    assert tcp.link_s.max() <= backend_costs.MOST_LINK_S, "a megabyte would take it longer"
    assert costs(Reading(5.0, 1e3, 1e3))["tcp"].payload_bytes.tolist() == [backend_costs.LEAST_BYTES]
    out, back = (GOODPUT * (way.rate_bps or 0) for way in USUAL.directions)
    assert Reading(USUAL.rtt_s, out, back) == OF_USUAL


def ends(**reports: Any) -> Ends:
    """Two ends whose workers give these reports."""
    timed = {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 40_000}
    taken = {"cpu_s": 2e-3, "count": 10, "same": True}
    answers: dict[str, Any] = {"expect": None, "time": timed, "taken": taken, **reports}
    replies = {op: (lambda _, op=op: answers[op]) for op in answers}
    near, far = (Session(host.name, FarEnd(replies)) for host in HOSTS.values())
    return Ends(near, far, "eth0")


LACKING = {
    "bytes": ({"time": {"seconds": [1e-3], "cpu_s": 1e-3, "sent_bytes": 39_999}}, "39999 of 40000 bytes"),
    "payloads": ({"taken": {"cpu_s": 1e-3, "count": 9, "same": None}}, "9 of 10 payloads"),
    "changed": ({"taken": {"cpu_s": 1e-3, "count": 10, "same": False}}, "not what was sent"),
}


@pytest.mark.parametrize(("reports", "count"), LACKING.values(), ids=LACKING)
def test_what_did_not_cross_as_it_was_is_no_figure(reports: Any, count: str, snapshot: object) -> None:
    stream, taken = ends().stream("tcp", 4_000, 10, 4)
    assert (stream.cpu_s, taken.cpu_s) == (1e-3, 2e-3), "otherwise both ends report processor time"
    said = refusal(TestbedError, ends(**reports).stream, "tcp", 4_000, 10, 4)
    assert count in said and said == snapshot
    assert count in refusal(TestbedError, ends(**reports).stream, "tcp", 4_000, 10, None, kept=True)


# What codecs take on the hosts: which are timed where, on which payloads, and what is kept of it


@pytest.fixture(scope="module")
def outline() -> Outline:
    """Its input is bytes, all else that crosses are floats."""
    return partitioned.outline(recipe(registry.canonical(MODEL), sweep(input="uint8")))


def test_each_codec_is_timed_where_it_is_used_and_what_it_comes_to_there(outline: Outline) -> None:
    coded = coded_at(outline, parse_all(["none", "int8+zstd", "jpeg"]))
    last = POINTS - 1
    own = {(0, codec) for codec in ("zstd:3", "jpeg:90")}
    assert set(coded) == {(point, "int8+zstd:3") for point in range(last)} | own
    assert coded_at(outline, parse_all(["none"])) == []
    unfit = coded_at(outline, parse_all(["fp16"]), {"fp16": {1, 2}})
    assert [point for point, _ in unfit] == [0, *range(3, last)]


@pytest.mark.parametrize("count", [BATCHES, BATCHES + 1])
def test_the_first_batches_are_sent_without_answers(tmp_path: Path, count: int) -> None:
    inputs = torch.arange(count * 6).reshape(count, 2, 3)
    save_file({"input0": inputs, "reference0": torch.zeros(count, 2)}, tmp_path / "data")
    made, is_all = examples(Artifact(tmp_path / "data", "digest"))
    content = load_file(made.path)
    assert list(content) == ["input0"]
    assert torch.equal(content["input0"], inputs[:BATCHES])
    assert is_all == (count == BATCHES)
    assert len(made.digest) == 64


@pytest.mark.parametrize("is_all", [True, False])
def test_the_median_after_other_work_counts_and_the_least_bounds(outline: Outline, is_all: bool) -> None:
    coded = [(1, "int8"), (2, "zstd:3"), (1, "zstd:3")]
    runs = CodecRuns(
        [100, 200, 100],
        [[3.0, 1.0, 2.0]] * 3, [[0.5] * 6, [0.6] * 6, [5.0] * 6],
        [[], [6.0, 4.0, 5.0], []], [[], [3.0] * 6, []],
        [[25] * 3, [150, 120, 160], [90, 80, 70]],
    )  # fmt: skip
    int8, zstd = codec_times(outline, SERVER, 4, coded, runs, is_all=is_all)
    assert (int8.codec, int8.role, int8.batch_size) == ("int8", SERVER, 4)
    assert np.isfinite(int8.encode_s).tolist() == [point == 1 for point in range(POINTS)]
    assert (int8.encode_s[1], int8.encode_least_s[1]) == (2.0, 0.5)
    assert (zstd.encode_least_s[1], zstd.encode_least_s[2]) == (1.0, 0.6)
    assert (zstd.decode_s[2], zstd.decode_least_s[2]) == (5.0, 3.0)
    assert np.isnan(zstd.decode_s[1])
    assert (zstd.payload_bytes[2], zstd.wire_bytes[2]) == (200, 150)
    assert int8.wire_least_bytes[1] == 25, "it makes as many bytes of whatever crosses"
    least = zstd.wire_least_bytes[1:3]
    assert least.tolist() == [70, 120] if is_all else np.isnan(least).all(), "another image may be smaller"
