"""A run's manifest: the record of how the run was made, and what that means for a run that goes on.

Nothing that a run's folder names is run, read, logged in to or imported before the user has named it too.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareto import COMMAND, __version__
from pareto.analysis.runs import comparable
from pareto.analysis.runs.manifest import FILE as MANIFEST
from pareto.analysis.runs.manifest import SHAPE, fitting
from pareto.basics.escaping import short
from pareto.hosts import inventory
from pareto.hosts.connection import FAULTS
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.hosts.testbed import Testbed
from pareto.partitions.recipe import OWN
from pareto.protocol.errors import UserError
from pareto.remote.backends import registry
from pareto.simulated.world import load
from pareto.sweep import dataset_names, profile_files
from pareto.sweep.checked_sweep import check_sweep, parse_requested
from pareto.sweep.networks import ALONG, Networks
from pareto.sweep.options import OPTIONS
from pareto.sweep.sweep import Sweep, coding, parse_sweep
from pareto.sweep.testbeds import several
from pareto.trial.store import Store, read_manifest, utc_now

if TYPE_CHECKING:
    from pareto.driver.runner import Tally
    from pareto.trial.any_workers import AnyWorkers

Records = Mapping[str, dict[str, Any]]
"""By model, what is recorded of it."""
SPENT = ("measuring", "probing", "watching", "driver_cpu")
"""The seconds of a `Tally` that a session's record has."""
ENDING = ("until", "budget")
"""Options that decide how long a run goes on, not what it measures."""
_PACKAGES = (
    *("torch", "torchvision", "safetensors", "paramiko", "pyroute2", "numpy", "scipy", "pandas"),
    "moocore",
)


def new_manifest(sweep: Sweep, models: Records, networks: Networks) -> dict[str, Any]:
    """The manifest of a run that begins; its sessions are added while it runs."""
    return {
        "pareto": __version__,
        "created_at": utc_now(),
        "sweep": sweep.model_dump(mode="json"),
        **_recorded(models, networks),
        "testbed": sweep.testbed,
        "testbed_hosts": _testbed_hosts(sweep),
        "simulated": sweep.simulated,
        "tls_cipher": registry.CIPHER if any(registry.parse(each).seal for each in sweep.backends) else None,
        **({"own_backends": _sources(sweep)} if sweep.own_backends else {}),
        "sessions": [],
    }


def _sources(sweep: Sweep) -> dict[str, str]:
    """By name, the digest of each of the user's own backends."""
    return {each.name: each.digest() for each in sweep.own_backends}


def session_begin(bed: Testbed, testbed_name: str) -> dict[str, Any]:
    """The facts that a session's record begins with: this machine's name, kernel and packages, and the testbed's."""
    machine = {"hostname": platform.node(), "kernel": platform.release(), "python": platform.python_version()}
    driver = {**machine, "packages": {name: version(name) for name in _PACKAGES}}
    return {"started_at": utc_now(), "driver": driver, "testbed_name": testbed_name, "testbed": bed.facts}


def session_end(tally: Tally, networks: Networks, workers: AnyWorkers, bed: Testbed) -> dict[str, Any]:
    """The facts that a session's record gets when it is over, however it ended."""
    links = {
        name: {
            link.name: {**profile.record(), "in_force": workers.shaped.get(name, {}).get(link.name)}
            for link, profile in zip(bed.links, network, strict=True)
        }
        for name, network in networks.items()
    }
    return {
        "ended_at": utc_now(),
        "links": links,
        "shaping": {link.name: _if_there(link.shaper.facts) for link in bed.links},
        "sampling": _if_there(workers.sampling),
        "sending": workers.sending(),
        "trials": tally.trials,
        "again": tally.again,
        "rebuilt": tally.rebuilt,
        **{f"{name}_s": round(getattr(tally, name), 3) for name in SPENT},
    }


