"""A sweep as the user wants it, and its cells: checked before anything heavy is loaded."""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from analysis.runs.manifest import testbed_name
from analysis.schema import cell_name
from pareto import DATA, dataset_names, profile_files
from pareto.backends import registry
from pareto.codecs import registry as codec_registry
from pareto.constants import MOST_IN_FLIGHT
from pareto.errors import UserError, in_plain_words, one_line
from pareto.fleet.testbeds import numbered, several
from pareto.hosts.host import EDGE, MAX_HOSTS, SERVED, SERVER, TcpSettings, chain, devices
from pareto.hosts.inventory import SIMULATED, THIS_MACHINE
from pareto.link import units
from pareto.link.probe import Tolerance
from pareto.link.profile import Profile
from pareto.options import OPTIONS, QUICK_TRIALS
from pareto.yaml_file import quantity
from partitions.engines import registry as engine_registry

MOST_TRIALS = 1000
MOST_IMAGES = 100_000
MOST_LISTED = 1000
"""Of anything that is listed with commas."""
MOST_BUDGET_S = 31 * 24 * 3600
OF_LOCAL_TESTBED = ("edge_cpu", "threads", "device", "hosts", "initial_window", "slow_start_after_idle")
"""Options of the local testbed. A testbed file says these things of its hosts itself."""
SERVED_AT = "the server's address"
NOT_PROFILED = "a model profile needs programs on the server that serve does not start"
AUTO: Final = "auto"
"""The harness chooses. Requests in flight: as many as the slowest step needs to be busy always. Input: uint8 where the
model takes images (`pareto.prepare.recipe`)."""
NEVER, EACH_ROUND = "never", "round"
"""When workers are started anew; or a number of rounds."""
JPEG = "jpeg"
NOT_ALONE = (
    "netem",
    "points",
    "codec",
    "search",
    "hosts",
    "congestion",
    "initial_window",
    "slow_start_after_idle",
)
"""Options that say nothing of a single host."""
WITHOUT_LINK = ("tcp",)
"""The backends that stand in the rows of a single host: its last point has the same figures whichever it is."""
ALONG = "+"
"""Joins what belongs to one link after another: `wifi+lte`, `3+7`."""


def _listed(value: Any) -> Any:
    """The parts of a list that may be written with commas: `tcp,rpc`."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int) else value


def _selectors(value: Any) -> Any:
    """The parts of `0,7,features.12`, or of numbers from YAML, as text."""
    parts = _listed(value)
    return [str(part) for part in parts] if isinstance(parts, list | tuple) else parts


def _absolute(path: Path) -> Path:
    """The absolute path: a run may be resumed from another folder."""
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # ~somebody who is not known
        raise ValueError(str(error)) from None


def _share(value: Any) -> Any:
    """The share that `10%` or 0.1 says."""
    return (
        units.share(value, "tolerance") if isinstance(value, str) and value.strip().endswith("%") else value
    )


def _unless_off(value: Any) -> Any:
    """None for `off`, which YAML reads as false."""
    return None if value in ("off", False) else value


def _depths(value: Any) -> Any:
    """The parts of `auto,1,8`, or of numbers from YAML; 08 is 8."""
    parts = _selectors(value)
    if not isinstance(parts, list):
        return parts
    return [str(int(part)) if part.isascii() and part.isdecimal() else part for part in parts]


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values without repetitions: a cell is measured once a round."""
    return tuple(dict.fromkeys(values))


def _codecs(values: tuple[str, ...]) -> tuple[str, ...]:
    """The codecs by their canonical names, each once. Raises ValueError."""
    return tuple(codec.typed for codec in coding(values))


@functools.cache
def coding(texts: tuple[str, ...]) -> tuple[codec_registry.Codec, ...]:
    """The codecs of these texts. Raises ValueError."""
    return codec_registry.parse_all(texts)


def _engines(values: tuple[str, ...]) -> tuple[str, ...]:
    """The engines by their canonical names, each once. Raises ValueError."""
    return engine_registry.listed(values)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 200
