"""What the driver makes once for a model and ships to every host: weights, inputs, and the whole model's answers."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from pareto.plan import ModelFacts
from pareto.spec import SpecError, Sweep
from partitions import model as partitioned
from partitions import proof, registry, weights

INPUTS = 4
"""Different inputs that requests take in turn, so that a stale result cannot pass for a fresh one."""


@dataclass(frozen=True)
class Artifact:
    """A file to ship, named by its content. It has no name on disk, so that it cannot outlive this process."""

    path: Path
    digest: str

    @classmethod
    def unlinked(cls, file: Path, digest: str) -> Artifact:
        """Take `file` over: open it, delete its name, and read it by descriptor from now on."""
        descriptor = os.open(file, os.O_RDONLY)
        file.unlink()
        return cls(Path(f"/proc/self/fd/{descriptor}"), digest)


@dataclass(frozen=True)
class Prepared:
    """A model ready to be sent out. `data` holds inputs and references for each batch size."""

    name: str
    weights: Artifact
    data: dict[int, Artifact]
    graph_digest: str
    facts: ModelFacts
    manifest: dict[str, Any]


def canonical(sweep: Sweep) -> Sweep:
    """The sweep with its models' full names and its points checked. Raises SpecError, registry.UnknownModel."""
    names = tuple(dict.fromkeys(registry.canonical(name) for name in sweep.models))
    for name in names:
        last = len(partitioned.describe(name)[0]) - 1
        if sweep.points != "all":
            wrong = [point for point in sweep.points if not 0 <= point <= last]
            if wrong:
                raise SpecError(
                    f"{name} has no point {wrong[0]}: its points are 0 (all on the server) to {last}"
                )
    return sweep.model_copy(update={"models": names})


def prepare(name: str, sweep: Sweep) -> Prepared:
    """Make everything for a model. Raises weights.WeightsError."""
    with tempfile.TemporaryDirectory(prefix="pareto-") as folder:
        return _prepare(name, sweep, Path(folder))


def _prepare(name: str, sweep: Sweep, folder: Path) -> Prepared:
    torch.set_num_threads(sweep.threads or 1)
    made = weights.make(name, sweep.weights, sweep.seed, folder)
    model = partitioned.load(name, made.path)
    generator = torch.Generator().manual_seed(sweep.seed)
    data = {}
    compute_s = float("inf")
    for batch_size in sweep.batch_sizes:
        inputs = torch.randn(INPUTS, batch_size, *model.input_shape, generator=generator)
        references = []
        for batch in inputs:
            started = time.perf_counter()
            references.append(proof.reference(model, batch))
            compute_s = min(compute_s, (time.perf_counter() - started) / batch_size)
        data[batch_size] = _save({"inputs": inputs, "references": torch.stack(references)}, folder)
    points = model.points
    return Prepared(
        name,
        Artifact.unlinked(made.path, made.digest),
        data,
        model.graph_digest,
        ModelFacts(tuple((point.name, point.payload_bytes) for point in points), compute_s),
        {
            "weights": sweep.weights,
            "weights_digest": made.digest,
            "graph_digest": model.graph_digest,
            "input_shape": model.input_shape,
            "points": [{"name": p.name, "payload_bytes": p.payload_bytes} for p in points],
        },
    )


def _save(tensors: dict[str, torch.Tensor], folder: Path) -> Artifact:
    draft = folder / "data.part"
    save_file(tensors, draft)
    return Artifact.unlinked(draft, weights.file_digest(draft))
