"""What a channel raises when its connection broke is what a session understands."""

from __future__ import annotations

from typing import cast

import paramiko
import pytest

from pareto.hosts.session import Heartbeat, Session, SessionLost
from pareto.hosts.ssh import ChannelWire


class Broken:
    """A channel whose connection is gone: paramiko tells it in several ways, by what it was about to do."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def sendall(self, data: bytes) -> None:
        raise self._error

    def close(self) -> None:
        raise self._error


@pytest.mark.parametrize("error", [EOFError(), OSError("Socket is closed"), paramiko.SSHException("rekey")])
def test_a_broken_connection_is_a_lost_session(error: Exception) -> None:
    wire = ChannelWire(cast(paramiko.Channel, Broken(error)), lambda: "the connection is lost")
    session = Session("pi", wire)
    session.ping()
    with pytest.raises(SessionLost, match="pi ended: the connection is lost"):
        session.check()
    with pytest.raises(SessionLost):
        session.request("facts")
    session.close()


def test_a_session_that_lives_passes_the_check() -> None:
    class Quiet(Broken):
        def sendall(self, data: bytes) -> None: ...

    session = Session("pi", ChannelWire(cast(paramiko.Channel, Quiet(EOFError())), lambda: ""))
    session.ping()
    session.check()


def test_one_lost_session_does_not_end_the_heartbeat() -> None:
    heartbeat = Heartbeat(0.01)
    lost = Session("pi", ChannelWire(cast(paramiko.Channel, Broken(EOFError())), lambda: ""))
    heartbeat.add(lost)
    try:
        while True:
            try:
                lost.check()
            except SessionLost:
                break
        assert heartbeat._thread.is_alive()
    finally:
        heartbeat.stop()