_SOME = Field(min_length=1, max_length=MOST_LISTED)
Names = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_each_once), _SOME]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_listed), AfterValidator(_each_once), _SOME]


def _option(name: str, **bounds: Any) -> Any:
    """The field that an option fills, whose values are within some bounds."""
    return Field(default=OPTIONS[name].default, alias=name, **bounds)


class Sweep(BaseModel):
    """A sweep as the user wants it, by options or by a file whose keys are the options' names."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    models: Names = _option("model")
    netems: Names = _option("netem")
    backends: Names = _option("backend")
    secure: Names = _option("secure")
    points: Annotated[tuple[str, ...], BeforeValidator(_selectors), _SOME] = _option("points")
    only: bool = _option("only")
    granularity: Literal["block", "op"] = _option("granularity")
    live_tensors: int = _option("live_tensors", ge=1, le=8)
    fold: bool = _option("fold")
    hosts: int | None = _option("hosts", ge=2, le=MAX_HOSTS)
    input: Literal["auto", "uint8", "float32"] = _option("input")
    source: Literal["pixels", "jpeg"] = _option("from")
    prefetch: Numbers = _option("prefetch")
    dataset: Annotated[str, AfterValidator(dataset_names.checked)] = _option("dataset")
    data_path: Annotated[Path, AfterValidator(_absolute)] | None = _option("data_path")
    images: int | None = _option("images", ge=1, le=MOST_IMAGES)
    trials: int = _option("trials", ge=1, le=MOST_TRIALS)
    search: bool = _option("search")
    until: Annotated[float | None, quantity(units.share)] = _option("until", gt=0, lt=1)
    budget: Annotated[float | None, quantity(units.duration_s)] = _option("budget", gt=0, le=MOST_BUDGET_S)
    batch_sizes: Numbers = _option("batch_size")
    codecs: Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_codecs), _SOME] = _option(
        "codec"
    )
    engines: Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_engines), _SOME] = _option(
        "engine"
    )
    depths: Annotated[tuple[str, ...], BeforeValidator(_depths), AfterValidator(_each_once), _SOME] = _option(
        "in_flight"
    )
    congestion: Literal["cubic", "bbr", "reno"] | None = _option("congestion")
    initial_window: int | None = _option("initial_window", ge=1, le=1000)
    slow_start_after_idle: bool = _option("slow_start_after_idle")
    weights: str = _option("weights")
    seed: int = _option("seed", ge=0, lt=2**63)
    testbed: str = _option("testbed")
    cluster: str | None = _option("cluster")
    certificates: Annotated[Path, AfterValidator(_absolute)] | None = _option("certificates")
    token_file: Annotated[Path, AfterValidator(_absolute)] | None = _option("token_file")
    wait: Annotated[float | None, quantity(units.duration_s)] = _option("wait", gt=0, le=MOST_BUDGET_S)
    edge_only: bool = _option("edge_only")
    server_only: bool = _option("server_only")
    edge_cpu: float = _option("edge_cpu", ge=0.05, le=1.0)
    threads: int | None = _option("threads", ge=1, le=256)
    device: str = _option("device")
    sample: Annotated[float | None, quantity(units.delay_s), BeforeValidator(_unless_off)] = _option(
        "sample", ge=0.01, le=60
    )
    tolerance: Annotated[float, BeforeValidator(_share)] = _option("tolerance", gt=0, lt=1)
    rtt_tolerance: Annotated[float, BeforeValidator(_share)] = _option("rtt_tolerance", gt=0, lt=1)
    rtt_floor: Annotated[float, quantity(units.delay_s)] = _option("rtt_floor", ge=0, lt=10)
    slowdown: float = _option("slowdown", gt=1)
    others: Annotated[float, BeforeValidator(_share)] = _option("others", gt=0, le=1)
    shape_at: Literal["both", "edge"] = _option("shape_at")
    restart: Annotated[str, BeforeValidator(str), Field(pattern=r"^(never|round|[1-9][0-9]{0,3})$")] = (
        _option("restart")
    )
    quick: bool = _option("quick")

    @field_validator("*")
    @classmethod
    def _printable(cls, value: Any) -> Any:
        """Raises ValueError for a control character: names are shown in terminals, and become names of files."""
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str | Path) and not str(text).isprintable():
                raise ValueError("has a character that cannot be printed")
        return value

    @property
    def link_tolerance(self) -> Tolerance:
        return Tolerance(self.rtt_tolerance, self.rtt_floor, self.tolerance)

    @property
    def restart_rounds(self) -> int | None:
        """After how many rounds the workers restart; None: never."""
        return None if self.restart == NEVER else 1 if self.restart == EACH_ROUND else int(self.restart)

    @property
    def testbeds(self) -> dict[str, str]:
        """By what rows call it, each testbed that is named: one, unless it is for a fleet. Raises ValueError."""
        each = several(self.testbed)
        return dict(zip(numbered(map(testbed_name, each)), each, strict=True))

    @property
    def fleet(self) -> bool:
        """Whether it is measured by a fleet: on several testbeds, or on those of a cluster."""
        return self.cluster is not None or several(self.testbed) != (self.testbed,)

    def on(self, testbed: str) -> Sweep:
        """The same on one testbed."""
        return self.model_copy(update={"testbed": testbed, "cluster": None, "certificates": None})

    @property
    def simulated(self) -> bool:
        return several(self.testbed)[0].partition(":")[0] == SIMULATED

    @property
    def served(self) -> bool:
        return self.testbed.partition(":")[0] == SERVED

    @property
    def testbed_name(self) -> str:
        """What rows call the testbed."""
        return testbed_name(self.testbed)

    @property
    def alone(self) -> str:
        """The role of the only host; empty where there are several."""
        return EDGE if self.edge_only else SERVER if self.server_only else ""

    @property
    def transports(self) -> tuple[str, ...]:
        """The backends with their variants, without their labels, each once."""
        return _each_once(tuple(registry.parse(backend).transport for backend in self.backends))

    @property
    def coding(self) -> tuple[codec_registry.Codec, ...]:
        """The codecs; those of the user's own are by their names in rows."""
        return coding(self.codecs)

    @property
    def tcp(self) -> TcpSettings:
        window = {"initial_window": self.initial_window} if self.initial_window is not None else {}
        return TcpSettings(self.congestion, slow_start_after_idle=self.slow_start_after_idle, **window)


