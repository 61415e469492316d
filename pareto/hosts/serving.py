"""`serve`: this machine as the server of a driver that has its token, without SSH.

Nothing that comes from the network is executed: the programs are these, of the code that is installed here; files are
named by the digest of their content, in a folder of their own, and Python among them only where the user allowed that
very file. One driver stays at a time. When it goes, whatever way, what was started for it ends.
"""

from __future__ import annotations

import platform
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil

from analysis.escaping import short
from pareto import __version__, jsonlines, messages
from pareto.backends.base import BackendError
from pareto.backends.handshake import ADMIT_S, Door, Place
from pareto.errors import UserError
from pareto.hosts import channel, shipping
from pareto.hosts.channel import Begin, Channel, Lacking, LastWords, Put, Start, Stored, Terms
from pareto.hosts.connection import GRACE_S
from pareto.hosts.host import DEVICE, environment_of
from pareto.hosts.received import NO_CODE, Files
from pareto.hosts.served_programs import Program, Settings
from pareto.jsonlines import SILENCE_LIMIT_S, Refused

FOLDER = Path(".pareto", "served")
"""In the user's home: what drivers send, and the logs of programs."""
MOST_CONNECTIONS = 32
"""Of those who have the token."""
NEXT_LINE_S = ADMIT_S + 10
"""For a line that whoever is connected has ready."""


@dataclass
class Stay:
    """A driver's: from its first connection to the end of that."""

    leads: Channel
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    programs: dict[int, Program] = field(default_factory=dict)
    ended: bool = False


class Serving:
    """The listening end. say: gets each line for the user."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        """Raises UserError."""
        self._settings = settings
        self._say = say
        self._interface = interface(settings.address)
        self._files = Files(settings.folder, settings.allowed)
        self._code = shipping.code()[1]
        self._stay: Stay | None = None
        self._numbers = 0
        self._guard = threading.Lock()
        self._connections: set[Channel] = set()
        self._threads: set[threading.Thread] = set()
        self._seal = channel.seal(settings.token)
        try:
            self._door = Door(
                settings.address, channel.proof(settings.token), self._let_in, "serve", settings.port
            )
        except OSError as error:
            raise UserError(f"--listen {settings.address}:{settings.port}: {error.strerror}") from None

    @property
    def port(self) -> int:
        return self._door.port

    def close(self) -> None:
        """Let nobody in any more, and end what runs."""
        self._door.close()
        with self._guard:
            connections, threads = list(self._connections), list(self._threads)
        for each in connections:
            each.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(2 * GRACE_S)

    def _let_in(self, sock: socket.socket, place: Place) -> None:
        """One who has proven the token; in a thread of its own."""
        come = None
        with self._guard:
            is_full = len(self._threads) >= MOST_CONNECTIONS
            if not is_full:
                self._threads.add(threading.current_thread())
        try:
            if is_full:
                return
            come = Channel(self._seal.sealed(sock, place, server=True))
            with self._guard:
                self._connections.add(come)
            self._converse(come)
        except (OSError, EOFError, BackendError, jsonlines.ProtocolError) as error:
            self._tell(f"a connection ended: {short(str(error) or type(error).__name__)}")
        finally:
            with self._guard:
                self._threads.discard(threading.current_thread())
                if come is not None:
                    self._connections.discard(come)
            if come is not None:
                come.close()
            sock.close()

    def _converse(self, come: Channel) -> None:
        """What the first line wants is done. Raises OSError, ProtocolError."""
        begun: list[Callable[[], None]] = []
        answers: messages.Answers = {
            Begin: lambda request: self._begin(request, come, begun),
            Start: lambda request: self._start(request, come, begun),
            Put: lambda request: self._put(request, come, begun),
        }
        try:
            _reply(come, answers)
        finally:
            for go_on in begun:
                go_on()

    # The connection that leads a driver's stay

    def _begin(self, request: Begin, come: Channel, begun: list[Callable[[], None]]) -> Terms:
        if request.code != self._code:
            raise Refused(
                f"another version of this program is there: {short(request.version)} at the driver, {__version__} "
                "where it is served: install the same on both"
            )
        stay = Stay(come)
        with self._guard:
            if self._stay is not None:
                raise Refused(f"another driver is there, at {self._stay.leads.peer}: wait until it has ended")
            self._stay = stay
        begun.append(lambda: self._lead(stay))
        own = self._settings
        return Terms(
            stay.name,
            platform.node(),
            self._interface,
            str(own.folder),
            sys.executable,
            own.device,
            own.threads,
            own.rpc,
        )

    def _lead(self, stay: Stay) -> None:
        """Answer until the driver goes, or falls silent; then end what was started for it."""
        handlers = messages.handlers(
            {
                Lacking: lambda request: [name for name in request.names if not self._files.has(name)],
                LastWords: lambda request: _last_words(stay, request.program),
            }
        )
        why = "left"
        try:
            self._tell(f"a driver at {stay.leads.peer} came")
            while line := stay.leads.line(SILENCE_LIMIT_S):
                request = jsonlines.parse(line)
                if request.get("op") != "ping":
                    stay.leads.send(jsonlines.answer(handlers, request))
        except TimeoutError:
            why = f"said nothing for {SILENCE_LIMIT_S:g} s"
        except (OSError, BackendError, jsonlines.ProtocolError) as error:
            why = f"was lost: {short(str(error))}"
        finally:
            self._end(stay)
            self._tell(f"the driver {why}")

    def _end(self, stay: Stay) -> None:
        with self._guard:
            stay.ended = True
            programs = list(stay.programs.values())
        ends = [threading.Thread(target=program.end) for program in programs]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        with self._guard:
            self._stay = None

    # The others

    def _mine(self, stay: str) -> Stay:
        """The stay of that name. Raises Refused."""
        if self._stay is None or self._stay.ended or not secrets.compare_digest(self._stay.name, stay):
            raise Refused("the driver's stay has ended")
        return self._stay

    def _start(self, request: Start, come: Channel, begun: list[Callable[[], None]]) -> int:
        argv = self._settings.argv(request.module, request.arguments)
        settings = self._settings
        environment = environment_of(str(settings.folder), self._interface, settings.threads)
        with self._guard:
            stay = self._mine(request.stay)
            self._numbers += 1
            number = self._numbers
            log = self._files.folder / f"{request.module}.log"
            program = stay.programs[number] = Program(argv, log, environment)
        begun.append(lambda: self._run(request.module, program, come))
        return number

    def _run(self, module: str, program: Program, come: Channel) -> None:
        self._tell(f"{module} runs")
        self._tell(f"{module} ended: {program.relay(come)}")

    def _put(self, request: Put, come: Channel, begun: list[Callable[[], None]]) -> None:
        self._may_come(request)
        begun.append(lambda: self._take(request, come))

    def _may_come(self, request: Put) -> None:
        with self._guard:
            self._mine(request.stay)
            if request.name.endswith(".py"):
                raise Refused(NO_CODE)
            self._files.make_room(request.size)

    def _take(self, request: Put, come: Channel) -> None:
        """Receive this file, and those that come after it."""
        following: list[Put] = []

        def stored(_: Stored) -> None:
            if fault:
                raise Refused(fault)

        def put(request: Put) -> None:
            self._may_come(request)
            following.append(request)

        nbytes = 0
        following.append(request)
        try:
            while following:
                request, fault = following.pop(), ""
                try:
                    self._files.take(request.name, request.size, come)
                except Refused as refusal:
                    fault = str(refusal)
                _reply(come, {Stored: stored})
                nbytes += 0 if fault else request.size
                _reply(come, {Put: put})
        finally:
            for each in following:
                self._files.forget(each.size)
        self._tell(f"{nbytes / 1e6:.1f} MB came")

    def _tell(self, words: str) -> None:
        self._say(f"{datetime.now().astimezone():%H:%M:%S} {words}")


def _reply(come: Channel, answers: messages.Answers) -> None:
    """Answer the next line, if one comes. Raises OSError, ProtocolError."""
    if line := come.line(NEXT_LINE_S):
        come.send(jsonlines.answer(messages.handlers(answers), jsonlines.parse(line)))


def _last_words(stay: Stay, number: int) -> str:
    program = stay.programs.get(number)
    return program.last_words if program is not None else ""


def interface(address: str) -> str:
    """The interface of this machine that has an IPv4 address. Raises UserError."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.family == socket.AF_INET and each.address == address for each in addresses):
            return name.partition(":")[0]  # eth0:1 is a label
    raise UserError(f"no interface of this machine has the address {address}")


