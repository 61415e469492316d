"""A sweep as the user wants it: the values that each option takes, checked before anything heavy is loaded."""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, field_validator

from pareto.basics.yaml_file import quantity
from pareto.hosts.host import EDGE, MAX_HOSTS, SERVER, TcpSettings
from pareto.hosts.inventory import SIMULATED
from pareto.partitions.allocator import Allocator
from pareto.partitions.engines import registry as engine_registry
from pareto.protocol.constants import MOST_REQUESTS
from pareto.protocol.errors import UserError, in_plain_words
from pareto.protocol.own import Own
from pareto.remote.backends import registry
from pareto.remote.codecs import registry as codec_registry
from pareto.remote.link import units
from pareto.remote.link.probe import Tolerance
from pareto.sweep import dataset_names, load
from pareto.sweep.options import OPTIONS, ROUNDS, testbed_name
from pareto.sweep.testbeds import numbered, several

MOST_TRIALS = 1000
MOST_IMAGES = 100_000
MOST_LISTED = 1000
"""The most values of anything that is listed with commas."""
MOST_BUDGET_S = 31 * 24 * 3600
AUTO: Final = "auto"
"""The harness chooses. Requests in flight: as many as the slowest step needs to be busy always. Input: uint8 where the
model takes images (`pareto.models.prepare.recipe`)."""
NEVER, EACH_ROUND = "never", "round"
"""When workers are started anew; or a number of rounds."""
JPEG = "jpeg"
WITHOUT_LINK = ("tcp",)
"""The backends that stand in the rows of a single host: its last point has the same figures whichever it is."""


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
    is_percent = isinstance(value, str) and value.strip().endswith("%")
    return units.share(value, "tolerance") if is_percent else value


def _unless_off(value: Any) -> Any:
    """None for `off`, which YAML reads as false."""
    return None if value in ("off", False) else value


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values without repetitions: a cell is measured once a round."""
    return tuple(dict.fromkeys(values))


def _depths(parts: tuple[str, ...]) -> tuple[str, ...]:
    return _each_once(
        tuple(str(int(each)) if each.isascii() and each.isdecimal() else each for each in parts)
    )


@functools.cache
def coding(texts: tuple[str, ...]) -> tuple[codec_registry.Codec, ...]:
    """The codecs of these texts; the user's own are by their names in rows. Raises ValueError."""
    return codec_registry.parse_all(texts)


def _codecs(values: tuple[str, ...]) -> tuple[str, ...]:
    """The codecs by their canonical names, each once. Raises ValueError."""
    return tuple(codec.typed for codec in coding(values))


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 200
_SOME = Field(min_length=1, max_length=MOST_LISTED)
_Texts = Annotated[tuple[str, ...], BeforeValidator(_listed), _SOME]
Names = Annotated[_Texts, AfterValidator(_each_once)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_listed), AfterValidator(_each_once), _SOME]


def _option(name: str, **bounds: Any) -> Any:
    """The field that an option fills, whose values are within some bounds."""
    return Field(default=OPTIONS[name].default, alias=name, **bounds)


def _stated(read: Callable[[str], object]) -> Callable[[str], str]:
    """A check of a text, which stays as it is: `read` raises ValueError."""

    def checked(text: str) -> str:
        read(text)
        return text

    return checked


def _edge_bytes(text: str) -> int:
    """The bytes that a text gives the edge. Raises UserError."""
    role, _, size = text.partition("=")
    if role != EDGE or not size:
        raise UserError("say whose it is, as in edge=512mib")
    return units.size_bytes(size, "--memory")


def _backends(values: tuple[str, ...]) -> tuple[str, ...]:
    """The backends, those of a user's files by absolute paths. Raises ValueError."""
    return _each_once(tuple(map(registry.OWN.typed, values)))


