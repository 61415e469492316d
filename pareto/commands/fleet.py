"""The command about a fleet that is more than one run's: `fleet join`."""

from __future__ import annotations

import platform
from pathlib import Path

from pareto.basics.escaping import say
from pareto.commands.help import OF_HOSTS, command, group, option

app = group(
    "fleet", "Testbeds on many machines, on which one sweep measures at once (run --cluster).", OF_HOSTS
)


@command(
    app,
    "fleet join --scheduler tls://192.0.2.1:8786 --testbed lab1.yaml --tls-ca-file ca.pem --tls-cert lab.pem "
    "--tls-key lab-key.pem",
)
def join(
    scheduler: str = option(..., "dask's scheduler: tls://HOST:PORT.", kind="ADDRESS"),
    testbed: str = option("local", "local, or a file that names hosts.", kind="FILE"),
    name: str = option("", "What rows call it.  [lab1@HOST for lab1.yaml]", kind="NAME"),
    tls_ca_file: Path | None = option(None, "The authority of its certificates.", kind="FILE"),
    tls_cert: Path | None = option(None, "This machine's certificate.", kind="FILE"),
    tls_key: Path | None = option(None, "Its key.", kind="FILE"),
) -> None:
    """Let the sweeps at a scheduler measure on a testbed of this machine's, until Ctrl-C."""
    from pareto.driver.fleet import cluster, member
    from pareto.hosts.access import require_testbed
    from pareto.sweep.checked_sweep import make_sweep

    let_in = cluster.security("--scheduler", scheduler, (tls_ca_file, tls_cert, tls_key))
    wanted = make_sweep({"model": "any", "testbed": testbed})
    if not wanted.simulated:
        require_testbed(wanted.testbed)
    member.join(scheduler, let_in, wanted.testbed, name or f"{wanted.testbed_name}@{platform.node()}", say)