def _if_there(facts: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    try:
        return facts()
    except FAULTS:  # the run has ended because of it: what is known is kept
        return None


def check_same(store: Store, sweep: Sweep, models: Records, networks: Networks) -> None:
    """Raises UserError where a run would go on with other models, profiles or hosts than it began with."""
    manifest = store.manifest()
    then, now = manifest.get("testbed_hosts"), _testbed_hosts(sweep)
    if sweep.fleet and then and now:  # one may be left out meanwhile, and another added
        both = then.keys() & now.keys()
        then, now = ({name: one[name] for name in both} for one in (then, now))
    if then != now:
        raise UserError(f"{store.folder} was made when {sweep.testbed} said something else: start a new run")
    if manifest.get("own_backends", {}) != _sources(sweep):
        raise UserError(f"{store.folder} was made when a backend's file said something else: start a new run")
    if words := difference(manifest, models, networks):
        raise UserError(f"{store.folder} was made {words}; start a new run")


def difference(manifest: Mapping[str, Any], models: Records, networks: Networks) -> str:
    """The first difference of a manifest's models and profiles from these: `with other settings: net graph was g,
    not x`; empty where there is none."""
    both = fitting(dict(manifest), SHAPE)[0], json.loads(json.dumps(_recorded(models, networks)))
    then, now = (comparable.made(each, models, networks, exactly=True) for each in both)
    for fact in {**then, **now}:
        values = [facts.get(fact, comparable.NOT_RECORDED) for facts in (then, now)]
        if values[0] != values[1]:
            was, is_now = comparable.shown(values)
            return f"with other settings: {short(f'{comparable.title(fact)} was {was}, not {is_now}', 200)}"
    return ""


def _recorded(models: Records, networks: Networks) -> dict[str, Any]:
    """A manifest's record of models and networks: each profile by its own name, whichever links have it."""
    return {
        "models": dict(models),
        "profiles": {profile.name: profile.record() for each in networks.values() for profile in each},
        "networks": {name: [profile.name for profile in network] for name, network in networks.items()},
    }


def _testbed_hosts(sweep: Sweep) -> dict[str, Any] | None:
    """The parts of a testbed file that decide what is measured, for a fleet by name; None where there is no file."""
    if sweep.cluster is not None:
        return None
    if sweep.fleet:
        each = {name: _testbed_hosts(sweep.on(testbed)) for name, testbed in sweep.testbeds.items()}
        return {name: hosts for name, hosts in each.items() if hosts is not None} or None
    if sweep.simulated:
        return load(sweep.testbed).record()
    if sweep.testbed == THIS_MACHINE:
        return None
    links = ("data_address", "data_interface", "next_address", "next_interface")
    kept = ("name", "ssh", *links, "device", "threads", "python")
    file = inventory.load(Path(sweep.testbed))
    members = {sweep.alone: file.one(sweep.alone)} if sweep.alone else file.roles
    return {role: {key: getattr(member, key) for key in kept} for role, member in members.items()}


def resume_command(folder: Path, sweep: Sweep, command: str = "--resume", of: Collection[str] = ()) -> str:
    """The command that goes on with a run, with the options that `resumed_sweep` wants the user to repeat."""
    words = [word for name, value in elsewhere(sweep, of).items() for word in (OPTIONS[name].typed, value)]
    return " ".join([f"{COMMAND} {command}", *map(shlex.quote, (str(folder), *words))])


def resumed_sweep(
    folder: Path, options: Mapping[str, Any], command: str = "--resume", of: Collection[str] = ()
) -> Sweep:
    """The sweep that a run was made with, with the options that may change, checked. command: of the user. of: options
    that matter to it; all if empty. Raises UserError also for an option that is another than the run's, and for
    something outside of the folder that the folder alone names."""
    source = str(folder / MANIFEST)
    recorded = parse_sweep(read_manifest(folder)["sweep"], source)
    outside = elsewhere(recorded, of)
    if missing := [name for name in outside if name not in options]:
        which = " and ".join(OPTIONS[name].typed for name in missing)
        raise UserError(
            f"{folder} names files or hosts, and what a folder names is neither run nor read: give {which} again, "
            f"as in {resume_command(folder, recorded, command, of)}"
        )
    wanted = parse_requested({"model": recorded.models, **options})
    from pareto.models.prepare import canonical

    try:
        wanted = canonical(wanted)
    except UserError as error:
        raise UserError(str(error) if "model" in options else f"{source}: {error}") from None
    # These are written out there.
    said = {*options, *(into for name, into in _WRITTEN_OUT.items() if name in options)} - {*ENDING}
    for name in filter(said.__contains__, OPTIONS):
        then, now = (_comparable(name, _value(sweep, name)) for sweep in (recorded, wanted))
        if then != now:
            raise UserError(
                f"{folder} was made with other settings: {name} was {_shown(then)}, not {_shown(now)}; "
                "leave the option out, or start a new run"
            )
    taken = [name for name in options if name in (*ENDING, *outside)]
    whole = recorded.model_copy(update={OPTIONS[name].field: _value(wanted, name) for name in taken})
    try:
        return check_sweep(whole)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


_WRITTEN_OUT = {"secure": "backend", "codec_back": "codec"}


def _value(sweep: Sweep, name: str) -> Any:
    return getattr(sweep, OPTIONS[name].field)


def elsewhere(sweep: Sweep, of: Collection[str] = ()) -> dict[str, str]:
    """The options, of these or all, whose values name files that are run or read, or hosts; and these values."""
    values = {name: _value(sweep, name) for name in _OUTSIDE if name in (of or _OUTSIDE)}
    return {name: _shown(value) for name, value in values.items() if _OUTSIDE[name](value)}


def _comparable(name: str, value: Any) -> Any:
    """The part of an option's value that must stay the same. A file may have moved: its content is compared later."""
    if name == "model":
        return tuple(made.name if (made := OWN.own(model)) else model for model in value)
    if name == "netem":
        return tuple(
            ALONG.join(Path(part).stem if profile_files.is_file(part) else part.casefold() for part in parts)
            for parts in (netem.split(ALONG) for netem in value)
        )
    if name == "backend":
        return tuple(str(registry.parse(backend)) for backend in value)
    if name == "codec":
        return tuple(codec.text for codec in coding(value))
    return "a file" if name in _OUTSIDE and _OUTSIDE[name](value) else value


_OUTSIDE: Mapping[str, Callable[[Any], bool]] = {
    "model": lambda models: any(map(OWN.own, models)),
    "netem": lambda netems: any(
        profile_files.is_file(part) for netem in netems for part in (netem, *netem.split(ALONG))
    ),
    "backend": lambda texts: any(map(registry.OWN.own, texts)),
    "codec": lambda texts: any(codec.own for codec in coding(texts)),
    "weights": lambda source: source not in ("seeded", "pretrained"),
    "dataset": dataset_names.runs_code,
    "data_path": lambda path: path is not None,
    "testbed": lambda text: any(name not in (THIS_MACHINE, SIMULATED) for name in several(text)),
    **dict.fromkeys(("cluster", "tls_ca_file", "tls_cert", "tls_key"), lambda value: value is not None),
}
"""Options whose value may name a file or hosts, and whether a value does."""


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