class Sweep(BaseModel):
    """A sweep as the user wants it, by options or by a file whose keys are the options' names."""

    model_config = {"frozen": True, "extra": "forbid", "populate_by_name": True}

    models: Names = _option("model")
    netems: Names = _option("netem")
    backends: Annotated[Names, AfterValidator(_backends)] = _option("backend")
    secure: Names = _option("secure")
    points: Annotated[_Texts, BeforeValidator(_selectors)] = _option("points")
    only: bool = _option("only")
    granularity: Literal["block", "op"] = _option("granularity")
    classes: int = _option("classes", ge=0, le=999_999)
    live_tensors: int = _option("live_tensors", ge=1, le=8)
    fold: bool = _option("fold")
    hosts: int | None = _option("hosts", ge=2, le=MAX_HOSTS)
    input: Literal["auto", "uint8", "float32"] = _option("input")
    source: Literal["pixels", "jpeg"] = _option("from")
    prefetch: Numbers = _option("prefetch")
    dataset: Annotated[str, AfterValidator(dataset_names.checked)] = _option("dataset")
    data_path: Annotated[Path, AfterValidator(_absolute)] | None = _option("data_path")
    images: int | None = _option("images", ge=1, le=MOST_IMAGES)
    trials: int | None = _option("trials", ge=1, le=MOST_TRIALS)
    search: bool = _option("search")
    until: Annotated[float | None, quantity(units.share)] = _option("until", gt=0, lt=1)
    budget: Annotated[float | None, quantity(units.duration_s)] = _option("budget", gt=0, le=MOST_BUDGET_S)
    requests: int | None = _option("requests", ge=2, le=MOST_REQUESTS)
    phase: Annotated[float | None, quantity(units.duration_s)] = _option("phase", ge=0.1, le=600)
    batch_sizes: Numbers = _option("batch_size")
    codecs: Annotated[_Texts, AfterValidator(_codecs)] = _option("codec")
    codec_back: Names = _option("codec_back")
    engines: Annotated[_Texts, AfterValidator(engine_registry.listed)] = _option("engine")
    allocators: Annotated[_Texts, AfterValidator(Allocator.listed)] = _option("allocator")
    depths: Annotated[_Texts, BeforeValidator(_selectors), AfterValidator(_depths)] = _option("in_flight")
    loads: Annotated[_Texts, AfterValidator(load.listed)] = _option("load")
    every: str | None = _option("every")
    queue: int = _option("queue", ge=1, le=10_000)
    find_rate: Literal["constant", "poisson"] | None = _option("find_rate")
    slo: Annotated[str, AfterValidator(_stated(load.slo))] | None = _option("slo")
    congestion: Literal["cubic", "bbr", "reno"] | None = _option("congestion")
    initial_window: int | None = _option("initial_window", ge=1, le=1000)
    slow_start_after_idle: bool = _option("slow_start_after_idle")
    weights: str = _option("weights")
    seed: int = _option("seed", ge=0, lt=2**63)
    testbed: str = _option("testbed")
    cluster: str | None = _option("cluster")
    tls_ca_file: Annotated[Path, AfterValidator(_absolute)] | None = _option("tls_ca_file")
    tls_cert: Annotated[Path, AfterValidator(_absolute)] | None = _option("tls_cert")
    tls_key: Annotated[Path, AfterValidator(_absolute)] | None = _option("tls_key")
    wait: Annotated[float | None, quantity(units.duration_s)] = _option("wait", gt=0, le=MOST_BUDGET_S)
    edge_only: bool = _option("edge_only")
    server_only: bool = _option("server_only")
    edge_cpu: float = _option("edge_cpu", ge=0.05, le=1.0)
    memory: Annotated[str, AfterValidator(_stated(_edge_bytes))] | None = _option("memory")
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
    def rounds(self) -> int:
        """Rounds that are planned: of every cell, or where the sweep is `focused`, of one that is not struck off."""
        if self.find_rate is not None:
            return 1  # each of the others has a rate that follows from those before it
        return ROUNDS if self.trials is None else self.trials

    @property
    def grows(self) -> bool:
        """Whether rounds are added to those that are planned."""
        return (self.until, self.budget, self.find_rate) != (None, None, None)

    @property
    def focused(self) -> bool:
        """Whether cells that cannot be on the front are struck off between rounds: with or without `search`."""
        return self.search or (self.trials is None and not self.fleet and self.find_rate is None)

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
        of_cluster = ("cluster", "tls_ca_file", "tls_cert", "tls_key")
        return self.model_copy(update={"testbed": testbed, **dict.fromkeys(of_cluster)})

    @property
    def tls_files(self) -> tuple[Path | None, Path | None, Path | None]:
        return self.tls_ca_file, self.tls_cert, self.tls_key

    @property
    def simulated(self) -> bool:
        return several(self.testbed)[0].partition(":")[0] == SIMULATED

    @property
    def testbed_name(self) -> str:
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
    def backend_names(self) -> tuple[str, ...]:
        """The backends as rows have them."""
        return tuple(str(registry.parse(backend)) for backend in self.backends)

    @property
    def own_backends(self) -> tuple[Own, ...]:
        return _each_once(tuple(filter(None, map(registry.OWN.own, self.backends))))

    @property
    def coding(self) -> tuple[codec_registry.Codec, ...]:
        return coding(self.codecs)

    @property
    def edge_memory(self) -> int:
        """The bytes that the edge has; 0 where nobody says."""
        return 0 if self.memory is None else _edge_bytes(self.memory)

    @property
    def level(self) -> load.Slo | None:
        return None if self.slo is None else load.slo(self.slo)

    @property
    def least_requests(self) -> int:
        """The requests of a round by which all rounds tell whether the SLO holds; 2 without one."""
        return 2 if self.level is None else max(2, math.ceil(self.level.requests / self.rounds))

    @property
    def loading(self) -> dict[str, load.Load | None]:
        """The loads, by what rows call each. Raises UserError for a file of arrivals that is none."""
        kinds = {"constant": (load.FIND,), "poisson": (load.POISSON + load.FIND,), None: self.loads}
        each = map(load.parse, kinds[self.find_rate])
        return {one.text if one else load.NONE: one for one in each}

    @property
    def tcp(self) -> TcpSettings:
        window = {"initial_window": self.initial_window} if self.initial_window is not None else {}
        return TcpSettings(self.congestion, slow_start_after_idle=self.slow_start_after_idle, **window)