Networks = Mapping[str, Sequence[Profile]]
"""By name, the profile of each link."""
Condition = tuple[str, str, int, str, str, str, int]
"""What is the same for all points that are compared: model, network, batch size, codec, engine, requests in flight, and
those decoded ahead."""


@dataclass(frozen=True)
class Cell:
    """One combination to measure. cuts: for each link, how many units run before it.

    codec: what is at work there. prefetch: requests that the edge is to decode ahead. stands_for: the codecs of the
    sweep that come to the same there (`Codec.at`).
    """

    model: str
    cuts: tuple[int, ...]
    point_name: str
    backend: str
    netem: str
    batch_size: int
    codec: str = "none"
    engine: str = engine_registry.EAGER
    in_flight: str = AUTO
    prefetch: int = 0
    stands_for: tuple[str, ...] = field(default=(), compare=False)

    @property
    def point(self) -> str:
        """The cuts as trials.csv has them: `7`, or `3+7` in a chain of three hosts."""
        return "+".join(map(str, self.cuts))

    @property
    def condition(self) -> Condition:
        return self._condition(self.codec)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Those in which it competes: one for each codec that it stands for."""
        codecs = self.stands_for or (self.codec,)
        return tuple(map(self._condition, codecs))

    def _condition(self, codec: str) -> Condition:
        return (
            self.model,
            self.netem,
            self.batch_size,
            codec,
            self.engine,
            self.in_flight,
            self.prefetch,
        )

    @property
    def transport(self) -> str:
        """The backend without its label: `tcp:4` of `tcp:4:a`."""
        return registry.parse(self.backend).transport

    @property
    def secure(self) -> str:
        """How it encrypts: `none`, `tls`, `aes-gcm`."""
        return registry.parse(self.backend).secure

    @property
    def agent(self) -> str:
        """The rpc agent that the cell needs, as `registry.BackendName.agent`."""
        return registry.parse(self.backend).agent

    @property
    def id(self) -> str:
        """What the names of its files begin with."""
        return cell_name(
            self.model,
            self.cuts,
            self.backend,
            self.netem,
            self.batch_size,
            self.in_flight,
            self.codec,
            self.engine,
            self.prefetch,
        )


def parse_sweep(fields: Mapping[str, Any], source: str = "") -> Sweep:
    """A sweep from options' names and values, each of which is one that the option takes.

    `secure` is written out: the backends are those that encrypt so. source: of the values, for messages; empty for the
    command line. Raises UserError.
    """
    try:
        sweep = Sweep.model_validate(fields)
    except ValidationError as error:
        raise UserError(_first_fault(error, source)) from None
    if sweep.alone:
        if sweep.backends not in (OPTIONS["backend"].default, WITHOUT_LINK) or sweep.secure != ("none",):
            where = f"{source}: " if source else ""
            raise UserError(
                f"{where}--{sweep.alone}-only: nothing crosses a link: leave --backend and --secure out"
            )
        return sweep.model_copy(update={"backends": WITHOUT_LINK})
    in_the_clear = OPTIONS["secure"].default
    if sweep.secure == in_the_clear:
        return sweep
    return sweep.model_copy(update={"backends": _secured(sweep, source), "secure": in_the_clear})


def _secured(sweep: Sweep, source: str) -> tuple[str, ...]:
    """The backends, each in every way to encrypt that the sweep names. Raises UserError."""
    made: list[str] = []
    for backend in sweep.backends:
        faults, before = [], len(made)
        for secure in sweep.secure:
            try:
                made.append(registry.sealed(backend, secure))
            except registry.NotSealed as fault:
                faults.append(fault)
            except ValueError as error:
                name = "--secure" if secure not in registry.SECURE else "--backend"
                raise UserError(f"{f'{source}: ' if source else ''}{name}: {error}") from None
        if len(made) == before:  # what can only go in the clear goes so once, if that is wanted at all
            raise UserError(f"{f'{source}: ' if source else ''}--secure: {faults[0]}")
    return _each_once(tuple(made))


def make_sweep(fields: Mapping[str, Any]) -> Sweep:
    """A sweep on one testbed from options' names and values, whose values fit together. Raises UserError."""
    sweep = check_sweep(parse_sweep(fields))
    if sweep.fleet:
        raise UserError(f"--testbed {sweep.testbed}: name one testbed: only a sweep (run) takes several")
    return sweep


