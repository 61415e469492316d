"""Files that the driver makes once for a model and ships to every host: weights, inputs, the whole model's answers."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from pareto.models import codec_results, feed
from pareto.partitions import allocator, costs, proof, registry, scratch, shards, weights
from pareto.partitions import model as partitioned
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import EngineError, Ranges
from pareto.partitions.inputs import BYTES, Images
from pareto.partitions.model import PartitionedModel
from pareto.partitions.quality import Quality
from pareto.partitions.recipe import CLASSES, Cuts, Recipe
from pareto.partitions.shards import Shard
from pareto.protocol import messages
from pareto.protocol.errors import BackendError, UserError, one_line
from pareto.protocol.own import Own
from pareto.remote.backends.base import Tensors, batches
from pareto.remote.codecs import own
from pareto.remote.codecs.registry import FILE, Codec, parse
from pareto.sweep.cell import Cell
from pareto.sweep.foreseen import ModelFacts
from pareto.sweep.splits import Split, chosen_points, fold_note
from pareto.sweep.sweep import AUTO, JPEG, Sweep

PICTURE_CHANNELS = (1, 3)
MAX_DATA_BYTES = 1 << 30
"""The most that inputs and answers of one batch size may take: the edge holds all of them, so that none is loaded
during a measured request."""


@dataclass(frozen=True)
class Artifact:
    """A file to ship, named by its content. It has no name on disk, so it cannot outlive this process."""

    path: Path
    digest: str

    @classmethod
    def unlinked(cls, file: Path, digest: str = "") -> Artifact:
        """The artifact of `file`, which loses its name and is read by descriptor from now on."""
        digest = digest or weights.file_digest(file)
        descriptor = os.open(file, os.O_RDONLY)
        file.unlink()
        return cls(Path(f"/proc/self/fd/{descriptor}"), digest)


@dataclass(frozen=True)
class OwnCodec:
    """A user's own codec, ready to be sent out: its file, its weights at all cuts, and what is known of the cuts."""

    own: Own
    code: Artifact
    weights: Artifact
    seed: int
    cuts: list[messages.OwnCut]

    @property
    def record(self) -> dict[str, Any]:
        return {
            "source_digest": self.code.digest,
            "weights_digest": self.weights.digest,
            "points": [cut.point for cut in self.cuts],
        }


@dataclass(frozen=True)
class Prepared:
    """A model ready to be sent out.

    code: the Python file that builds a user's own model. data: for each batch size, as `worker.trial.Data` has it.
    qualities, calibration: for each batch size, as `codec_results.Expected` has qualities and ranges. codecs: the
    user's own. shards: what of the weights travels. splits: which the hosts are to run; none: any. file_bytes: the most
    that an image's file has, where requests begin with such files, which are in `data` too.
    """

    name: str
    recipe: Recipe
    weights: Artifact
    code: Artifact | None
    data: dict[int, Artifact]
    graph_digest: str
    facts: ModelFacts
    manifest: dict[str, Any]
    qualities: Mapping[int, Mapping[str, Quality]]
    codecs: tuple[OwnCodec, ...] = ()
    shards: tuple[Shard, ...] = ()
    splits: tuple[Split, ...] = ()
    file_bytes: int = 0
    calibration: Mapping[int, Mapping[codec_results.Built, Ranges]] = field(default_factory=dict)

    def quality(self, cell: Cell) -> dict[str, Any]:
        """The columns of a row that say what the cell's codec and engine cost at its split."""
        codec = parse(cell.codec, {each.own.name for each in self.codecs})
        by = engines.parse(cell.engine).lossy(cell.cuts, self.facts.last)
        return self.qualities[cell.batch_size][codec_results.quality_name(codec, cell.cuts, by)].columns()

    def ranges(self, cell: Cell, position: int) -> Ranges:
        """By which the host at a position quantises its stage of a cell; empty where it does not."""
        start, end = (0, *cell.cuts, self.facts.last)[position : position + 2]
        engine = engines.parse(cell.engine).at(position, len(cell.cuts) + 1)
        return self.calibration.get(cell.batch_size, {}).get((engine, start, end), {})


