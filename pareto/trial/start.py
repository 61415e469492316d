"""The start of a run: its testbed, and what is said and recorded of hosts and links before the first trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from pareto.analysis.naming import listed
from pareto.hosts import inventory
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import Say, TestbedError, to_stderr
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.testbed import Testbed
from pareto.partitions.engines import registry as engines
from pareto.protocol.errors import UserError
from pareto.remote.link.profile import Profile
from pareto.sweep.networks import Networks
from pareto.sweep.sweep import Sweep
from pareto.trial.any_workers import AnyWorkers
from pareto.trial.model_upload import Meter
from pareto.trial.probes import in_words, prospects
from pareto.trial.workers import Workers


def testbed_of(sweep: Sweep, profiles: Iterable[Profile], say: Say = to_stderr) -> Testbed:
    """The testbed of a sweep, whose links get these profiles. say: takes lines. Raises TestbedError."""
    how: Any = {"shape_at": sweep.shape_at, "alone": sweep.alone, "wait_s": sweep.wait or 0.0, "say": say}
    if sweep.testbed == THIS_MACHINE:
        from pareto.hosts.local.testbed import open_local

        return open_local(
            hosts=sweep.hosts or 2,
            edge_cpu=sweep.edge_cpu,
            memory=sweep.edge_memory,
            threads=sweep.threads or 1,
            device=sweep.device,
            tcp=sweep.tcp,
            **how,
        )
    from pareto.hosts.ssh.testbed import open_ssh_testbed

    shaped = not sweep.alone and any(profile.shaped for profile in profiles)
    return open_ssh_testbed(inventory.load(Path(sweep.testbed)), shaped=shaped, **how)


def started(
    console: Console,
    workers: AnyWorkers,
    bed: Testbed,
    sweep: Sweep,
    networks: Networks,
    show: Callable[[str], None],
) -> dict[str, Any]:
    """The session's record of the workers, which are started, and sent what they need. show: takes on a terminal what
    is done now. Raises TestbedError."""
    with unbroken(bed):
        workers.start()
        record: dict[str, Any] = {"hosts": workers.facts()}
        check_engines(sweep.engines, record["hosts"])
        print_versions(console, record["hosts"])
        for roles in bed.facts.get("on_one_core", ()):
            console.print(
                f"attention: {listed(roles)} share one physical core: each is slower while the other computes, and no "
                "throughput is its own"
            )
        if isinstance(workers, Workers):
            send(workers, bed, console, show)
            if not bed.is_local:
                record["bare_links"] = bare_links(console, workers, sweep, networks)
    return record


def send(workers: Workers, bed: Testbed, console: Console, show: Callable[[str], None]) -> None:
    """Send the hosts what they need, and say how far that is. Raises TestbedError."""
    with unbroken(bed, "the hosts did not get what they need"):
        workers.send(Meter(console, show))
    show("starting")


def check_engines(texts: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises UserError for an engine that a host cannot use. hosts: their facts, by role."""
    for role, facts in hosts.items():
        for name in sorted({engines.parse(text).of(role) for text in texts}):
            is_known = name in (engines.EAGER, *facts.get("engines", [name]))
            unknown = "" if is_known else "install the package there that offers it here"
            if lacks := facts.get("without_engines", {}).get(name, unknown):
                raise UserError(f"--engine: the {role} has no {name}: {lacks}")


@contextmanager
def unbroken(bed: Testbed, fault: str = "the workers did not start") -> Iterator[None]:
    """A context for what hosts may break off. Raises TestbedError for that: this fault, and why."""
    try:
        yield
    except FAULTS as error:
        raise TestbedError(f"{fault}: {bed.lost() or error}") from error


def print_versions(console: Console, hosts: Mapping[str, Mapping[str, Any]]) -> None:
    """Print which versions differ: another one may compute with other kernels, and trace another graph."""
    for package in ("torch", "torchvision"):
        versions = {role: facts[package] for role, facts in hosts.items()} | {"driver": version(package)}
        if len({installed.partition("+")[0] for installed in versions.values()}) > 1:
            each = ", ".join(f"{installed} on the {role}" for role, installed in versions.items())
            console.print(f"versions differ: {package} {each}")


def bare_links(console: Console, workers: Workers, sweep: Sweep, networks: Networks) -> dict[str, Any]:
    """The readings of the real links before anything is emulated on them, for the session's record. Prints them, and
    which profiles they cannot be made to follow."""
    links = workers.bare_links()
    for number, (name, link) in enumerate(links.items()):
        which = f"the link {name}" if len(links) > 1 else "the link"
        console.print(f"{which} itself: {in_words(link)}")
        for profile in dict.fromkeys(network[number] for network in networks.values()):
            for line in prospects(profile, link, sweep.link_tolerance):
                console.print(f"attention: {line}")
    rates = ("rtt_s", "rate_bps", "rate_back_bps")
    return {name: {rate: getattr(link, rate) for rate in rates} for name, link in links.items()}
