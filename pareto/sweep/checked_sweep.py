"""A sweep as it is requested, by options and by a file: refused, in a line, where its values do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pareto import DATA
from pareto.basics.yaml_file import YamlFile
from pareto.hosts.host import chain, devices
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.partitions.allocator import TUNED, Allocator
from pareto.partitions.by_role import ByRole
from pareto.partitions.engines import registry as engine_registry
from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.protocol.errors import UserError
from pareto.remote.backends import registry
from pareto.remote.codecs import registry as codec_registry
from pareto.remote.link.units import minutes
from pareto.sweep import dataset_names, load
from pareto.sweep.networks import links_of, profiles
from pareto.sweep.options import OPTIONS, PHASES, QUICK_TRIALS
from pareto.sweep.sweep import AUTO, JPEG, MOST_IMAGES, Sweep, parse_sweep
from pareto.sweep.testbeds import spelled_out

_OF_TCP = ("initial_window", "slow_start_after_idle")
OF_LOCAL_TESTBED = ("edge_cpu", "threads", "device", "hosts", *_OF_TCP)
"""Options of the local testbed. A testbed file says these things of its hosts itself."""
NOT_ALONE = ("netem", "points", "codec", "search", "hosts", "congestion", *_OF_TCP)
"""Options that say nothing of a single host."""
_LENGTHENING = ("trials", "until", "budget", *PHASES)
"""The keys by which a file says how long to measure."""


def make_sweep(fields: Mapping[str, Any]) -> Sweep:
    """A sweep on one testbed from options' names and values, whose values fit together. Raises UserError."""
    sweep = check_sweep(parse_requested(fields))
    if sweep.fleet:
        raise UserError(f"--testbed {sweep.testbed}: name one testbed: only a sweep (run) takes several")
    return sweep


def requested_sweep(file: Path | None, options: Mapping[str, Any]) -> Sweep:
    """The sweep of a file, if there is one, with the options that the user typed over it. Raises UserError."""
    fields: dict[str, Any] = {}
    if file is not None:
        fields = read_file(file)
        parse_sweep({"model": "any", **fields}, str(file))  # so that a fault in the file is reported as such
    # A first look, whatever the file takes its time for; and a phase is as long as typed, however the file says it.
    replaced = _LENGTHENING if options.get("quick") else PHASES if any(map(options.get, PHASES)) else ()
    fields = {name: value for name, value in fields.items() if name not in replaced} | dict(options)
    if fields.get("quick") and fields.get("until") is None:  # before as many rounds as usual nothing is sure
        fields.setdefault("trials", QUICK_TRIALS)
    alone = fields.get("edge_only") or fields.get("server_only")
    if fields.get("from") == JPEG and not alone:  # on either host, where the whole model is on the server
        fields.setdefault("codec", f"{codec_registry.NONE},{codec_registry.FILE}")
    return check_sweep(parse_requested(fields))


def parse_requested(fields: Mapping[str, Any]) -> Sweep:
    """The sweep that the user asks for, with each testbed of a file that has several. Raises UserError. The fields in a
    run's folder go through `parse_sweep`, which opens no file."""
    if isinstance(testbed := fields.get("testbed"), str):
        fields = {**fields, "testbed": spelled_out(testbed)}
    return parse_sweep(fields)


def read_file(path: Path) -> dict[str, Any]:
    """The options that a sweep file gives; `sweeps/...` is found from every folder. Raises UserError."""
    shipped = DATA / path
    there = shipped if shipped.is_file() and not path.exists() else path
    return YamlFile(there, "sweep").fields("`model: [mobilenetv2]`")


def check_sweep(sweep: Sweep) -> Sweep:
    """The sweep, if its values fit together. Raises UserError."""
    if fault := next(_faults(sweep), ""):
        raise UserError(fault)
    for testbed in dict.fromkeys(sweep.testbeds.values()) if sweep.fleet else ():
        check_sweep(sweep.on(testbed))
    return sweep


def _faults(sweep: Sweep) -> Iterator[str]:
    """Faults of a sweep, in words: what follows the first one may rest on what that denies."""
    yield from _of_testbeds(sweep)
    if sweep.fleet:
        return
    for backend in sweep.backends:
        try:
            registry.parse(backend)
        except ValueError as error:
            yield f"--backend: {error}"
        if not registry.is_known(backend):
            yield f"--backend {backend}: say which file has it, as in path/to/file.py:Transport"
    yield from _of_own_backends(sweep)
    for depth in sweep.depths:
        if depth != AUTO and not (depth.isdecimal() and 1 <= int(depth) <= MOST_IN_FLIGHT):
            yield f"--in-flight {depth}: {AUTO}, or a number from 1 to {MOST_IN_FLIGHT}"
    for ahead in sweep.prefetch:
        if not 0 <= ahead <= MOST_IN_FLIGHT:
            yield f"--prefetch {ahead}: a number from 0 to {MOST_IN_FLIGHT}"
    if sweep.requests and sweep.phase:
        yield "--requests and --phase both say how long a phase is: give one of them"
    yield from _of_loads(sweep)
    yield from _of_codecs(sweep)
    yield from _of_engines(sweep)
    yield from _of_roles(sweep, "allocator", [Allocator.parse(text) for text in sweep.allocators])
    if sweep.search and sweep.allocators != (TUNED,):
        yield "--search begins with model profiles, which are of tuned allocators: leave --allocator out"
    for name in sweep.netems:
        profiles(name)
    if not all(1 <= size <= MOST_IMAGES for size in sweep.batch_sizes):
        yield f"--batch-size counts images: 1 to {MOST_IMAGES}"
    yield from _of_dataset(sweep)
    yield from _of_source(sweep)
    if sweep.alone:
        yield from _of_one_host(sweep, f"--{sweep.alone}-only")
    yield from _of_hosts(sweep)


