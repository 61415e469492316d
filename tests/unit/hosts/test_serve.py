"""What `serve` decides before it starts anything; with a driver it is tested between two namespaces."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.local import rights, sshd
from pareto.hosts.setup import serve
from pareto.protocol.errors import UserError
from tests.unit.example_host import ExampleHost, has


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("uid", [0, 1000])
def test_the_server_lets_in_one_user_by_one_key_and_forwards_nothing(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, uid: int, locked: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(sshd, "is_locked", lambda user: locked)
    text = serve.configuration(Path("/run/user/1000/its folder"), "192.0.2.1", 7410, "ann")
    assert f"UsePAM {'yes' if uid == 0 and locked else 'no'}\n" in text
    assert text.replace("UsePAM yes", "UsePAM no") == snapshot


@pytest.mark.parametrize(
    "text",
    [
        "nowhere",
        "1.2.3.4:0",
        "1.2.3.4:65536",
        "1.2.3.4:x",
        "1.2.3.4:",
        "::1",
        "0.0.0.0",  # noqa: S104
        "0.0.0.0:22",
        "127.1",
    ],
)
def test_places_that_are_none(text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        serve.place(text)
    assert str(refused.value) == snapshot


def test_a_place_is_free_and_this_machines() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--listen 127.0.0.1:{port}: Address already in use$"):
            serve.place(f"127.0.0.1:{port}")
    with pytest.raises(UserError, match=r"--listen 192.0.2.1: Cannot assign requested address$"):
        serve.place("192.0.2.1")
    address, port = serve.place("127.0.0.1")
    assert address == "127.0.0.1"
    assert port > 0


def test_of_several_addresses_one_is_to_be_named(host: ExampleHost) -> None:
    has(host, lo="127.0.0.1/8", eth0="192.168.7.2/24", wlan0="192.168.1.20/24")
    with pytest.raises(UserError, match=r"192.168.7.2 \(eth0\), 192.168.1.20 \(wlan0\)$"):
        serve.place("")


def test_what_is_missing_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "sshd", lambda: None)
    with pytest.raises(UserError, match="no sshd on this machine: install it"):
        serve.serve("127.0.0.1", lambda _: None)
    monkeypatch.setattr(rights, "sshd", lambda: "/usr/sbin/sshd")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(UserError, match="the user 4000000 has no account here"):
        serve.serve("127.0.0.1", lambda _: None)
