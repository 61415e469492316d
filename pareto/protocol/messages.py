"""Messages between the driver and the workers, declared once: names, types and bounds.

A request is a dataclass; its class names the operation and the type of its report. The driver asks by
`hosts.session.Session.ask`, a program answers through `handlers`. Each end reads what the other sends by
`validation.read`, so everything is finite, within its bounds and of the declared shape. A host may be broken, or
somebody else's: whether its figures are true is for the verdict on a trial to say.

A figure that could not be measured is None. Windows are (from, to) on the reporting host's `time.monotonic`. This needs
the standard library only. Its dataclasses are not frozen: a worker's start would take three times as long to make them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from pareto.protocol.constants import MOST_IN_FLIGHT, MOST_REQUESTS
from pareto.protocol.jsonlines import Handler, Refused
from pareto.protocol.own import Own
from pareto.protocol.validation import Bounds, read

MAX_S = 86_400.0
"""Seconds. Beyond a day, what a peer reports as a duration is nonsense."""
MAX_STAGES = 7
"""Later stages that a request can pass: a chain has eight hosts at most."""
MAX_REQUESTS = 4 * MOST_REQUESTS
"""Requests of a trial: its phases, and those that fill the steps."""
MOST_FILE_BYTES = 64 << 20

Finite = Annotated[float, Bounds(-1e15, 1e15)]
Seconds = Annotated[float, Bounds(0, MAX_S)]
Duration = Annotated[float, Bounds(1e-9, MAX_S)]
"""Seconds of something that took time: figures are divided by it."""
Rate = Annotated[float, Bounds(1e-9, 1e18)]
LineRate = Annotated[float, Bounds(1e-9, 1e18, infinite=True)]
"""In bit/s; infinite for what came in one piece."""
Error = Annotated[float, Bounds(0, 1e18, infinite=True)]
"""Infinite where the results have another shape."""
Share = Annotated[float, Bounds(0, 1)]
Percent = Annotated[float, Bounds(0, 1e7)]
"""Percent of one core: a host has many."""
Count = Annotated[int, Bounds(0, (1 << 63) - 1)]
Positive = Annotated[int, Bounds(1, (1 << 63) - 1)]
Prefetch = Annotated[int, Bounds(0, MOST_IN_FLIGHT)]
Difference = Annotated[int, Bounds(1 - (1 << 63), (1 << 63) - 1)]
"""Between two readings of a counter, which may have started anew."""
Port = Annotated[int, Bounds(1, 65_535)]
Window = tuple[Finite, Finite]

R = TypeVar("R")


class Request(Generic[R]):
    """A request for the operation `op`, whose report is an R."""

    op: ClassVar[str]
    report: ClassVar[Any]

    def __init_subclass__(cls, op: str) -> None:
        cls.op = op
        (cls.report,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]


class Columns:
    """Fields that are columns, all of one length."""

    def __post_init__(self) -> None:
        if len({len(column) for column in vars(self).values()}) > 1:
            raise ValueError("its columns have different lengths")

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))


@dataclass
class Cuda:
    """A GPU. index: as CUDA counts. uuid: by which NVML knows it."""

    index: Count
    name: str
    uuid: str | None
    capability: str
    memory_bytes: Count
    driver: str | None
    runtime: str | None
    cudnn: Count | None
    cudnn_benchmark: bool
    tf32: bool


@dataclass
class Facts:
    """The facts about a host that a reader needs. engines: beside eager, with their versions; without_engines: what it
    lacks for the others. cores: the numbers of those that this host may use, of `cores_of_machine`."""

    hostname: str
    pid: Positive
    machine: str
    cpu: str
    cores: list[Count]
    governor: str | None
    memory_bytes: Count
    swap_bytes: Count
    kernel: str
    python: str
    torch: str
    torchvision: str
    threads: Positive
    collects_garbage: bool
    congestion_control: str | None
    slow_start_after_idle: str | None
    device: str
    cuda: Cuda | None
    engines: dict[str, str] = field(default_factory=dict)
    without_engines: dict[str, str] = field(default_factory=dict)
    cores_of_machine: Positive | None = None
    allocator: str = ""


@dataclass
class GetFacts(Request[Facts], op="facts"):
    """The facts about this host, with the device on which it computes."""


Form = list[tuple[str, tuple[Count, ...]]]
"""dtype and shape of each tensor of a message."""


@dataclass
class OwnCut:
    """A point of this name that a user's own codec is for. payload: of one image. encoded: by batch size, what it makes
    of what."""

    point: Count
    name: str
    payload: Form
    encoded: list[tuple[Form, Form]]


@dataclass
class OwnCodec:
    """A user's own codec, made with this seed. weights: a file with that digest. Its keys are those of the codec at
    each cut, behind the cut's point and a dot."""

    own: Own
    weights: str
    digest: str
    seed: Count
    cuts: list[OwnCut]