_LENGTHENING = ("trials", "until", "budget")
"""What a file says of how long to measure."""


def requested_sweep(file: Path | None, options: Mapping[str, Any]) -> Sweep:
    """The sweep of a file, if there is one, with the options that the user typed over it. Raises UserError."""
    fields: dict[str, Any] = {}
    if file is not None:
        fields = read_file(file)
        parse_sweep({"model": "any", **fields}, str(file))  # so that a fault in the file is reported as such
    if options.get("quick"):  # a first look, whatever the file takes its time for
        fields = {name: value for name, value in fields.items() if name not in _LENGTHENING}
    fields |= options
    if fields.get("quick") and fields.get("until") is None:  # before as many rounds as usual nothing is sure
        fields.setdefault("trials", QUICK_TRIALS)
    alone = fields.get("edge_only") or fields.get("server_only")
    if (
        fields.get("from") == JPEG and not alone
    ):  # both places to decode, where the whole model is on the server
        fields.setdefault("codec", f"{codec_registry.NONE},{codec_registry.FILE}")
    return check_sweep(parse_sweep(fields))


def check_sweep(sweep: Sweep) -> Sweep:
    """The sweep, if its values fit together. Raises UserError."""
    if _of_fleet(sweep):
        for testbed in dict.fromkeys(sweep.testbeds.values()):
            check_sweep(sweep.on(testbed))
        return sweep
    for backend in sweep.backends:
        try:
            registry.parse(backend)
        except ValueError as error:
            raise UserError(f"--backend: {error}") from None
    for depth in sweep.depths:
        if depth != AUTO and not (depth.isdecimal() and 1 <= int(depth) <= MOST_IN_FLIGHT):
            raise UserError(f"--in-flight {depth}: {AUTO}, or a number from 1 to {MOST_IN_FLIGHT}")
    for ahead in sweep.prefetch:
        if not 0 <= ahead <= MOST_IN_FLIGHT:
            raise UserError(f"--prefetch {ahead}: a number from 0 to {MOST_IN_FLIGHT}")
    _check_codecs(sweep)
    _check_engines(sweep)
    for name in sweep.netems:
        profiles(name)
    if not all(1 <= size <= MOST_IMAGES for size in sweep.batch_sizes):
        raise UserError(f"--batch-size counts images: 1 to {MOST_IMAGES}")
    needs_path = sweep.dataset in dataset_names.IN_PATH
    if needs_path != (sweep.data_path is not None) and not dataset_names.runs_code(sweep.dataset):
        raise UserError(
            "--data-path says where a data set lies: give it with --dataset cifar10 or --dataset folder, or for a data "
            "set of your own, and only then"
        )
    _check_source(sweep)
    if (in_file := dataset_names.own(sweep.dataset)) and not in_file.file.is_file():
        raise UserError(f"--dataset {sweep.dataset}: there is no file {in_file.file}")
    _check_served(sweep)
    _check_alone(sweep)
    if sweep.device != OPTIONS["device"].default and sweep.testbed == THIS_MACHINE:
        devices(sweep.device, chain(sweep.hosts or 2))
    elif sweep.device != OPTIONS["device"].default and sweep.simulated:
        raise UserError(f"--device {sweep.device}: a simulated testbed computes nothing: leave it out")
    if sweep.testbed != THIS_MACHINE and not sweep.simulated:
        for name in OF_LOCAL_TESTBED:
            if name == "threads" and sweep.served:  # the edge's
                continue
            if getattr(sweep, name) != OPTIONS[name].default:
                raise UserError(
                    f"{OPTIONS[name].typed} is for the local testbed: leave it out, {sweep.testbed} says what there is"
                )
    return sweep


