"""How backends are called: what is a variant, what is a label, and what is refused."""

from __future__ import annotations

import pytest

from pareto.analysis import naming
from pareto.remote.backends import registry
from pareto.remote.backends.registry import MOST_CONNECTIONS, RPC_CHANNELS, BackendName
from tests.unit.backends.builders import refusal

GOOD = {
    "tcp": BackendName("tcp"),
    "rpc:b2": BackendName("rpc", label="b2"),
    "tcp:2": BackendName("tcp", "2"),
    "tcp:64": BackendName("tcp", "64"),
    "tcp:4:a": BackendName("tcp", "4", label="a"),
    "rpc:basic": BackendName("rpc", "basic"),
    "rpc:basic:a": BackendName("rpc", "basic", label="a"),
    "tcp:basics": BackendName("tcp", label="basics"),
    "tcp:tls": BackendName("tcp", seal="tls"),
    "tcp:4:tls:a": BackendName("tcp", "4", "tls", "a"),
    "tcp:tls_a": BackendName("tcp", label="tls_a"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_variant_is_told_from_a_label(text: str) -> None:
    name = registry.parse(text)
    assert name == GOOD[text]
    assert naming.transport(text) == name.transport, "analysis reads names by a rule of its own"
    assert (naming.family(text), naming.secure(text)) == (name.name, name.secure)
    assert ":".join(filter(None, name)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("udp", "TCP", ":4", "tcp:", "tcp:a/b", "tcp:4b", "tcp:a2345678901234567"),
        *("tcp:0", "tcp:1", "tcp:65", "tcp:04", "tcp:\u0664"),
        *("tcp:4:", "tcp:a:b", "tcp:a:4", "tcp:4:5", "tcp:4:a:b"),
        *("rpc:4", "tcp:basic", "rpc:basic:4"),
        *("rpc:tls", "tcp:tls:4", "tcp:a:tls", "tcp:tls:tls", "tcp:aes-gcm"),
    ],
)
def test_what_no_backend_is_called_is_refused(text: str) -> None:
    """A variant of another backend is no label: who writes rpc:4 means four connections."""
    words = refusal(registry.parse, text, by=ValueError)
    assert repr(text) in words and "there are tcp, tcp:N" in words and "\n" not in words


def test_connections_agents_and_channels_follow_from_the_name() -> None:
    names = ("tcp", "tcp:a", "tcp:16:a", f"tcp:{MOST_CONNECTIONS}")
    assert [registry.parse(text).connections for text in names] == [1, 1, 16, MOST_CONNECTIONS]
    agents = [registry.parse(text).agent for text in ("tcp:4", "rpc:a", "rpc:basic:a")]
    assert agents == ["", "rpc", "rpc:basic"]
    assert all(registry.parse(f"rpc:{variant}").variant == variant for variant in RPC_CHANNELS if variant)
    assert {channel for each in RPC_CHANNELS.values() for channel in each} <= {"mpt_uv", "basic"}, (
        "no network"
    )
