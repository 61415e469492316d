"""dask in a fleet: its scheduler, a run's own or one that is there, a driver's client, a member's worker."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import COMMAND
from pareto.errors import UserError, one_line
from pareto.fleet.certificates import MAKE, pems, security
from partitions import scratch

if TYPE_CHECKING:
    from distributed import Client, Worker

REQUIREMENTS = "requirements-fleet.txt"
LOOPBACK = "127.0.0.1"
PORT = 8786
"""Where a scheduler listens unless its address says another: dask's own."""
RESOURCE = "testbed"
"""What a worker has one of that is a member, and a task needs."""
LOST = signal.SIGUSR1
"""Interrupts the main thread when the scheduler is gone: SIGINT is ignored by what a script starts beside itself."""
CONNECT_S, ANSWER_S, LEAVE_S = 30, 5, 5.0
ADMIT_S, MOST_WAITING = 10.0, 256
"""How long a connection may take to show its certificate, and how many may be about to."""
JOIN_S = 60.0
"""Until a scheduler that is there has let a member in."""
SETTINGS = {
    # The driver itself gives a task again: a task that always ends its worker would end one after the other.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.comm.timeouts.connect": f"{CONNECT_S}s",
    # What looks at threads, memory and GPUs now and then would disturb what is measured.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.low-level-log-length": 100,
    "distributed.diagnostics.nvml": False,
    "distributed.worker.daemon": False,
}
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")


