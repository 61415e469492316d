"""A machine that serves a driver without SSH, and the driver's end: over loopback, with the monitor as the program."""

from __future__ import annotations

import hashlib
import os
import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import host_messages
from pareto.errors import UserError
from pareto.hosts import channel, received, serving, shipping
from pareto.hosts.channel import Put
from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.served_testbed import Served, open_served
from pareto.hosts.serving import Serving, Settings
from pareto.hosts.session import Heartbeat, Session, SessionError, SessionLost
from pareto.hosts.shipping import Parcel
from tests.program import descendants, wait_until

HERE = "127.0.0.1"
TOKEN = "ab" * 32
MONITOR = "pareto.worker.monitor"
CEILING_S = 60.0
"""Against hanging."""


@dataclass
class Bench:
    """One that serves; lines: what it says."""

    settings: Settings
    serving: Serving
    lines: queue.SimpleQueue[str]
    undo: ExitStack

    def connect(self, token: str = TOKEN) -> Served:
        beat = Heartbeat(60.0)
        self.undo.callback(beat.stop)
        served = Served(HERE, self.serving.port, token, beat)
        self.undo.callback(served.close)
        return served

    def hears(self, words: str) -> str:
        while words not in (line := self.lines.get(timeout=CEILING_S)):
            pass
        return line


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    with ExitStack() as undo:
        yield undo


Serve = Callable[..., Bench]


@pytest.fixture
def serve(undo: ExitStack, tmp_path: Path) -> Serve:
    def start(**settings: object) -> Bench:
        wanted = replace(Settings(HERE, 0, TOKEN, tmp_path / "served"), **settings)  # type: ignore[arg-type]
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        made = Serving(wanted, lines.put)
        undo.callback(made.close)
        return Bench(wanted, made, lines, undo)

    return start


@pytest.fixture
def bench(serve: Serve) -> Bench:
    return serve()


def named(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()}.safetensors"


def watching(session: Session) -> None:
    """Ask the monitor something, so that it runs."""
    session.ask(host_messages.BeginSampling(os.getpid(), 0.05, None), CEILING_S)


def monitors() -> int:
    return len(descendants(os.getpid(), MONITOR))


def test_a_program_runs_as_long_as_its_connection(bench: Bench) -> None:
    served = bench.connect()
    assert served.terms.hostname
    assert served.terms.interface == "lo"
    session = served.program(MONITOR, [])
    watching(session)
    assert monitors() == 1
    session.close()
    assert bench.hears("ended").endswith(f"{MONITOR} ended: exit status 0")
    assert monitors() == 0


def test_when_the_driver_goes_its_programs_end_and_another_may_come(bench: Bench) -> None:
    served = bench.connect()
    watching(served.program(MONITOR, []))
    with pytest.raises(Unreachable, match="another driver is there, at 127"):
        bench.connect()
    served.close()
    bench.hears("the driver left")
    assert monitors() == 0
    watching(bench.connect().program(MONITOR, []))


def test_a_driver_that_says_nothing_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SILENCE_LIMIT_S", 0.3)
    served = bench.connect()
    bench.hears("the driver said nothing")
    with pytest.raises(Unreachable):
        served.program(MONITOR, [])


def test_a_lost_driver_comes_again(bench: Bench) -> None:
    served = bench.connect()
    first = served.terms.stay
    served.renew()
    assert served.terms.stay == first, "it answers"
    bench.serving._stay.leads.close()  # type: ignore[union-attr]
    bench.hears("the driver")
    served.renew()
    assert served.terms.stay != first
    watching(served.program(MONITOR, []))


def test_whoever_serves_ends_everything_when_it_ends(bench: Bench) -> None:
    session = bench.connect().program(MONITOR, [])
    watching(session)
    bench.serving.close()
    assert monitors() == 0
    with pytest.raises(SessionLost):
        session.ask(host_messages.GetLatestSample(), CEILING_S)


def test_who_gets_in(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreachable, match="wrong token"):
        bench.connect("cd" * 32)
    monkeypatch.setattr(shipping, "code", lambda: (b"", "0" * 64))
    with pytest.raises(Unreachable, match="another version"):
        bench.connect()
    monkeypatch.undo()
    bench.connect()


def test_somebody_without_the_key_hears_nothing(bench: Bench) -> None:
    """One who proves the token by passing on what a driver proves, say."""
    from pareto.backends import handshake

    with handshake.connected(HERE, bench.serving.port, channel.proof(TOKEN)) as sock:
        sock.settimeout(CEILING_S)
        sock.sendall(bytes(32 + 4 + 2 + 16) + b"x" * 200)
        came = b""
        while part := sock.recv(1000):
            came += part
    assert len(came) <= 32 + 4 + 2 + 16, "its random bytes, and its sealed proof"
    bench.hears("a connection ended")
    bench.connect()