@dataclass
class LoadModel(Request[str], op="load"):
    """Load the model, without its weights, and on the edge also inputs and the whole model's results for them; the
    digest of its graph here.

    recipe: the fields of a `partitions.recipe.Recipe`. weights: files with the weights of the units that this host is
    to run, each with its digest. digest: of all the weights. data: files. codecs: a user's own. file_bytes: where
    requests begin with images' files, the most that one has.
    """

    recipe: dict[str, Any]
    weights: dict[str, str]
    digest: str
    data: list[str]
    codecs: list[OwnCodec] = field(default_factory=list)
    file_bytes: Annotated[int, Bounds(0, MOST_FILE_BYTES)] = 0


@dataclass(frozen=True)
class Keys:
    """The keys with which a run encrypts its connections by TLS, as PEM; empty where it does not."""

    certificate: str = ""
    private_key: str = ""


NO_KEYS = Keys()


@dataclass
class Listen(Request[dict[str, Port]], op="listen"):
    """Every host but the edge: the ports on which it waits for the host before, by these backends, and `probe`. keys:
    where the run encrypts, which has a port of its own. own: a user's own among the backends."""

    address: str
    token: str
    backends: list[str]
    keys: Keys = NO_KEYS
    own: list[Own] = field(default_factory=list)


@dataclass
class Connect(Request[None], op="connect"):
    """Every host but the last: open new connections to the host behind, one for each of these backends and the probe.
    ports: as that host's `Listen` reports them."""

    address: str
    token: str
    ports: dict[str, Port]
    backends: list[str]
    keys: Keys = NO_KEYS
    own: list[Own] = field(default_factory=list)


@dataclass
class OpenRendezvous(Request[Port], op="rendezvous"):
    """The last host: the port of a new store at which all hosts' agents can meet."""

    address: str


@dataclass
class JoinAgents(Request[None], op="join"):
    """Every host: its agent of this backend meets the others', anew if they had met. hosts: roles, the edge first."""

    backend: str
    role: str
    hosts: list[str]
    address: str
    port: Port
    interface: str


@dataclass
class WarmUp(Request[Seconds], op="warm"):
    """Every host but the last: the seconds that sending so many bytes to the host behind takes."""

    backend: str
    nbytes: Positive


@dataclass
class Split:
    """How the chain divides a model: `cuts[i]` of its units run before link i."""

    cuts: tuple[Count, ...]
    batch_size: Positive
    backend: str
    codec: str = "none"
    engine: str = "eager"

    def units(self, position: int, last: int) -> tuple[int, int]:
        """The points between which the host at `position` computes; `last`: the model's last point."""
        points = (0, *self.cuts, last)
        return points[position], points[position + 1]

    def reaches(self, position: int, last: int) -> bool:
        """Whether the host at `position` takes part: the hosts before leave it something to do."""
        return position <= len(self.cuts) and (position == 0 or self.cuts[position - 1] < last)

    def __str__(self) -> str:
        cuts = "+".join(map(str, self.cuts))
        codec = "" if self.codec == "none" else f" with codec {self.codec}"
        engine = "" if self.engine == "eager" else f" by engine {self.engine}"
        return f"point {cuts} at batch size {self.batch_size} over {self.backend}{codec}{engine}"


@dataclass
class StageLoaded:
    """run_s: of the last warm-up run. engine_s: what an engine took to build the stage; None: none did."""

    weights_bytes: Count
    run_s: Seconds
    engine_s: Seconds | None = None


@dataclass
class LoadStage(Request[StageLoaded], op="stage"):
    """Hold this host's stage of a split and no other, and serve it from now on. position: counts from the edge, 0.
    interface: leads to the host behind; None on the last. ranges: of tensors, for an engine that quantises."""

    split: Split
    position: Count
    interface: str | None
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass
class MeasureBaseline(Request[Duration | None], op="baseline"):
    """The seconds that a run of the stage takes when this host has nothing else to do; None: it has no unit."""

    split: Split
    position: Count


Answers = Mapping[type[Request[Any]], Callable[[Any], object]]
"""By kind of request, what makes its report."""


def handlers(answers: Answers) -> dict[str, Handler]:
    """For `jsonlines.serve`, by operation: a request is read as what it is declared to be, and answered."""
    return {kind.op: partial(_answered, kind, answer) for kind, answer in answers.items()}


def _answered(kind: type[Request[Any]], answer: Callable[[Any], object], request: dict[str, Any]) -> object:
    try:
        checked = read(kind, request)
    except ValueError as error:
        raise Refused(f"the request {kind.op} cannot be: {error}") from None
    return answer(checked)