def _of_loads(sweep: Sweep) -> Iterator[str]:
    """Faults of loads, and of what is nothing without one."""
    try:
        loads = sweep.loading
    except UserError as error:
        yield str(error)
        return
    if sweep.find_rate is not None:
        if sweep.slo is None:
            yield "--find-rate is about an SLO: say which, as in --slo 'p95 < 100ms'"
        asked = {
            "--load": sweep.loads != (load.NONE,),
            "--trials": sweep.trials and not sweep.quick,
            "--until": sweep.until,
        }
        asked |= {"--budget": sweep.budget, "a fleet": sweep.fleet}
        for option in (name for name, is_asked in asked.items() if is_asked):
            yield f"--find-rate has rates and rounds of its own: it goes without {option}"
    elif any(each is not None and each.is_found for each in loads.values()):
        yield "--load find: ask for it by --find-rate constant, or poisson"
    if sweep.find_rate is None and len(loads) < len(sweep.loads):
        yield "--load: two files of arrivals have one name: rename one"
    for each in filter(None, loads.values()):
        lasts_s = sweep.least_requests / each.rate
        if not each.is_found and each.at_s is None and lasts_s > load.MOST_S:
            lasts = f"{sweep.least_requests} requests take {minutes(lasts_s)}, {minutes(load.MOST_S)} are the most"
            yield f"--load {each.text}: {lasts}: a higher rate, or more rounds (--trials)"
    if not any(loads.values()):
        if sweep.slo is not None:
            yield "--slo is about requests that arrive by themselves: say at which rate, as in --load 15/s"
        if sweep.queue != OPTIONS["queue"].default:
            yield "--queue is of --load, as in --load 15/s"
    if sweep.search and loads.keys() != {load.NONE}:
        yield "--search chooses cells by one request after another: leave it out with --load"


def _of_testbeds(sweep: Sweep) -> Iterator[str]:
    """Faults of testbeds that are none, or that no fleet can have together."""
    option = f"--testbed {sweep.testbed}"
    try:
        testbeds = sweep.testbeds.values()
    except ValueError as error:
        yield f"{option}: {error}"
    if any(sweep.tls_files) and sweep.cluster is None:
        yield "--tls-ca-file, --tls-cert and --tls-key go with --cluster: leave them out"
    if not sweep.fleet:
        return
    each = [sweep.on(testbed) for testbed in testbeds]
    if sweep.cluster is not None and sweep.testbed not in (THIS_MACHINE, SIMULATED):
        yield f"{option}: a cluster has its own testbeds: leave it out, or say {SIMULATED}"
    if sweep.search:
        yield "--search decides by the rows so far, on one testbed: leave it out, or name one testbed"
    if len({one.simulated for one in each}) > 1:
        yield f"{option}: a simulated testbed measures nothing: not beside real ones"
    if len({links_of(one) for one in each}) > 1:
        yield f"{option}: they have different numbers of hosts: a run has one"


def _of_hosts(sweep: Sweep) -> Iterator[str]:
    """Faults of what is said of hosts that say it themselves, or compute nothing. Raises UserError."""
    if sweep.device != OPTIONS["device"].default and sweep.testbed == THIS_MACHINE:
        devices(sweep.device, chain(sweep.hosts or 2))
    elif sweep.device != OPTIONS["device"].default and sweep.simulated:
        yield f"--device {sweep.device}: a simulated testbed computes nothing: leave it out"
    for option in map(OPTIONS.__getitem__, OF_LOCAL_TESTBED):
        says_it = sweep.testbed != THIS_MACHINE and not sweep.simulated
        if says_it and getattr(sweep, option.field) != option.default:
            yield f"{option.typed} is for the local testbed: leave it out, {sweep.testbed} says what there is"