def _of_fleet(sweep: Sweep) -> bool:
    """Whether a fleet measures the sweep. Raises UserError for testbeds that are none, or cannot be together."""
    try:
        testbeds = sweep.testbeds.values()
    except ValueError as error:
        raise UserError(f"--testbed {sweep.testbed}: {error}") from None
    if not sweep.fleet:
        if sweep.certificates is not None:
            raise UserError("--certificates goes with --cluster: leave it out")
        return False
    each = [sweep.on(testbed) for testbed in testbeds]
    if sweep.cluster is not None:
        from pareto.fleet.cluster import check_address

        check_address("--cluster", sweep.cluster, sweep.certificates)
        if sweep.testbed not in (THIS_MACHINE, SIMULATED):
            raise UserError(
                f"--testbed {sweep.testbed}: a cluster has its own testbeds: leave it out, or say {SIMULATED}"
            )
    if sweep.search:
        raise UserError(
            "--search decides by the rows so far, on one testbed: leave it out, or name one testbed"
        )
    if any(one.served for one in each):
        raise UserError(f"--testbed {sweep.testbed}: {SERVED}:ADDRESS is measured by itself: leave it out")
    if len({one.simulated for one in each}) > 1:
        raise UserError(
            f"--testbed {sweep.testbed}: a simulated testbed measures nothing: not beside real ones"
        )
    if len({links_of(one) for one in each}) > 1:
        raise UserError(f"--testbed {sweep.testbed}: they have different numbers of hosts: a run has one")
    return True


