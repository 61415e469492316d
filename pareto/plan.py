"""From a sweep to what will be done: rounds of cells in random order, and how long it takes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pareto import bounds
from pareto.link import probe
from pareto.link.profile import Profile
from pareto.spec import Cell, Sweep

RESULT_BYTES = 4000
"""A thousand float32 scores: close enough to foresee durations with."""
OVERHEAD_S = 0.1
"""Control messages, checking results, writing rows: a trial's share that is neither phase nor probe."""


@dataclass(frozen=True)
class Effort:
    """How much is measured in a trial: (requests, seconds) that each phase takes at the least."""

    latency: tuple[int, float]
    throughput: tuple[int, float]


THOROUGH = Effort(latency=(3, 1.9), throughput=(2, 1.9))
QUICK = Effort(latency=(2, 0.3), throughput=(1, 0.3))
WARMUP_S = 0.2
MAX_WARMUP_REQUESTS = 20


@dataclass(frozen=True)
class ModelFacts:
    """What planning needs to know of a model. `compute_s`: the whole model's forward pass, one image, here."""

    points: tuple[tuple[str, int], ...]
    compute_s: float


@dataclass(frozen=True)
class Trial:
    """A cell to be measured in a round. `latency_s`: one request, foreseen; `estimate_s`: all, with its probe."""

    cell: Cell
    round: int
    latency_s: float
    estimate_s: float

    def warmup_requests(self, proven: bool, compute_s: float = 0.0) -> int:
        """Requests before the clock starts: one to prove a cell's output, and as many as fit into `WARMUP_S`.

        Stages are warmed by themselves on each host, where a request took `compute_s`; on a slow link or device one
        more would only cost time.
        """
        return max(
            0 if proven else 1, min(MAX_WARMUP_REQUESTS, int(WARMUP_S / max(self.latency_s, compute_s)))
        )


@dataclass(frozen=True)
class Plan:
    trials: tuple[Trial, ...]
    effort: Effort
    rounds: int

    @property
    def estimate_s(self) -> float:
        return sum(trial.estimate_s for trial in self.trials)


def cells(sweep: Sweep, models: Mapping[str, ModelFacts], netems: Iterable[str]) -> list[Cell]:
    """Every cell of the sweep, in order; `netems` are its profiles' names."""
    return [
        Cell(model, point, models[model].points[point][0], backend, netem, batch_size)
        for model in sweep.models
        for netem in netems
        for batch_size in sweep.batch_sizes
        for point in chosen(sweep, models[model])
        for backend in sweep.backends
    ]


def chosen(sweep: Sweep, model: ModelFacts) -> Sequence[int]:
    return range(len(model.points)) if sweep.points == "all" else sorted(set(sweep.points))


def make(
    sweep: Sweep,
    models: Mapping[str, ModelFacts],
    profiles: Mapping[str, Profile],
    done: frozenset[tuple[Cell, int]] = frozenset(),
) -> Plan:
    """`sweep.trials` rounds, each every cell once, less what is `done`.

    In a round the cells of one (model, profile) stay together, for loading a model or reshaping the link between
    any two trials would take longer than they do; the order of these groups, and of the cells in each, is random
    from the sweep's seed.
    """
    effort = QUICK if sweep.quick else THOROUGH
    trials: list[Trial] = []
    for number in range(1, sweep.trials + 1):
        # Not cryptography: an order that anybody can make again from the manifest.
        shuffled = random.Random(f"{sweep.seed}/{number}")  # noqa: S311
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in cells(sweep, models, profiles):
            groups.setdefault((cell.model, cell.netem), []).append(cell)
        order = list(groups.values())
        shuffled.shuffle(order)
        for group in order:
            shuffled.shuffle(group)
            trials += [
                _trial(cell, number, effort, models[cell.model], profiles[cell.netem])
                for cell in group
                if (cell, number) not in done
            ]
    return Plan(tuple(trials), effort, sweep.trials)


def _trial(cell: Cell, number: int, effort: Effort, model: ModelFacts, profile: Profile) -> Trial:
    payload = model.points[cell.point][1] * cell.batch_size
    compute_s = model.compute_s * cell.batch_size
    crosses = cell.point < len(model.points) - 1
    transfer_s = bounds.transfer_s(profile, payload, RESULT_BYTES) if crosses else 0.0
    latency_s = compute_s + transfer_s + (profile.rtt_s if crosses else 0.0)
    slowest_s = max(
        transfer_s, compute_s * max(cell.point, len(model.points) - cell.point) / len(model.points)
    )
    phases_s = _phase_s(effort.latency, latency_s) + _phase_s(effort.throughput, slowest_s)
    around_s = 2 * latency_s + probe.duration_s(profile) + OVERHEAD_S  # warm-up, the throughput phase's fill
    return Trial(cell, number, latency_s, phases_s + around_s)


def _phase_s(length: tuple[int, float], request_s: float) -> float:
    requests, seconds = length
    return max(requests * request_s, seconds)