def place(text: str, option: str) -> tuple[str, int]:
    """The address and port of ADDRESS[:PORT]. Raises UserError."""
    address, _, port = text.partition(":")
    try:
        socket.inet_pton(socket.AF_INET, address)
    except (OSError, ValueError):
        raise UserError(
            f"{option} {text!r}: use ADDRESS[:PORT], an IPv4 address such as 192.168.7.1"
        ) from None
    if port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise UserError(f"{option} {text!r}: a port is a number from 1 to 65535")
    return address, int(port or channel.PORT)


def serve(
    listen: str,
    token_file: Path,
    *,
    folder: Path | None,
    device: str,
    threads: int,
    rpc: bool,
    allowed: Sequence[Path],
    say: Callable[[str], None],
) -> int:
    """Serve until Ctrl-C; returns the exit code. Raises UserError."""
    address, port = place(listen, "--listen")
    if not DEVICE.fullmatch(device):
        raise UserError(f"--device {device!r}: use cpu, or cuda:0 for the first GPU")
    interface(address)
    if channel.new_token(token_file):
        say(f"wrote a new token into {token_file}: copy this file to the edge, and show it to nobody else")
    settings = Settings(
        address,
        port,
        channel.token(token_file),
        (folder or Path.home() / FOLDER).absolute(),
        device,
        threads,
        rpc,
        tuple(allowed),
    )
    serving = Serving(settings, say)
    try:
        say(f"listening on {address}:{port}; Ctrl-C ends it")
        while True:
            signal.pause()
    except KeyboardInterrupt:
        say("ending what runs")
    finally:
        serving.close()
    return 0
