"""Who gets in, and that whoever does not holds up nobody: over loopback."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from unittest.mock import Mock

import pytest

from pareto.remote.backends import handshake
from pareto.remote.backends.handshake import ALONE, Door, Place, Rejected
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker.probe import ProbeClient, ProbeServer
from tests.unit.backends.builders import HERE, TOKEN, refusal
from tests.unit.far_end import Clock

STRANGERS = 100

ENDS = {
    "tcp": (TcpServer, TcpClient),
    "tcp:64": (TcpServer, lambda *to: TcpClient(*to, "64")),
    "probe": (ProbeServer, ProbeClient),
}


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as undo:
        yield undo


class Hall:
    """A door, and who came in by it."""

    def __init__(self) -> None:
        self.came: queue.SimpleQueue[tuple[socket.socket, Place]] = queue.SimpleQueue()
        self.door = Door(HERE, TOKEN, lambda *who: self.came.put(who), "test")
        self.port, self.close = self.door.port, self.door.close


@pytest.fixture
def opened() -> Iterator[Hall]:
    with closing(Hall()) as hall:
        yield hall


def stranger(port: int, undo: ExitStack, address: str = HERE) -> tuple[socket.socket, bytes]:
    """A connection that is at the door, and the nonce that it was given."""
    sock = undo.enter_context(socket.create_connection((HERE, port), 30, (address, 0)))
    return sock, handshake.exactly(sock, handshake.NONCE_BYTES)


def ended(sock: socket.socket, timeout_s: float = 30) -> bool:
    """Waits for the end of the connection, or that something else comes."""
    sock.settimeout(timeout_s)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def is_waiting(sock: socket.socket) -> bool:
    try:
        return not ended(sock, 0)
    except BlockingIOError:
        return True


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is turned away for being slow, as long as the test lasts."""
    monkeypatch.setattr(handshake, "ADMIT_S", 200.0)
    monkeypatch.setattr(handshake, "TIMEOUT_S", 200.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("says", [b"", b"x"], ids=["silent", "began to answer"])
def test_strangers_hold_up_nobody(kind: str, says: bytes, undo: ExitStack) -> None:
    server, client = ENDS[kind]
    listening = undo.enter_context(closing(server(HERE, TOKEN)))
    crowd = [stranger(listening.port, undo)[0] for _ in range(STRANGERS)]
    for sock in crowd:
        sock.sendall(says)
    client(HERE, listening.port, TOKEN).close()
    assert all(map(is_waiting, crowd))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Where somebody sleeps, only his own time goes on."""
    clock = Clock()
    monkeypatch.setattr(handshake, "time", clock)
    return clock


def test_an_answer_is_bounded_in_all_and_not_by_the_byte(clock: Clock) -> None:
    """A byte comes each time, a second after the one before."""
    peer: Any = Mock(recv=lambda most: (clock.sleep(1.0), bytes([int(clock.now_s)]))[1])
    assert handshake.exactly(peer, 15, clock.monotonic() + 15.0) == bytes(range(1, 16))
    with pytest.raises(TimeoutError):
        handshake.exactly(peer, 16, clock.monotonic() + 14.5)
    assert clock.now_s == 15.0 + 15.0


def test_long_round_trips_get_time(opened: Hall, undo: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_connection((HERE, opened.port), 30) as sock:
        assert 0 < handshake.rtt_s(sock) < 10, "the kernel tells it"
    monkeypatch.setattr(handshake, "ADMIT_S", 0.0)
    for rtt_s in (0.0, 2.0):
        monkeypatch.setattr(handshake, "rtt_s", lambda _, rtt_s=rtt_s: rtt_s)
        if rtt_s:
            handshake.connected(HERE, opened.port, TOKEN).close()
        else:
            assert ended(stranger(opened.port, undo)[0])


@pytest.mark.usefixtures("patient")
def test_of_too_many_the_oldest_goes(opened: Hall, undo: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MOST_WAITING", 4)
    alone, nonce = stranger(opened.port, undo)
    crowd = [stranger(opened.port, undo, "127.0.0.2")[0] for _ in range(6)]
    assert all(map(ended, crowd[:3]))
    assert all(map(is_waiting, [alone, *crowd[3:]]))
    alone.setblocking(True)
    alone.sendall(handshake.answer(TOKEN, nonce, ALONE))
    assert handshake.exactly(alone, 2) == handshake.WELCOME


def test_who_was_let_go_without_a_verdict_comes_again(undo: ExitStack) -> None:
    with socket.create_server((HERE, 0)) as listener:

        def answer() -> None:
            listener.accept()[0].close()
            sock, _ = listener.accept()
            undo.enter_context(sock)
            sock.sendall(bytes(handshake.NONCE_BYTES))
            said = handshake.exactly(sock, handshake.ANSWER_BYTES)
            assert handshake.checked(TOKEN, bytes(handshake.NONCE_BYTES), said) == ALONE
            sock.sendall(handshake.WELCOME)

        answering = threading.Thread(target=answer)
        answering.start()
        handshake.connected(HERE, listener.getsockname()[1], TOKEN).close()
        answering.join()


def test_who_hears_nothing_gives_up(monkeypatch: pytest.MonkeyPatch, clock: Clock, undo: ExitStack) -> None:
    with monkeypatch.context() as patched, closing(Hall()) as hall:
        for name, seconds in {"TIMEOUT_S": 200.0, "_AGAIN_S": 60.0, "ADMIT_S": -300.0}.items():
            patched.setattr(handshake, name, seconds)
        assert "without an answer" in refusal(handshake.connected, HERE, hall.port, TOKEN, by=Rejected)
        assert clock.now_s == 180.0
    near, far = map(undo.enter_context, socket.socketpair())
    far.sendall(b"x")  # of a nonce, and then no more: the time is over when that is read
    monkeypatch.setattr(handshake, "tune", lambda _: clock.sleep(handshake.TIMEOUT_S))
    monkeypatch.setattr(socket, "create_connection", lambda *_: near)
    with pytest.raises(TimeoutError):
        handshake.connected(HERE, 1, TOKEN)


def proof(token: str = TOKEN, place: Place = ALONE) -> Callable[[bytes], bytes]:
    return lambda nonce: handshake.answer(token, nonce, place)


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "another's answer": lambda nonce: handshake.answer(TOKEN, bytes(len(nonce)), ALONE),
    "another token": proof("another"),
    "another place than was proven": lambda nonce: handshake.answer(TOKEN, nonce, ALONE)[:-1] + b"\2",
    "more than go together": proof(place=Place(bytes(8), 0, 65)),
    "beyond its group": proof(place=Place(bytes(8), 2, 2)),
    "of none": proof(place=Place(bytes(8), 0, 0)),
    "nothing": lambda nonce: bytes(handshake.ANSWER_BYTES),
}


def test_a_wrong_answer_is_refused_and_the_door_stays_open(opened: Hall, undo: ExitStack) -> None:
    for wrong in WRONG.values():
        sock, nonce = stranger(opened.port, undo)
        sock.sendall(wrong(nonce))
        assert handshake.exactly(sock, 2) == handshake.REFUSAL
        assert ended(sock)
        handshake.connected(HERE, opened.port, TOKEN).close()
        opened.came.get(timeout=30)
        assert opened.came.empty()


def test_an_answer_counts_to_its_last_bit_and_for_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = bytes(handshake.NONCE_BYTES)
    sound = handshake.answer(TOKEN, nonce, ALONE)
    assert handshake.checked(TOKEN, nonce, sound) == ALONE
    for bit in range(8 * len(sound)):
        wrong = (int.from_bytes(sound, "big") ^ 1 << bit).to_bytes(len(sound), "big")
        assert "wrong token" in refusal(handshake.checked, TOKEN, nonce, wrong, by=Rejected)
    monkeypatch.setattr(handshake, "VERSION", handshake.VERSION + 1)
    assert "version" in refusal(handshake.checked, TOKEN, nonce, sound, by=Rejected)


def test_a_flood_fills_no_log_and_closing_turns_everybody_away_and_frees_the_port(
    opened: Hall, undo: ExitStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handshake, "SAY_S", 1000.0)
    nonces = set()
    for _ in range(50):
        sock, nonce = stranger(opened.port, undo)
        nonces.add(nonce)
        sock.sendall(bytes(handshake.ANSWER_BYTES))
        assert handshake.exactly(sock, 2) == handshake.REFUSAL
        ended(sock)
    assert len(nonces) == 50, "each has its own"
    assert len(capsys.readouterr().err.splitlines()) == 1
    sock, _ = stranger(opened.port, undo)
    opened.close()
    assert ended(sock)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, opened.port), 30)