def parse_sweep(fields: Mapping[str, Any], source: str = "") -> Sweep:
    """A sweep from options' names and values, each of which is one that the option takes, `_written_out`. source: of
    the values, for messages; empty for the command line. Raises UserError."""
    where = f"{source}: " if source else ""
    try:
        return _written_out(Sweep.model_validate(fields))
    except ValidationError as error:
        raise UserError(where + _first_fault(error, of_file=bool(source))) from None
    except UserError as error:
        raise UserError(f"{where}{error}") from None


def _written_out(sweep: Sweep) -> Sweep:
    """The sweep with `every` in its loads, `codec_back` in its codecs, `secure` in its backends. Raises UserError."""
    one_way, in_the_clear = OPTIONS["codec_back"].default, OPTIONS["secure"].default
    if sweep.every is not None:
        loads = (load.every(sweep.every), *(text for text in sweep.loads if text != load.NONE))
        sweep = sweep.model_copy(update={"loads": _each_once(loads), "every": None})
    if sweep.codec_back != one_way:
        sweep = sweep.model_copy(update={"codecs": _with_ways_back(sweep), "codec_back": one_way})
    if sweep.alone:
        if sweep.backends not in (OPTIONS["backend"].default, WITHOUT_LINK) or sweep.secure != in_the_clear:
            raise UserError(f"--{sweep.alone}-only: nothing crosses a link: leave --backend and --secure out")
        return sweep.model_copy(update={"backends": WITHOUT_LINK})
    if sweep.secure == in_the_clear:
        return sweep
    return sweep.model_copy(update={"backends": _secured(sweep), "secure": in_the_clear})


def _with_ways_back(sweep: Sweep) -> tuple[str, ...]:
    """The codecs, each with every one that results go through. Raises UserError."""
    try:
        backs = [codec_registry.parse_back(text) for text in sweep.codec_back]
    except ValueError as error:
        raise UserError(f"--codec-back: {error}") from None
    if told := next((codec.typed for codec in sweep.coding if codec.back), None):
        raise UserError(f"--codec-back: codec {told} already says what results go through")
    slashed = [f"{codec_registry.BACK}{back.text}" if back else "" for back in backs]
    return _each_once(tuple(codec.typed + back for codec in sweep.coding for back in slashed))


def _secured(sweep: Sweep) -> tuple[str, ...]:
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
                raise UserError(f"{name}: {error}") from None
        if len(made) == before:  # what can only go in the clear goes so once, if that is wanted at all
            raise UserError(f"--secure: {faults[0]}")
    return _each_once(tuple(made))


def _first_fault(error: ValidationError, *, of_file: bool) -> str:
    fault = error.errors()[0]
    option = str(fault["loc"][0]) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        return f"unknown key {option!r}: use {', '.join(OPTIONS)}"
    name = option if of_file or option not in OPTIONS else OPTIONS[option].typed
    if fault["type"] == "missing":
        return f"{name} is missing: say which model to sweep, as in --model mobilenetv2"
    words = in_plain_words(fault["msg"])
    return f"{name} {_SHOWN.repr(fault['input'])}: {words[0].lower()}{words[1:]}"