def _check_source(sweep: Sweep) -> None:
    """Raises UserError for requests that cannot begin with files."""
    file = next((codec.text for codec in sweep.coding if codec.file), None)
    if sweep.source != JPEG:
        if file:
            raise UserError(f"--codec {file} sends the camera's files: give it with --from {JPEG} only")
        if any(sweep.prefetch):
            typed = OPTIONS["prefetch"].written(sweep.prefetch)
            raise UserError(
                f"--prefetch {typed}: nothing is decoded on the edge: give it with --from {JPEG} only"
            )
        return
    if sweep.dataset != dataset_names.FOLDER:
        raise UserError(f"--from {JPEG} needs files of a camera: give --dataset folder and --data-path")
    if sweep.input == "float32":
        raise UserError(f"--from {JPEG} decodes to bytes: leave out --input float32")
    for where, is_used in (("--search", sweep.search), (f"--testbed {sweep.testbed}", sweep.simulated)):
        if is_used:
            raise UserError(
                f"--from {JPEG} cannot be given with {where}, which does not know what decoding takes"
            )
    if file and links_of(sweep) > 1:
        raise UserError(f"--codec {file} is for two hosts: with --from {JPEG} on a chain give --codec none")


def _check_codecs(sweep: Sweep) -> None:
    """Raises UserError for codecs that cannot be used here."""
    if sweep.codecs == (codec_registry.NONE,):
        return
    for codec in sweep.coding:
        if missing := codec.missing:
            raise UserError(f"--codec {codec.text} needs the package {missing}: install requirements.txt")
        if codec.own is None:
            continue
        if not Path(codec.own.file).is_file():
            raise UserError(f"--codec {codec.typed}: there is no file {codec.own.file}")
        if sweep.simulated:
            raise UserError(
                f"--codec {codec.typed}: a simulated testbed computes nothing, so a codec of your own cannot be known: "
                "leave it out"
            )


def _check_served(sweep: Sweep) -> None:
    """Raises UserError for what cannot be had of a host that serves."""
    if not sweep.served:
        if sweep.token_file is not None:
            raise UserError("--token-file is for connect ADDRESS, or --testbed served:ADDRESS: leave it out")
        return
    if sweep.token_file is None:
        raise UserError(
            f"--testbed {sweep.testbed}: a sweep by hand needs --token-file, the file that serve wrote"
        )
    from pareto.hosts.serving import place

    place(sweep.testbed.partition(":")[2], SERVED_AT)
    if sweep.search:
        raise UserError(f"--search: {NOT_PROFILED}: leave it out")
    for name in sweep.netems:
        if any(profile.shaped for profile in profiles(name)):
            raise UserError(f"--netem {name}: a link by hand is probed, and not shaped: leave it out")


def _check_alone(sweep: Sweep) -> None:
    """Raises UserError for what a single host has no use for."""
    if not sweep.alone:
        return
    only = f"--{sweep.alone}-only"
    if sweep.edge_only and sweep.server_only:
        raise UserError(
            "--edge-only and --server-only: give one of them, and then the other in a run of its own"
        )
    if sweep.simulated or sweep.served:
        raise UserError(f"{only} needs a host that computes by itself: --testbed local, or a file of hosts")
    for name in NOT_ALONE:
        if getattr(sweep, OPTIONS[name].field) != OPTIONS[name].default:
            raise UserError(f"{only}: nothing crosses a link: leave {OPTIONS[name].typed} out")


def _check_engines(sweep: Sweep) -> None:
    """Raises UserError for engines that cannot be used here."""
    if sweep.engines == OPTIONS["engine"].default:
        return
    for where, is_used in (("--search", sweep.search), (f"--testbed {sweep.testbed}", sweep.simulated)):
        if is_used:
            raise UserError(
                f"--engine cannot be given with {where}, which forecasts by what units take in eager: leave one out"
            )
    engine_registry.check_lossy(sweep.engines)
    named = {role: text for text in sweep.engines for role in engine_registry.parse(text).by_role}
    if named:
        hosts = links_of(sweep) + 1
        roles = [engine_registry.role(position, hosts) for position in range(hosts)]
        for role, text in named.items():
            if role not in roles:
                raise UserError(f"--engine {text}: the testbed has no {role}: it has {', '.join(roles)}")


