"""dask in a fleet: a scheduler that is there, or a run's own with a member's process for each of its testbeds.

dask unpickles what comes, so whoever is let in may run code on every member. So all speak TLS, with a certificate on
both sides; a run's own scheduler, which listens on loopback alone, takes only those with the run's own certificate.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pareto
from pareto.basics.files import refuse_shared, text
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.local import cpu
from pareto.partitions import scratch
from pareto.protocol.errors import UserError, one_line

if TYPE_CHECKING:
    from distributed import Client, Security

    from pareto.sweep.sweep import Sweep

LAUNCHER = Path(pareto.__file__).with_name("launcher.py")
REQUIREMENTS = "requirements-fleet.txt"
RESOURCE = "testbed"
"""The dask resource of which a worker that is a member has one, and a task needs one."""
CONNECT_S, END_S, LOOK_S = 30.0, 60.0, 0.5
"""Until a scheduler has let one in; until a member has put its testbed back; how often one looks who is there."""
SETTINGS = {
    # What looks at threads, memory and GPUs now and then would disturb what is measured.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.diagnostics.nvml": False,
    # A scheduler keeps the last messages, and each may be a trial with all its requests.
    "distributed.admin.low-level-log-length": 100,
    # Their HTTP servers, which answer anybody, have nothing to say.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
TLS = ("tls_ca_file",), ("tls_client_cert", "tls_worker_cert"), ("tls_client_key", "tls_worker_key")
Files = tuple[Path | None, Path | None, Path | None]
"""The files of `--tls-ca-file`, `--tls-cert` and `--tls-key`; `TLS` has what dask calls each."""


def require() -> None:
    """Get dask.distributed ready. Raises UserError where it is missing."""
    if importlib.util.find_spec("distributed") is None:
        install = f".venv/bin/python -m pip install -r {REQUIREMENTS}"
        raise UserError(f"several testbeds at once need the package distributed: install it by {install}")
    import logging
    import warnings

    import dask
    import distributed  # noqa: F401  (it sets up its loggers)

    dask.config.set(SETTINGS)
    warnings.filterwarnings("ignore", module="distributed")  # what they say is no line for the user
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("asyncio", "distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def security(option: str, address: str, files: Files) -> Security:
    """A driver's or a member's certificates: by these files, else by dask's own settings. Raises UserError."""
    if not address.startswith("tls://"):
        raise UserError(f"{option} {address}: write it as tls://HOST:PORT: others let anybody run code")
    require()
    from distributed import Security

    made = Security(require_encryption=True)
    for path, names in zip(files, TLS, strict=True):
        if path:
            text(path, "certificate")  # it says what is wrong with the file
            for name in names:
                setattr(made, name, str(path))
    if files[2]:
        refuse_shared(files[2], "--tls-key")
    try:
        if any(made.get_connection_args(role)["ssl_context"] for role in ("client", "worker")):
            return made
    except OSError as error:
        raise UserError(f"{option} {address}: its files are no certificates: {one_line(error)}") from None
    raise UserError(f"{option} {address}: it needs --tls-ca-file, --tls-cert and --tls-key")


@contextmanager
def opened(sweep: Sweep) -> Iterator[tuple[Client, Callable[[str], subprocess.Popen[str]]]]:
    """A client of a cluster, or of a scheduler of one's own, and what starts one's own members. Raises UserError."""
    from distributed import Client, LocalCluster

    started: list[subprocess.Popen[str]] = []
    with ExitStack() as undo:
        if sweep.cluster is not None:
            address, let_in = sweep.cluster, security("--cluster", sweep.cluster, sweep.tls_files)
            try:
                client = Client(address, security=let_in, set_as_default=False, timeout=CONNECT_S)
            except (OSError, ValueError) as error:
                raise refused(address, error) from None
        else:
            undo.callback(_end, started)  # which the end of their scheduler begins
            folder = undo.enter_context(scratch.folder())
            local = LocalCluster(
                n_workers=0,
                host="127.0.0.1",
                security=True,
                dashboard_address="127.0.0.1:0",
                silence_logs=False,
                scheduler_kwargs={"dashboard": False, "local_directory": str(folder)},
            )
            address, let_in = undo.enter_context(local).scheduler_address, local.security
            client = Client(local, set_as_default=False)

        def start(name: str) -> subprocess.Popen[str]:
            started.append(_member(sweep, address, let_in, name))
            return started[-1]

        undo.callback(_close, client)
        yield client, start


def _close(client: Client) -> None:
    """Close it, which may fail in any way where it looks for a scheduler that is gone: so much is said already."""
    with suppress(Exception):
        client.close()


def _end(members: list[subprocess.Popen[str]]) -> None:
    """Wait until they have put their testbeds back."""
    for process in members:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_S)
        process.kill()


def refused(address: str, error: BaseException) -> UserError:
    words = f"no scheduler at {address} lets this in: is it there (dask scheduler), with the same authority?"
    return UserError(f"{words} ({one_line(error.__cause__ or error)})")


def _member(sweep: Sweep, scheduler: str, let_in: Security, name: str) -> subprocess.Popen[str]:
    """A process that joins with a testbed of the sweep's (`member`), and ends when the scheduler does."""
    words = ("--scheduler", scheduler, "--testbed", sweep.testbeds[name], "--name", name)
    path, tls = os.environ.get("PYTHONPATH"), "DASK_DISTRIBUTED__COMM__TLS__"
    process = subprocess.Popen(  # noqa: S603  (this program)
        [sys.executable, str(LAUNCHER), "pareto", "fleet", "join", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,  # its last line says why it ended
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(LAUNCHER.parent.parent), path))),
            f"{tls}CA_FILE": let_in.tls_ca_file,  # the text itself: nobody else can read it there
            f"{tls}WORKER__CERT": let_in.tls_worker_cert,
            f"{tls}WORKER__KEY": let_in.tls_worker_key,
        },
        start_new_session=True,  # a Ctrl-C is the driver's, who ends its members in order
    )
    local = [name for name, testbed in sweep.testbeds.items() if testbed == THIS_MACHINE]
    cores = cpu.apart(len(local), 1 if sweep.alone else sweep.hosts or 2) if name in local else []
    if cores:
        os.sched_setaffinity(process.pid, cores[local.index(name)])
    return process