def canonical(sweep: Sweep) -> Sweep:
    """The sweep with the full name of each model once; a user's own model has its file's path. Raises UserError."""
    names = full_names(sweep)
    # Names under which another process finds the models, too.
    lasting = {":".join(filter(None, registry.source(name))) or name: None for name in names}
    return sweep.model_copy(update={"models": tuple(lasting)})


def full_names(sweep: Sweep) -> list[str]:
    """The full name of each model, with the number of its classes where that is asked for or the weights have it.
    Raises UserError."""
    names = [registry.canonical(name) for name in sweep.models]
    return [
        registry.entry(f"{name}{told}").name if told and not name.endswith(told) else name
        for name in names
        for classes in [sweep.classes or weights.classes(name, sweep.weights)]
        for told in [f"{CLASSES}{classes}" if classes else ""]
    ]


def recipe(name: str, sweep: Sweep) -> Recipe:
    """The recipe by which a sweep builds and cuts a model. The edge's input is a camera's bytes, unless the model takes
    no images. Raises UserError."""
    file, attribute = registry.source(name)
    cuts, takes = Cuts(sweep.granularity, sweep.live_tensors, sweep.fold), registry.entry(name).takes
    points = chosen_points(name, file)
    if sweep.input != AUTO and not isinstance(takes, Images):
        raise UserError(f"--input {sweep.input}: {name} makes its own inputs: leave it out")
    dtypes = takes.dtypes("" if sweep.input == AUTO else sweep.input)
    return Recipe(name, cuts, file, attribute, points, dtypes)


def prepare(
    name: str,
    sweep: Sweep,
    splits: Sequence[Split] = (),
    show: Callable[[str], None] = lambda words: None,
) -> Prepared:
    """All that a sweep needs of a model, made now. splits: which are measured; none: any. show: gets words for what
    takes long. Raises UserError."""
    try:
        with scratch.folder() as folder:
            return _prepare(recipe(name, sweep), sweep, folder, splits, show)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise UserError(
            f"cannot prepare {name}: {why}; its files need room in {os.environ.get('TMPDIR', '/tmp')} for a moment: "  # noqa: S108
            "make some, or name another folder by TMPDIR"
        ) from error
    finally:
        allocator.give_back_freed()