@pytest.mark.parametrize(
    "wanted",
    [
        ("os", []),
        ("pareto", ["doctor"]),
        ("pareto.worker", ["--device", "cuda:0"]),
        ("pareto.worker", ["--threads", "1", "--confined"]),
        ("pareto.worker", ["--confined", "/"]),
        ("pareto.worker", ["--congestion", "reno; reboot"]),
        (MONITOR, ["--sysfs", "/"]),
    ],
)
def test_only_its_own_programs_run(bench: Bench, wanted: tuple[str, list[str]]) -> None:
    with pytest.raises(Unreachable, match="served"):
        bench.connect().program(*wanted)
    assert not descendants(os.getpid(), wanted[0]) or wanted[0] == "os"


def test_a_command_is_not_run(bench: Bench) -> None:
    with pytest.raises(Unreachable, match="no commands"):
        bench.connect().run("true")


def test_files_are_taken_once_and_are_what_their_names_say(bench: Bench) -> None:
    served, content, small = bench.connect(), b"weights" * 300_000, b"few"
    name, other = named(content), named(small)
    assert served.lacking([name, other]) == {name, other}
    sent = list[int]()
    served.send([Parcel.of(content, name), Parcel.of(small, other)], sent.append)
    assert (bench.settings.folder / name).read_bytes() == content
    assert (bench.settings.folder / other).read_bytes() == small
    assert sum(sent) == len(content) + len(small)
    assert served.lacking([name, other]) == set()
    with pytest.raises(Unreachable, match="damaged"):
        served.send([Parcel.of(b"others", named(b"weights"))])
    with pytest.raises(Unreachable):
        served.send([Parcel.of(b"x", "../a.safetensors")])
    assert {path.name for path in bench.settings.folder.glob("*.safetensors")} == {name, other}
    assert not list(bench.settings.folder.glob("*.part"))


def test_code_is_taken_only_from_the_user_of_that_machine(serve: Serve, tmp_path: Path) -> None:
    (mine := tmp_path / "mine.py").write_text("x = 1\n")
    served = serve(allowed=(mine,)).connect()
    code = f"{hashlib.sha256(b'x = 1' + bytes([10])).hexdigest()}.py"
    assert served.lacking([code]) == set()
    other = f"{hashlib.sha256(b'x = 2').hexdigest()}.py"
    with pytest.raises(Unreachable, match="--allow FILE"):
        served.lacking([other])
    with pytest.raises(Unreachable, match="--allow FILE"):
        served.send([Parcel.of(b"x = 2", other)])


def test_code_that_was_allowed_once_is_not_for_ever(serve: Serve, tmp_path: Path) -> None:
    (mine := tmp_path / "mine.py").write_text("x = 1\n")
    serve(allowed=(mine,)).serving.close()
    first = serve(folder=tmp_path / "other", allowed=(mine,))
    first.serving.close()
    first.serving._files._lock.close()
    again = serve(folder=tmp_path / "other")
    assert not list(again.settings.folder.glob("*.py"))


def test_a_folder_is_one_serves(bench: Bench, serve: Serve) -> None:
    with pytest.raises(UserError, match="another serve uses it"):
        serve()


@pytest.mark.parametrize(
    "name",
    ["mine.py", "notes.part", "old.safetensors", "sub", "inductor", f"{'a' * 64}.safetensors", ".lock"],
)
def test_a_folder_with_anything_else_in_it_is_left_alone(serve: Serve, tmp_path: Path, name: str) -> None:
    (folder := tmp_path / "mine").mkdir()
    own = folder / name
    if name == ".lock":
        own.symlink_to(tmp_path / "victim")
    elif name == "sub":
        own.mkdir()
    else:
        own.write_text("mine")
    with pytest.raises(UserError, match=f"{name} is not its own"):
        serve(folder=folder)
    assert [*folder.iterdir()] == [own]
    assert not (tmp_path / "victim").exists()


def test_what_the_user_puts_beside_its_files_is_seen_at_the_next_start(serve: Serve, tmp_path: Path) -> None:
    first = serve(folder=tmp_path / "other")
    first.serving.close()
    first.serving._files._lock.close()
    (tmp_path / "other" / "mine.py").touch()
    with pytest.raises(UserError, match="mine"):
        serve(folder=tmp_path / "other")


