"""A worker for a driver that is no user of the machine: which files, addresses and ways it takes."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import messages, profile_messages
from pareto.jsonlines import Refused
from pareto.messages import Request
from pareto.worker.confined import Confinement
from pareto.worker.device import named
from pareto.worker.worker import Worker, answers

HERE = Path("/served")
WITHIN = Confinement(HERE, "192.0.2.1", rpc=False)
LOAD = messages.LoadModel({"name": "alexnet", "file": ""}, {f"{HERE}/a.safetensors": "a"}, "a", [])
CODEC = messages.OwnCodec("mine", f"{HERE}/c.py", "C", "c.py", f"{HERE}/c.safetensors", "c", 0, [])
JOIN = messages.JoinAgents("rpc", "server", ["edge", "server"], "192.0.2.1", 1, "eth0")

TAKEN: list[Request[Any]] = [
    LOAD,
    replace(LOAD, recipe={"name": "net.build", "file": f"{HERE}/b.py"}, codecs=[CODEC]),
    replace(LOAD, data=[f"{HERE}/d.safetensors"]),
    profile_messages.TimeCodecs([], f"{HERE}/d.safetensors", decodes=True, cpu=1.0),
    messages.Listen("192.0.2.1", "token"),
    messages.GetFacts(),
]
REFUSED: list[Request[Any]] = [
    replace(LOAD, weights={"/etc/a.safetensors": "a"}),
    replace(LOAD, weights={f"{HERE}/../a.safetensors": "a"}),
    replace(LOAD, weights={f"{HERE}/in/a.safetensors": "a"}),
    replace(LOAD, weights={"a.safetensors": "a"}),
    replace(LOAD, data=["/home/a.safetensors"]),
    replace(LOAD, recipe={"name": "net.build", "file": "/home/me/net.py"}),
    replace(LOAD, recipe={"name": "net.build", "file": f"{HERE}/a.safetensors"}),
    replace(LOAD, recipe={"name": "/home/me/net.py:build", "file": ""}),
    replace(LOAD, codecs=[replace(CODEC, file="/home/me/c.py")]),
    replace(LOAD, codecs=[replace(CODEC, weights="/c.safetensors")]),
    profile_messages.TimeCodecs([], "/d.safetensors", decodes=True, cpu=1.0),
    messages.Listen("0.0.0.0", "token"),  # noqa: S104
    messages.Connect("192.0.2.9", "token", {}, []),
    messages.OpenRendezvous("192.0.2.1"),
    JOIN,
]


@pytest.mark.parametrize("request_", TAKEN, ids=repr)
def test_what_is_taken(request_: Request[Any]) -> None:
    WITHIN.check(request_)


@pytest.mark.parametrize("request_", REFUSED, ids=repr)
def test_what_is_refused(request_: Request[Any]) -> None:
    with pytest.raises(Refused):
        WITHIN.check(request_)


def test_rpc_where_it_is_allowed_is_taken_at_the_own_address_alone() -> None:
    allows = replace(WITHIN, rpc=True)
    allows.check(JOIN)
    with pytest.raises(Refused, match="not the address"):
        allows.check(replace(JOIN, address="192.0.2.9"))


def test_every_text_that_a_driver_sends_is_known_here(snapshot: SnapshotAssertion) -> None:
    """Whoever adds one decides whether it names a file, an address or code: then `Confinement` has to know it."""
    requests = answers(Worker(named("cpu")))
    texts = {kind.op: [field.name for field in fields(kind) if "str" in str(field.type)] for kind in requests}
    assert {op: names for op, names in texts.items() if names} == snapshot
