"""Who gets in, and that whoever does not holds up nobody: over loopback."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from typing import Any

import pytest

from pareto.remote.backends import handshake
from pareto.remote.backends.handshake import ALONE, Door, Place, Rejected
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker.probe import ProbeClient, ProbeServer
from tests.unit.backends.builders import HERE, TOKEN, refusal

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


@pytest.fixture
def came() -> queue.SimpleQueue[tuple[socket.socket, Place]]:
    return queue.SimpleQueue()


@pytest.fixture
def opened(came: queue.SimpleQueue[tuple[socket.socket, Place]], undo: ExitStack) -> Door:
    return undo.enter_context(closing(Door(HERE, TOKEN, lambda *who: came.put(who), "test")))


def stranger(port: int, undo: ExitStack, address: str = HERE) -> tuple[socket.socket, bytes]:
    """A connection that is at the door, and the nonce that it was given."""
    sock = undo.enter_context(socket.create_connection((HERE, port), 30, (address, 0)))
    return sock, handshake.exactly(sock, handshake.NONCE_BYTES)


def is_waiting(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def is_let_go(sock: socket.socket) -> bool:
    """Waits for the end of the connection, or that something else comes."""
    sock.settimeout(30)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
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


class Clock:
    """In place of `time`: where somebody sleeps, only his own time goes on."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


class Dribbling:
    """A socket from which a byte comes each time, a second after the one before."""

    def __init__(self, clock: Clock, data: bytes) -> None:
        self._clock = clock
        self._data = data
        self.said = 0

    def settimeout(self, seconds: float | None) -> None: ...

    def recv(self, most: int) -> bytes:
        self._clock.sleep(1.0)
        self.said += 1
        return self._data[self.said - 1 : self.said]


@pytest.mark.parametrize(("bound_s", "in_time"), [(15.0, True), (14.5, False)])
def test_an_answer_is_bounded_in_all_and_not_by_the_byte(
    monkeypatch: pytest.MonkeyPatch, bound_s: float, in_time: bool
) -> None:
    clock = Clock()
    monkeypatch.setattr(handshake, "time", clock)
    peer: Any = Dribbling(clock, bytes(range(100)))
    with nullcontext() if in_time else pytest.raises(TimeoutError):
        assert handshake.exactly(peer, 15 + (not in_time), clock.monotonic() + bound_s) == bytes(range(15))
    assert peer.said == 15


def test_a_long_round_trip_gets_the_time_that_it_takes(
    opened: Door, undo: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "ADMIT_S", 0.0)
    monkeypatch.setattr(handshake, "_rtt_s", lambda _: 0.0)
    assert is_let_go(stranger(opened.port, undo)[0])
    monkeypatch.setattr(handshake, "_rtt_s", lambda _: 2.0)
    handshake.connected(HERE, opened.port, TOKEN).close()


def test_the_kernel_tells_the_round_trip(undo: ExitStack) -> None:
    with socket.create_server((HERE, 0)) as listener:
        undo.enter_context(socket.create_connection(listener.getsockname(), 30))
        with listener.accept()[0] as sock:
            assert 0 < handshake._rtt_s(sock) < 10


@pytest.mark.usefixtures("patient")
def test_where_too_many_wait_the_oldest_of_those_that_crowd_goes(
    opened: Door, undo: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "MOST_WAITING", 4)
    alone, nonce = stranger(opened.port, undo)
    crowd = [stranger(opened.port, undo, "127.0.0.2")[0] for _ in range(6)]
    assert all(map(is_let_go, crowd[:3]))
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


def test_who_is_let_go_each_time_gives_up(monkeypatch: pytest.MonkeyPatch, opened: Door) -> None:
    clock = Clock()
    monkeypatch.setattr(handshake, "time", clock)
    monkeypatch.setattr(handshake, "TIMEOUT_S", 200.0)
    monkeypatch.setattr(handshake, "_AGAIN_S", 60.0)
    monkeypatch.setattr(handshake, "ADMIT_S", -300.0)
    assert "without an answer" in refusal(handshake.connected, HERE, opened.port, TOKEN, by=Rejected)
    assert clock.slept_s == 180.0


def test_a_listener_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def connection(address: tuple[str, int], timeout_s: float) -> socket.socket:
        near, far = socket.socketpair()
        far.sendall(b"x")  # of a nonce, and then no more: the time is over when that is read
        undo.enter_context(far)
        return near

    def tune(sock: socket.socket) -> None:
        clock.sleep(handshake.TIMEOUT_S)

    with ExitStack() as undo, monkeypatch.context() as patched:
        patched.setattr(handshake, "time", clock)
        patched.setattr(handshake, "tune", tune)
        patched.setattr(socket, "create_connection", connection)
        with pytest.raises(TimeoutError):
            handshake.connected(HERE, 1, TOKEN)


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "another's answer": lambda nonce: handshake.answer(TOKEN, bytes(len(nonce)), ALONE),
    "another token": lambda nonce: handshake.answer("another", nonce, ALONE),
    "another place than was proven": lambda nonce: handshake.answer(TOKEN, nonce, ALONE)[:-1] + b"\2",
    "more than go together": lambda nonce: handshake.answer(TOKEN, nonce, Place(bytes(8), 0, 65)),
    "beyond its group": lambda nonce: handshake.answer(TOKEN, nonce, Place(bytes(8), 2, 2)),
    "of none": lambda nonce: handshake.answer(TOKEN, nonce, Place(bytes(8), 0, 0)),
    "nothing": lambda nonce: bytes(handshake.ANSWER_BYTES),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_refused_and_the_door_stays_open(
    opened: Door, came: queue.SimpleQueue[object], undo: ExitStack, wrong: str
) -> None:
    sock, nonce = stranger(opened.port, undo)
    sock.sendall(WRONG[wrong](nonce))
    assert handshake.exactly(sock, 2) == handshake.REFUSAL
    assert is_let_go(sock)
    handshake.connected(HERE, opened.port, TOKEN).close()
    came.get(timeout=30)
    assert came.empty()


def test_an_answer_counts_to_its_last_bit_and_for_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = bytes(handshake.NONCE_BYTES)
    sound = handshake.answer(TOKEN, nonce, ALONE)
    assert handshake.checked(TOKEN, nonce, sound) == ALONE
    for bit in range(8 * len(sound)):
        wrong = (int.from_bytes(sound, "big") ^ 1 << bit).to_bytes(len(sound), "big")
        assert "wrong token" in refusal(handshake.checked, TOKEN, nonce, wrong, by=Rejected)
    monkeypatch.setattr(handshake, "VERSION", handshake.VERSION + 1)
    assert "version" in refusal(handshake.checked, TOKEN, nonce, sound, by=Rejected)


def test_a_flood_fills_no_log(
    opened: Door, undo: ExitStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(handshake, "SAY_S", 1000.0)
    nonces = set()
    for _ in range(50):
        sock, nonce = stranger(opened.port, undo)
        nonces.add(nonce)
        sock.sendall(bytes(handshake.ANSWER_BYTES))
        assert handshake.exactly(sock, 2) == handshake.REFUSAL
        is_let_go(sock)
    assert len(nonces) == 50, "each has its own"
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_closing_turns_everybody_away_and_frees_the_port(opened: Door, undo: ExitStack) -> None:
    sock, _ = stranger(opened.port, undo)
    opened.close()
    assert is_let_go(sock)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HERE, opened.port), 30)