def profiles(netem: str, links: int | None = None) -> tuple[Profile, ...]:
    """The profile of each link: `wifi+lte` names them in order; a single one is for every link.

    links: how many there are; None where that is not known yet. Raises UserError, also for another number of profiles.
    """
    names = [netem] if Path(netem).exists() else netem.split(ALONG)
    loaded = tuple(profile_files.load(name) for name in names)
    if links is None or len(loaded) == links:
        return loaded
    if len(loaded) > 1:
        several = f"{links} link{'s' if links > 1 else ''}"
        raise UserError(
            f"--netem {netem} names {len(loaded)} profiles for {several}: name one a link, or one for all"
        )
    return loaded * links


def links_of(sweep: Sweep) -> int:
    """How many links the sweep's testbed has. Raises TestbedError for a file that names too few hosts."""
    if sweep.alone:
        return 0
    if sweep.fleet:
        return links_of(sweep.on(next(iter(sweep.testbeds.values()))))
    if sweep.testbed == THIS_MACHINE or sweep.simulated or sweep.served:
        return (sweep.hosts or 2) - 1
    from pareto.hosts import inventory

    return len(inventory.load(Path(sweep.testbed)).roles) - 1


def networks_of(sweep: Sweep, links: int) -> Networks:
    """The sweep's networks. A network is named after its profile, or after its links' profiles in order (`wifi+lte`).

    Raises UserError where two profiles have one name.
    """
    if sweep.alone:  # a name of its own: it is never compared with what a network slows
        return {f"{sweep.alone}-only": ()}
    networks: dict[str, tuple[Profile, ...]] = {}
    known: dict[str, Profile] = {}
    for netem in sweep.netems:
        network = profiles(netem, links)
        for profile in network:
            if known.setdefault(profile.name, profile) != profile:
                raise UserError(
                    f"--netem {netem}: another profile is called {profile.name} too; rename one's file"
                )
        names = [profile.name for profile in network]
        networks[names[0] if len(set(names)) == 1 else ALONG.join(names)] = network
    return networks


def networks_to_check(sweep: Sweep) -> list[tuple[Profile, ...]]:
    """Each network's profiles, one a link. Without `hosts`, the local testbed has as many links as the longest needs.

    Raises UserError, TestbedError.
    """
    if sweep.testbed == THIS_MACHINE and sweep.hosts is None:
        links = max(len(profiles(name)) for name in sweep.netems)
    else:
        links = links_of(sweep)
    return [profiles(name, links) for name in sweep.netems]


def read_file(path: Path) -> dict[str, Any]:
    """The options that a sweep file gives; `sweeps/...` is found from every folder. Raises UserError."""
    shipped = DATA / path
    try:
        fields = yaml.safe_load((shipped if shipped.is_file() and not path.exists() else path).read_text())
    except OSError as error:
        raise UserError(f"cannot read the sweep {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {one_line(error)}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} must map options to values, as in `model: [mobilenetv2]`")
    return fields


def _first_fault(error: ValidationError, source: str) -> str:
    fault = error.errors()[0]
    option = str(fault["loc"][0]) if fault["loc"] else ""
    where = f"{source}: " if source else ""
    if fault["type"] == "extra_forbidden":
        return f"{where}unknown key {option!r}: use {', '.join(OPTIONS)}"
    name = option if source or option not in OPTIONS else OPTIONS[option].typed
    if fault["type"] == "missing":
        return f"{where}{name} is missing: say which model to sweep, as in --model mobilenetv2"
    words = in_plain_words(fault["msg"])
    return f"{where}{name} {_SHOWN.repr(fault['input'])}: {words[0].lower()}{words[1:]}"