def require() -> None:
    """Get dask.distributed ready. Raises UserError where it is missing."""
    if importlib.util.find_spec("distributed") is None:
        raise UserError(
            "several testbeds at once need the package distributed: install it by "
            f".venv/bin/python -m pip install -r {REQUIREMENTS}"
        )
    import logging

    import dask
    import distributed  # noqa: F401  (it sets up its loggers)
    from distributed.comm import tcp

    dask.config.set(SETTINGS)
    tcp.TLSListener._prepare_stream = admitted
    for name in list(logging.root.manager.loggerDict):  # what they say is no line for the user
        if name.partition(".")[0] in ("asyncio", "distributed", "tornado", "bokeh"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def checked(option: str, address: str, certificates: Path | None) -> dict[str, str]:
    """The texts of the certificates (`pems`) with which a scheduler at this address lets one in.

    Raises UserError, also for an address that is none, or that anybody may reach.
    """
    parts = _ADDRESS.fullmatch(address)
    if not parts or int(parts[3] or 0) >= 1 << 16:
        raise UserError(f"{option} {address}: write it as tls://HOST:{PORT}")
    if parts[1] == "tcp":
        raise UserError(
            f"{option} {address}: whoever reaches it may run code on every testbed: use tls://{parts[2]}:"
            f"{parts[3] or PORT}, with certificates by {MAKE}"
        )
    if certificates is None:
        raise UserError(f"{option} {address}: it needs --certificates DIR, the folder that {MAKE} wrote")
    return pems(certificates)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def own(texts: dict[str, str]) -> Iterator[Client]:
    """A client of a scheduler in this process, which ends with it. Raises UserError where it cannot listen."""
    from distributed import Client, Scheduler, SpecCluster

    # No workers: members are processes of this program, here as elsewhere (`pareto.fleet.member`).
    scheduler = {"cls": bare(Scheduler), "options": _options(LOOPBACK, 0, texts)}
    with (
        SpecCluster({}, scheduler, security=security(texts), silence_logs=False) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _options(host: str, port: int, texts: dict[str, str]) -> dict[str, Any]:
    return {
        "protocol": "tls://",
        "host": host,
        "port": port,
        "security": security(texts),
        "dashboard": has_dashboard(),
        "dashboard_address": f"{LOOPBACK}:0",
    }


def bare(server: Any) -> Any:
    """A class of dask's servers without what a fleet has no use for: the HTTP server, which would answer anybody, where
    there is no dashboard to show, and the folder for data that is swapped out, which a kill would leave.
    """

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        with scratch.folder() as folder:
            server.__init__(self, *arguments, local_directory=str(folder), **options)
            self._workdir.release()
        sys.path.remove(self.local_directory)  # else whoever makes it again could put modules there

    without = (
        {}
        if has_dashboard() and server.__name__ == "Scheduler"
        else {"start_http_server": lambda *_, **__: None}
    )
    return type(server.__name__, (server,), {"__init__": begin, **without})


async def _started(server: Any) -> Any:
    """One of dask's servers, when it is ready. Raises OSError, TimeoutError, ValueError."""
    try:
        return await server
    except RuntimeError as error:  # in which dask wraps what is wrong
        raise error.__cause__ or error from None


async def admitted(listener: Any, stream: Any, _: str) -> Any:
    """A stream of who has shown a certificate in time; None of who has not: it is turned away.

    dask itself would wait for ever, and its scheduler spins when it has no more files to open.
    """
    waiting = vars(listener).setdefault("waiting", set())
    late = asyncio.get_running_loop().call_later(ADMIT_S, stream.close)
    waiting.add(stream)
    try:
        if len(waiting) > MOST_WAITING:
            next(iter(waiting)).close()
        await stream.wait_for_handshake()
        return stream
    except OSError:
        return None
    finally:
        late.cancel()
        waiting.discard(stream)


def serve(address: str, texts: dict[str, str], say: Callable[[str], None]) -> None:
    """Be a scheduler until interrupted. Raises UserError where it cannot listen, KeyboardInterrupt."""
    from distributed import Scheduler

    parts = _ADDRESS.fullmatch(address)
    assert parts is not None  # noqa: S101  (as checked)
    options = _options(parts[2], int(parts[3] or PORT), texts)

    async def listen() -> None:
        try:
            scheduler = await _started(bare(Scheduler)(**options))
        except (OSError, ValueError) as error:
            raise UserError(f"--listen {address}: {error}") from None
        join = f"{COMMAND} fleet join --scheduler {address} --certificates DIR"
        say(f"listening at {scheduler.address}; a testbed joins by: {join}")
        if page := _page(scheduler.identity()):
            say(f"dask's dashboard: {page}")
        await scheduler.finished()

    asyncio.run(listen())


def client(address: str, certificates: Path | None) -> Client:
    """A client of a scheduler that is there. Raises UserError where it does not answer."""
    from distributed import Client

    let_in = security(checked("--cluster", address, certificates))
    try:
        return Client(address, security=let_in, set_as_default=False, timeout=CONNECT_S)
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(
            f"no scheduler answers at {address}: {COMMAND} fleet scheduler ({why(error)})"
        ) from None


def why(error: BaseException) -> str:
    """What keeps one from a scheduler, in words."""
    from distributed.comm import CommClosedError
    from distributed.comm.core import FatalCommClosedError

    error = error.__cause__ if isinstance(error.__cause__, CommClosedError) else error
    if isinstance(error, FatalCommClosedError):
        return "it has other certificates"
    if isinstance(error, CommClosedError):
        return "it hangs up: is it one of pareto's, and does it speak tls://?"
    return one_line(error)


def has_dashboard() -> bool:
    return importlib.util.find_spec("bokeh") is not None


def dashboard(client: Client) -> str:
    """The address of the scheduler's dashboard; empty where it has none, or has it on another machine's loopback."""
    info = client.scheduler_info()
    parts = _ADDRESS.fullmatch(info["address"])
    return _page(info) if parts and _is_loopback(parts[2]) else ""


def _page(scheduler: Mapping[str, Any]) -> str:
    """The address of a dashboard, by what a scheduler says of itself; empty where it has none."""
    port = scheduler["services"].get("dashboard")
    return f"http://{LOOPBACK}:{port}/status" if port else ""


class Joined:
    """A member's worker at a scheduler, in a thread of its own; when it ends by itself, the main thread is interrupted.

    names: what it may be called: it takes the first that nobody else has who is still there.
    """

    def __init__(self, scheduler: str, texts: dict[str, str], names: Iterable[str]) -> None:
        self.name = ""
        self.is_broken = False
        self._scheduler = scheduler
        self._texts = texts
        self._names = tuple(names)
        self._ends = False
        self._is_in: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Raises OSError, TimeoutError, ValueError where the scheduler does not let it in."""
        self._thread.start()
        self._is_in.result()

    def close(self) -> None:
        """Leave the scheduler."""
        self._ends = True
        if self._worker is not None and not self.is_broken:
            with suppress(RuntimeError, TimeoutError):
                leaving = self._worker.close(timeout=1, executor_wait=False, reason="leaves")
                asyncio.run_coroutine_threadsafe(leaving, self._loop).result(LEAVE_S)
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._is_in.done():
                self._is_in.set_exception(error if isinstance(error, Exception) else OSError(str(error)))
                return
        if not self._ends:
            self.is_broken = True
            os.kill(os.getpid(), LOST)

    async def _serve(self) -> None:
        from distributed import Worker
        from distributed.comm import get_address_host
        from distributed.utils import get_ip

        ip = get_ip(get_address_host(self._scheduler))
        options: dict[str, Any] = {
            "host": f"[{ip}]" if ":" in ip else ip,  # else it listens on all addresses
            "nthreads": 1,
            "resources": {RESOURCE: 1},
            "security": security(self._texts),
            "memory_limit": 0,
            "dashboard": False,
            "heartbeat_interval": "1s",
            "death_timeout": JOIN_S,
        }
        while self._worker is None:
            self.name = await self._free_name(options["security"].get_connection_args("worker"))
            try:
                self._worker = await _started(bare(Worker)(self._scheduler, name=self.name, **options))
            except ValueError as error:
                if "name taken" not in str(error):  # else another was faster
                    raise
        self._is_in.set_result(None)
        await self._worker.finished()

    async def _free_name(self, arguments: dict[str, Any]) -> str:
        """The first name that nobody has who answers. Raises OSError where the scheduler does not, ValueError.

        Who does not answer has been killed, or its machine has: this member may be the same one, started again before
        the scheduler noticed. Under another name its testbed would be two.
        """
        from distributed.comm import connect
        from distributed.core import rpc

        async with rpc(self._scheduler, timeout=CONNECT_S, connection_args=arguments) as scheduler:
            workers = (await scheduler.identity())["workers"]
            there = {worker["name"]: address for address, worker in workers.items()}
            for name in self._names:
                if name not in there:
                    return name
                try:
                    await (await connect(there[name], timeout=ANSWER_S, **arguments)).close()
                except OSError:
                    await scheduler.unregister(address=there[name], stimulus_id="back")
                    return name
        raise ValueError(f"{self._names[0]} is there already")