def _of_dataset(sweep: Sweep) -> Iterator[str]:
    """Faults of a data set that is not where the sweep says."""
    needs_path = sweep.dataset in dataset_names.IN_PATH
    if needs_path != (sweep.data_path is not None) and not dataset_names.runs_code(sweep.dataset):
        yield (
            "--data-path says where a data set lies: give it with --dataset cifar10 or --dataset folder, or for a data "
            "set of your own, and only then"
        )
    if (made := dataset_names.OWN.own(sweep.dataset)) and not Path(made.file).is_file():
        yield f"--dataset {sweep.dataset}: there is no file {made.file}"


def _of_source(sweep: Sweep) -> Iterator[str]:
    """Faults of requests that cannot begin with files."""
    file = next((codec.text for codec in sweep.coding if codec.file), None)
    if sweep.source != JPEG:
        if file:
            yield f"--codec {file} sends the camera's files: give it with --from {JPEG} only"
        if any(sweep.prefetch):
            typed = OPTIONS["prefetch"].written(sweep.prefetch)
            yield f"--prefetch {typed}: nothing is decoded on the edge: give it with --from {JPEG} only"
        return
    if sweep.dataset != dataset_names.FOLDER:
        yield f"--from {JPEG} needs files of a camera: give --dataset folder and --data-path"
    if sweep.input == "float32":
        yield f"--from {JPEG} decodes to bytes: leave out --input float32"
    for where, is_used in (("--search", sweep.search), (f"--testbed {sweep.testbed}", sweep.simulated)):
        if is_used:
            yield f"--from {JPEG} cannot be given with {where}, which does not know what decoding takes"
    if file and links_of(sweep) > 1:
        yield f"--codec {file} is for two hosts: with --from {JPEG} on a chain give --codec none"


def _of_own_backends(sweep: Sweep) -> Iterator[str]:
    by_name: dict[str, str] = {}
    for each in sweep.own_backends:
        if not Path(each.file).is_file():
            yield f"--backend {each.text}: there is no file {each.file}"
        if by_name.setdefault(each.name, each.file) != each.file:
            yield f"{each.file} and {by_name[each.name]} both have a backend {each.name}: rename one file"
        if sweep.simulated:
            yield f"--backend {each.name}: a simulated testbed sends nothing: leave it out"


def _of_codecs(sweep: Sweep) -> Iterator[str]:
    """Faults of codecs that cannot be used here."""
    for codec in sweep.coding:
        if missing := codec.missing:
            yield f"--codec {codec.text} needs the package {missing}: install requirements.txt"
        if codec.own is not None and not Path(codec.own.file).is_file():
            yield f"--codec {codec.typed}: there is no file {codec.own.file}"
        for is_used, without in ((sweep.search, "--search"), (sweep.simulated, f"--testbed {sweep.testbed}")):
            if codec.back and is_used:
                yield (
                    f"--codec-back {codec.back.text} cannot be given with {without}, which does not know how small "
                    "results become"
                )
        if codec.own is not None and sweep.simulated:
            yield (
                f"--codec {codec.typed}: a simulated testbed computes nothing, so a codec of your own cannot be known: "
                "leave it out"
            )


def _of_one_host(sweep: Sweep, only: str) -> Iterator[str]:
    """Faults of what a single host has no use for. only: the option that says that there is one."""
    if sweep.edge_only and sweep.server_only:
        yield "--edge-only and --server-only: give one of them, and then the other in a run of its own"
    if sweep.simulated:
        yield f"{only} needs a host that computes by itself: --testbed local, or a file of hosts"
    for option in map(OPTIONS.__getitem__, NOT_ALONE):
        if getattr(sweep, option.field) != option.default:
            yield f"{only}: nothing crosses a link: leave {option.typed} out"


def _of_engines(sweep: Sweep) -> Iterator[str]:
    """Faults of engines that cannot be used here, where what those that change results make of them is worked out."""
    engines = [engine_registry.parse(text) for text in sweep.engines]
    for engine in engines if sweep.simulated else ():
        if engine.differs:
            yield (
                f"--engine {engine.text}: a simulated testbed computes nothing, so what an engine changes in the "
                "results cannot be known: leave it out"
            )
    for name in (name for engine in engines for name in engine.of_all):
        kind = engine_registry.ENGINES[name]
        if kind.fault:
            yield f"--engine {name}: {kind.fault}"
        if kind.differs and (lacks := engine_registry.missing(name)):
            yield f"--engine {name}: what it does to the results is worked out here first: {lacks}"
    yield from _of_roles(sweep, "engine", engines)


def _of_roles(sweep: Sweep, name: str, each: Sequence[ByRole]) -> Iterator[str]:
    """Faults of an option whose values name hosts that are not there."""
    named = {role: one for one in each for role in one.by_role}
    if named and sweep.alone:
        which, one = next(iter(named.items()))
        yield (
            f"--{name} {one.text}: --{sweep.alone}-only has one host: name its {name} alone, as in --{name} "
            f"{one.of(which)}"
        )
    roles = chain(links_of(sweep) + 1) if named else ()
    for which, one in named.items():
        if which not in roles:
            yield f"--{name} {one.text}: the testbed has no {which}: it has {', '.join(roles)}"