def _prepare(
    recipe: Recipe, sweep: Sweep, folder: Path, splits: Sequence[Split], show: Callable[[str], None]
) -> Prepared:
    torch.set_num_threads(sweep.threads or 1)
    _check_pictures(recipe, sweep)
    # First: what makes a user's own weights may make the images too, and says so where both are missing.
    made = weights.make(recipe.name, sweep.weights, sweep.seed, folder)
    dataset = feed.open_dataset(sweep)
    model = partitioned.load(recipe, made)
    fed, facts, notes = feed.feed_for(sweep, dataset, recipe, model.results)
    input_bytes, result_bytes = model.points[0].payload_bytes, sum(spec.nbytes for spec in model.results)
    for batch_size in sweep.batch_sizes:
        images = fed.count(batch_size) * batch_size
        what = f"{images} images for {model.name} at batch size {batch_size} are, with its answers,"
        _check_room(images * (input_bytes + result_bytes), what, "fewer --images, or a smaller --batch-size")
    data, inputs, compute_s, qualities = {}, {}, float("inf"), {}
    ways_out = list(dict.fromkeys(codec.out for codec in sweep.coding))
    computed = [codec for codec in ways_out if codec.names and not codec.file]
    codecs = own.bound(computed, cuts(model, splits), sweep.seed)
    shares: Mapping[str, tuple[float, ...]] = {}
    codec_s: Mapping[str, tuple[tuple[float, float], ...]] = {}
    accuracy: dict[tuple[int, str, str, Split], float] = {}
    file_bytes, entry = 0, registry.entry(recipe.name)
    dtypes = f"{JPEG}-decoded {recipe.input}" if sweep.source == JPEG else recipe.input
    built_by = [engines.parse(text) for text in sweep.engines]
    calibration: dict[int, Mapping[codec_results.Built, Ranges]] = {}
    changing = any(engine.differs for engine in built_by)
    through = [*codecs, *(codec for codec in ways_out if changing and not codec.names)]
    for batch_size in sweep.batch_sizes:
        tensors, batch_s = _answered(model, fed, batch_size)
        compute_s = min(compute_s, batch_s / batch_size)
        images = fed.count(batch_size) * batch_size
        inputs[str(batch_size)] = {"images": images, "digest": _digest(batches(tensors, "input"))}
        coded_bytes = images * result_bytes * len(codec_results.lossy(model, splits, through, built_by))
        what = f"the results of {model.name} with each codec at each point are"
        _check_room(coded_bytes, what, "fewer --images, --points or codecs")
        try:
            known = entry.task, entry.places, built_by, show
            expected = codec_results.expected(model, tensors, splits, through, *known)
        except BackendError as error:
            raise UserError(f"--codec: {model.name}: {error}") from None
        except EngineError as error:
            raise UserError(f"--engine: {model.name}: {error}") from None
        calibration[batch_size] = expected.ranges
        shares, codec_s, qualities[batch_size] = expected.wire_shares, expected.codec_s, expected.qualities
        of_size = codec_results.accuracies(expected.qualities, model, splits, codecs, built_by)
        accuracy |= {(batch_size, *cell): share for cell, share in of_size.items()}
        tensors.pop("labels", None)
        files = {f"file{number}": file for number, file in enumerate(fed.files(batch_size))}
        file_bytes = max([file_bytes, *(-(-len(file) // batch_size) for file in files.values())])
        _check_files(model.name, file_bytes, images)
        tensors |= files
        if files:
            share = sum(map(len, files.values())) / (images * input_bytes)
            shares = {**shares, FILE: (share, *[1.0] * model.last)}
        save_file({**tensors, **expected.references}, folder / "data.part")
        data[batch_size] = Artifact.unlinked(folder / "data.part")
    code = Artifact.unlinked(Path(shutil.copyfile(recipe.file, folder / "model.py"))) if recipe.file else None
    sent = _own_codecs(codecs, sweep.seed, folder)
    weights_file = Artifact.unlinked(made, made.stem)
    return Prepared(
        recipe.name,
        recipe,
        weights_file,
        code,
        data,
        model.graph_digest,
        ModelFacts(
            tuple((point.name, point.payload_bytes) for point in model.points),
            compute_s,
            result_bytes,
            input=dtypes,
            own_inputs=not isinstance(model.takes, Images),
            notes=tuple(filter(None, (fold_note(model.points, model.cuts), *notes))),
            wire_shares=shares,
            codec_s=codec_s,
            accuracy=accuracy,
            dtypes=tuple(tuple(spec.dtype for spec in point.payload) for point in model.points),
            nodes=model.nodes,
            units=costs.held(model),
            unfit={
                codec.text: frozenset(range(model.last)).difference(codec.made)
                for codec in codecs
                if codec.made is not None
            },
        ),
        {
            "weights": sweep.weights,
            "weights_digest": made.stem,
            "source_digest": code.digest if code else None,
            "dataset": {**facts, "inputs": inputs},
            "graph_digest": model.graph_digest,
            "traced_by": model.traced.traced_by,
            "granularity": recipe.cuts.granularity,
            "live_tensors": recipe.cuts.live_tensors,
            "folded": sum(len(point.folded) for point in model.points),
            "input": dtypes,
            "input_shape": model.inputs[0].shape,
            "points": [
                {"name": point.name, "payload_bytes": point.payload_bytes, "folded": point.folded}
                for point in model.points
            ],
            **({"own_codecs": {each.own.name: each.record for each in sent}} if sent else {}),
        },
        qualities,
        sent,
        shards.of(model, weights_file.path),
        tuple(splits),
        file_bytes,
        calibration,
    )


def cuts(model: PartitionedModel, splits: Sequence[Split]) -> list[own.Cut]:
    """Where something crosses a link, in order."""
    crossed = sorted({cut for split in splits for cut in split if cut < model.last})
    layouts = {cut: tuple((spec.dtype, spec.shape) for spec in model.points[cut].payload) for cut in crossed}
    return [own.Cut.of(model.name, cut, model.points[cut].name, layouts[cut]) for cut in crossed]


def _own_codecs(codecs: Sequence[Codec], seed: int, folder: Path) -> tuple[OwnCodec, ...]:
    """The user's own among these codecs, which have been run, ready to be sent out."""
    sent = {}
    for codec in codecs:
        if codec.own is not None and codec.own not in sent:
            steps: Mapping[int, own.OwnStep] = codec.made  # type: ignore[assignment]
            save_file(own.state_of(steps), folder / "codec.part")
            code = Artifact.unlinked(Path(shutil.copyfile(codec.own.file, folder / "codec.py")))
            state = Artifact.unlinked(folder / "codec.part")
            sent[codec.own] = OwnCodec(codec.own, code, state, seed, own.cuts_of(steps))
    return tuple(sent.values())


def _check_room(nbytes: int, what: str, give: str) -> None:
    if nbytes > MAX_DATA_BYTES:
        most = f"more than the {MAX_DATA_BYTES >> 30} GiB that a host is to hold"
        raise UserError(f"{what} {nbytes / 2**30:.1f} GiB, {most}: give {give}")


def _check_pictures(recipe: Recipe, sweep: Sweep) -> None:
    """Raises UserError where a codec makes pictures, and the model's input is none."""
    made = next((codec.text for codec in sweep.coding if codec.pictures), None)
    takes, why = registry.entry(recipe.name).takes, ""
    if not isinstance(takes, Images):
        why = "inputs of its own"
    elif recipe.input != BYTES:
        why = f"{recipe.input}: give --input uint8"
    elif takes.shape[0] not in PICTURE_CHANNELS:
        why = f"{takes.shape[0]} channels"
    if made and why:
        raise UserError(
            f"--codec {made} makes pictures of bytes in 1 or 3 channels, and {recipe.name} gets {why}"
        )


def _check_files(name: str, most: int, images: int) -> None:
    if most > messages.MOST_FILE_BYTES or most * images > MAX_DATA_BYTES:
        raise UserError(
            f"the files of {images} images for {name} have up to {most / 2**20:.0f} MiB each: give smaller ones, or "
            "fewer --images"
        )


def _answered(model: PartitionedModel, images: feed.Feed, batch_size: int) -> tuple[dict[str, Tensor], float]:
    """The data of a batch size as `Prepared` has it, and the seconds of the fastest forward pass. Raises UserError."""
    tensors: dict[str, Tensor] = {}
    fastest_s = float("inf")
    for index, batch in enumerate(images.batches(batch_size)):
        started = time.perf_counter()
        answers = proof.reference(model, *batch)
        fastest_s = min(fastest_s, time.perf_counter() - started)
        if not index:
            proof.check_again(model, batch, answers)
        kinds = (("input", batch), ("reference", answers))
        for name, group in kinds:
            for number, tensor in enumerate(group):
                codec_results.put(tensors, f"{name}{number}", index, tensor, images.count(batch_size))
    labels = images.labels(batch_size)
    return tensors if labels is None else {**tensors, "labels": labels}, fastest_s


def _digest(batches: Sequence[Tensors]) -> str:
    digest = hashlib.sha256()
    for tensor in itertools.chain.from_iterable(batches):
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