def test_room_is_kept_for_files_that_are_on_their_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MOST_KEPT_BYTES", 25)
    monkeypatch.setattr(received, "LEAST_FREE_BYTES", 0)
    served = bench.connect()
    wires = [channel.opened(HERE, bench.serving.port, TOKEN) for _ in range(3)]
    for wire, content in zip(wires[:2], (b"x" * 10, b"y" * 10), strict=True):
        Session(SERVER, wire).ask(Put(served.terms.stay, named(content), 10))
    with pytest.raises(SessionError, match="no room"):
        Session(SERVER, wires[2]).ask(Put(served.terms.stay, named(b"z" * 10), 10))
    for wire in wires:
        wire.close()
    assert wait_until(lambda: not bench.serving._files._coming)
    served.send([Parcel.of(b"z" * 10, named(b"z" * 10))])


def test_the_oldest_files_make_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MOST_KEPT_BYTES", 25)
    monkeypatch.setattr(received, "MOST_FILE_BYTES", 20)
    monkeypatch.setattr(received, "LEAST_FREE_BYTES", 0)
    served = bench.connect()
    contents = [bytes([number]) * 10 for number in range(3)]
    for age, content in enumerate(contents):
        served.send([Parcel.of(content, named(content))])
        if age < 2:
            os.utime(bench.settings.folder / named(content), (age, age))
    assert served.lacking(list(map(named, contents))) == {named(contents[0])}
    with pytest.raises(Unreachable, match="at most"):
        served.send([Parcel.of(bytes(30), named(bytes(30)))])


def test_a_file_of_somebody_whose_stay_is_over_is_not_taken(bench: Bench) -> None:
    old = bench.connect()
    stay = old.terms.stay
    old.close()
    bench.hears("left")
    bench.connect()
    wire = channel.opened(HERE, bench.serving.port, TOKEN)
    with pytest.raises(SessionError, match="has ended"):
        Session(SERVER, wire).ask(Put(stay, named(b"x"), 1))
    wire.close()


def test_a_file_that_does_not_come_whole_is_not_kept(bench: Bench) -> None:
    served = bench.connect()
    wire = channel.opened(HERE, bench.serving.port, TOKEN)
    Session(SERVER, wire).ask(Put(served.terms.stay, named(b"xy"), 2))
    wire.send(b"x")
    wire.close()
    assert wait_until(lambda: not list(bench.settings.folder.glob("*.part")))
    assert served.lacking([named(b"xy")])


def test_what_a_program_says_at_its_end_is_heard(bench: Bench) -> None:
    """One that has no such congestion control, say: a worker that cannot start says why."""
    session = bench.connect().program(MONITOR, [])
    watching(session)
    (child,) = descendants(os.getpid(), MONITOR)
    child.kill()
    with pytest.raises(SessionLost, match="killed by signal 9"):
        session.ask(host_messages.GetLatestSample(), CEILING_S)


def test_a_testbed_by_hand(serve: Serve, undo: ExitStack, tmp_path: Path) -> None:
    bench = serve(threads=3)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with pytest.raises(TestbedError, match="--backend tcp"):
        open_served(HERE, bench.serving.port, file, threads=2, rpc=True)
    bench.hears("left")
    bed = open_served(HERE, bench.serving.port, file, threads=2, rpc=False)
    undo.callback(bed.close)
    assert [remote.host.threads for remote in bed.remotes.values()] == [2, 3]
    assert [link.name for link in bed.links] == [f"{EDGE}-{SERVER}"]
    content = b"weights"
    path = bed.remotes[SERVER].ship(content, named(content))
    assert Path(path).read_bytes() == content
    bed.close()
    bench.hears("left")


@pytest.mark.parametrize(
    ("text", "mode"),
    [(TOKEN, 0o644), ("short", 0o600), ("A" * 64, 0o600), (None, 0)],
)
def test_token_files_that_are_none(
    text: str | None, mode: int, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    with pytest.raises(UserError) as raised:
        channel.token(file)
    assert str(raised.value).replace(str(tmp_path), "") == snapshot


def test_a_new_token_is_its_owners_alone_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert channel.new_token(file)
    assert file.stat().st_mode & 0o777 == 0o600
    text = channel.token(file)
    assert not channel.new_token(file)
    assert channel.token(file) == text
    assert channel.proof(text) != text


@pytest.mark.parametrize("text", ["nowhere", "1.2.3.4:0", "1.2.3.4:x", "::1", ""])
def test_places_that_are_none(text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as raised:
        serving.place(text, "--listen")
    assert str(raised.value) == snapshot
    assert serving.place("1.2.3.4", "") == ("1.2.3.4", channel.PORT)
    assert serving.place("1.2.3.4:5", "") == ("1.2.3.4", 5)


def test_where_nobody_listens_one_line_says_so() -> None:
    with socket.create_server((HERE, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unreachable, match="start serve"):
        channel.opened(HERE, port, TOKEN)
