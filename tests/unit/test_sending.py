"""What each host gets of a model, and what is said meanwhile."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.host import EDGE, SERVER, Host
from pareto.hosts.testbed import Testbed
from pareto.models.prepare import Artifact, Prepared
from pareto.partitions.recipe import Recipe
from pareto.partitions.shards import Shard
from pareto.sweep.foreseen import ModelFacts
from pareto.trial.model_upload import Meter, Sender
from tests.unit.far_end import HOSTS, StandIn, bed_of

UNITS = 6
MIDDLE = "middle1"


def shard(unit: int, size: int = 1) -> Shard:
    """A shard that is named by its unit, in place of a digest."""
    return Shard(unit, str(unit), size, Path(os.devnull), bytes(size), ())


def prepared(*splits: tuple[int, ...], shards: tuple[Shard, ...] = (), name: str = "net") -> Prepared:
    nothing, facts = (
        Path(os.devnull),
        ModelFacts(tuple((str(number), 1) for number in range(UNITS + 1)), 0.01),
    )
    artifact, data = Artifact(nothing, "all"), {1: Artifact(nothing, "inputs")}
    parts = shards or tuple(shard(unit) for unit in range(UNITS))
    return Prepared(name, Recipe(name), artifact, None, data, "g", facts, {}, {}, shards=parts, splits=splits)


@pytest.fixture(params=[2])
def bed(request: pytest.FixtureRequest) -> Iterator[Testbed]:
    middle: dict[str, Host] = {MIDDLE: HOSTS[EDGE]} if request.param == 3 else {}
    hosts = {EDGE: HOSTS[EDGE], **middle, SERVER: HOSTS[SERVER]}
    stand_ins = {role: StandIn(host, lambda _: cast(Any, None)) for role, host in hosts.items()}
    with closing(bed_of(stand_ins)) as bed:
        yield bed


def there(bed: Testbed) -> dict[str, str]:
    """By role, the units whose weights the host has."""
    found = {role: cast(StandIn, remote).has for role, remote in bed.remotes.items()}
    return {
        role: "".join(sorted(name.removesuffix(".safetensors") for name in has if name[:6] != "inputs"))
        for role, has in found.items()
    }


@pytest.mark.parametrize(
    ("splits", "edge", "server"),
    [
        ([(2,), (4,)], "0123", "2345"), ([(2,)], "01", "2345"), ([(0,), (2,)], "01", "012345"),
        ([(2,), (6,)], "012345", "2345"), ([(6,)], "012345", ""), ([], "012345", "012345"),
    ],
)  # fmt: skip
def test_a_host_gets_the_units_that_it_runs(
    bed: Testbed, splits: list[tuple[int, ...]], edge: str, server: str
) -> None:
    it = prepared(*splits)
    loading = Sender(bed).loading(it, whole=False)
    assert there(bed) == {EDGE: edge, SERVER: server}
    for role, units in ((EDGE, edge), (SERVER, server)):
        folder = HOSTS[role].folder
        assert loading.requests[role].weights == {f"{folder}/{unit}.safetensors": unit for unit in units}
        assert loading.requests[role].digest == "all"
    assert loading.requests[EDGE].data == [f"{HOSTS[EDGE].folder}/inputs.safetensors"]
    assert loading.requests[SERVER].data == []


@pytest.mark.parametrize("bed", [3], indirect=True)
def test_a_host_in_the_middle_gets_what_lies_between_its_cuts(bed: Testbed) -> None:
    Sender(bed).loading(prepared((1, 2), (3, 5), (5, 5)), whole=False)
    assert there(bed) == {EDGE: "01234", MIDDLE: "134", SERVER: "2345"}


def test_another_point_sends_the_difference_and_the_same_point_nothing(bed: Testbed) -> None:
    for splits, sent in (([(2,)], (2, 4)), ([(2,)], (0, 0)), ([(2,), (3,)], (1, 0)), ([(1,)], (0, 1))):
        sender = Sender(bed)  # of another run
        sender.loading(prepared(*splits), whole=False)
        assert sender.sent_bytes == dict(zip((EDGE, SERVER), sent, strict=True))
    whole = Sender(bed)
    whole.loading(prepared((1,)), whole=True)
    assert whole.sent_bytes == {EDGE: 3, SERVER: 1}


def test_what_is_there_is_looked_for_once(bed: Testbed) -> None:
    it, sender = prepared((2,)), Sender(bed)
    sender.send([it, prepared((2,), name="other")])
    cast(StandIn, bed.remotes[SERVER]).has.clear()
    assert not sender.loading(it, whole=False).is_whole
    assert not there(bed)[SERVER]
    assert sender.loading(it, whole=True).is_whole
    assert sender.loading(it, whole=False).is_whole, "more is there than is needed"
    cast(StandIn, bed.remotes[EDGE]).has.clear()
    sender.forget()
    assert not sender.loading(it, whole=False).is_whole
    assert there(bed) == {EDGE: "01", SERVER: "012345"}
    assert sender.sent_bytes == {EDGE: 2 + 4 + 2, SERVER: 4 + 6}


class Metered:
    """A meter, what it shows meanwhile and what it writes; a time of its own."""

    def __init__(self, *, terminal: bool) -> None:
        self.now_s, self.shown, file = 0.0, list[str](), io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=80, highlight=False)
        self.meter = Meter(console, self.shown.append, lambda: self.now_s)
        self.text = file.getvalue

    def sending(self) -> None:
        self.meter.begin({EDGE: 528_000_000, MIDDLE: 0, SERVER: 9_400_000})
        for times, each_s, role, nbytes in ((5, 0.3, SERVER, 1_000_000), (30, 1.0, EDGE, 10_000_000)):
            for _ in range(times):
                self.now_s += each_s
                self.meter.sent(role, nbytes)


def test_a_terminal_shows_how_far_it_is_and_a_log_now_and_then(snapshot: SnapshotAssertion) -> None:
    on_terminal, in_log, had_all = Metered(terminal=True), Metered(terminal=False), Metered(terminal=True)
    on_terminal.sending()
    shown = on_terminal.shown
    assert len(shown) == 1 + 2 + 30
    assert (shown[0], shown[2], shown[-1]) == snapshot
    in_log.sending()
    in_log.meter.end()
    had_all.meter.begin({EDGE: 0, SERVER: 0})
    had_all.meter.end()
    assert not in_log.shown + had_all.shown
    assert [on_terminal.text(), in_log.text(), had_all.text()] == ["", snapshot, snapshot]


def test_what_a_sender_sends_goes_through_its_meter(bed: Testbed) -> None:
    it = Metered(terminal=True)
    parts = tuple(shard(unit, 2_000_000) for unit in range(UNITS))
    Sender(bed).send([prepared((2,), shards=parts)], it.meter)
    assert it.shown == ["sending 0.0 of 4.0 MB to edge, 0.0 of 8.0 MB to server"]
    assert it.meter.words == "sending 4.0 of 4.0 MB to edge, 8.0 of 8.0 MB to server"
    assert it.text() == "sent 4.0 MB to edge, 8.0 MB to server\n"
