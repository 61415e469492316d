"""A user's own codec: a class, or a function, in a Python file, that makes an object with `encode` and `decode`.

It may be, or hold as attributes, torch modules, such as a learned bottleneck. The driver makes one for each cut that it
fits, runs it on the payloads there, and notes what layouts come out. File, weights and layouts travel over SSH to the
hosts, which make the same objects of them; what crosses the link is checked against the noted layouts there. Its code
runs with its user's rights, as that of a user's own model does: only what comes from the link is not trusted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from pareto.partitions import user_file, weights
from pareto.protocol import messages
from pareto.protocol.errors import BackendError, UserError, one_line
from pareto.protocol.own import Own
from pareto.remote.backends import wire
from pareto.remote.backends.base import BYTES, Layout, Tensors, identical, layout
from pareto.remote.codecs.base import check, in_words, nbytes
from pareto.remote.codecs.registry import OWN, Codec

MOST_BYTES = 1 << 31
"""A codec declares fewer bytes than this for one message."""


class Cut(NamedTuple):
    """The cut that a codec is made for. model, point: where the model is cut; name: the point's, as rows have it.
    payload: what crosses there for one image, on the meta device: shapes and dtypes without values."""

    model: str
    point: int
    name: str
    payload: Tensors

    @classmethod
    def of(cls, model: str, point: int, name: str, payload: Layout) -> Cut:
        made = (torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for dtype, shape in payload)
        return cls(model, point, name, tuple(made))


class OwnStep:
    """A user's codec at one cut."""

    def __init__(
        self, own: Own, cut: Cut, codec: Any, encoded: Mapping[Layout, Layout] | None = None
    ) -> None:
        """encoded: by the layout of a payload, that of what `encode` makes of it. None, on the driver: layouts are
        noted as they come, and the codec must change nothing that it is given, and make the same of the same twice."""
        self.own = own
        self.cut = cut
        self.known: dict[Layout, Layout] = dict(encoded or {})
        self._is_new = encoded is None
        self._codec = codec

    @property
    def varies(self) -> bool:
        """Whether it makes one tensor of bytes whose length is another with each request."""
        return getattr(self._codec, "most_bytes", None) is not None

    @property
    def state(self) -> dict[str, Tensor]:
        """The weights, each in memory of its own."""
        return {
            key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for key, tensor in modules(self._codec).state_dict().items()
        }

    def encoded(self, of: Layout) -> Layout:
        if of not in self.known:
            raise BackendError(f"codec {self.own.name} was never run on {in_words(of)}")
        return self.known[of]

    def encode(self, tensors: Tensors) -> Tensors:
        of = layout(tensors)
        given = _copied(tensors) if self._is_new else tensors
        made = self._run("encode", given)
        is_first = self._is_new and of not in self.known
        if self._is_new:
            if not identical(given, tensors):
                raise self._fault("encode", "changes the tensors that it is given: change a copy")
            self.known.setdefault(of, self._noted(of, made))
        self._check_made(made, self.encoded(of))
        if is_first:
            self._check_repeats(tensors, made, of)
        return made

    def decode(self, tensors: Tensors, of: Layout) -> Tensors:
        made = self._run("decode", tensors)
        if layout(made) != of:
            raise self._fault("decode", f"makes {in_words(layout(made))} of what was {in_words(of)}")
        return made

    def _noted(self, of: Layout, made: Tensors) -> Layout:
        """The layout of what it makes of payloads of this layout. Raises BackendError."""
        if not self.varies:
            try:
                wire.form(layout(made))
            except BackendError as fault:
                raise self._fault("encode", f"makes what cannot be sent: {fault}") from None
            return layout(made)
        most = self._codec.most_bytes
        images = sum(nbytes(*each) for each in of) // sum(each.nbytes for each in self.cut.payload)
        if type(most) is not int or not 0 < most * images < MOST_BYTES:
            raise self._fault("most_bytes", f"is {most!r}: it is how many bytes an image takes at most")
        return ((BYTES, (most * images,)),)

    def _check_made(self, made: Tensors, known: Layout) -> None:
        """Raises BackendError for what `encode` made, if it is not of the layout that is known."""
        try:
            check(made, known)
        except BackendError:
            kind = in_words(layout(made))
            words = (
                f"makes {kind}: with most_bytes it makes one tensor of uint8, here of {known[0][1][0]} at most"
                if self.varies
                else f"makes {kind}, and of another request {in_words(known)}: make all alike, or declare most_bytes"
            )
            raise self._fault("encode", words) from None

    def _check_repeats(self, tensors: Tensors, made: Tensors, of: Layout) -> None:
        """Raises BackendError where the same payload is encoded, or decoded, to something else a second time."""
        kept = _copied(made)
        first = _copied(self.decode(_copied(made), of))
        again = self._run("encode", _copied(tensors))
        if not identical(again, kept):
            raise self._fault("encode", "makes something else of the same payload the second time")
        if not identical(made, kept):
            raise self._fault("encode", "writes to the tensors that it made before: make new ones")
        if not identical(self.decode(again, of), first):
            raise self._fault("decode", "makes something else of the same tensors the second time")

    def _run(self, method: str, tensors: Tensors) -> Tensors:
        """A method's tensors, contiguous. Raises BackendError for everything that it raises, and for no tensors."""
        with self.own.guarded(f".{method}()", BackendError), torch.inference_mode():
            made = getattr(self._codec, method)(tensors)
        if not isinstance(made, tuple | list):
            kind = "None" if made is None else type(made).__name__
            raise self._fault(method, f"returns {kind}, not a tuple of tensors")
        for each in made:
            if not isinstance(each, Tensor):
                raise self._fault(method, f"returns a tuple with {type(each).__name__}: make it of tensors")
            if each.device.type != "cpu" or each.layout != torch.strided:
                raise self._fault(method, f"returns a tensor on {each.device}: codecs run on the processor")
        return tuple(each.contiguous() for each in made)

    def _fault(self, what: str, words: str) -> BackendError:
        called = what if what == "most_bytes" else f"{what}()"
        return BackendError(f"{self.own.typed}: {self.own.attribute}.{called} {words}")


def _copied(tensors: Tensors) -> Tensors:
    return tuple(tensor.clone() for tensor in tensors)


def factory(own: Own) -> Callable[..., Any]:
    """The class or function that makes the codec. Raises UserError."""
    return user_file.maker(own, OWN.what)


def fits(own: Own, cut: Cut) -> bool:
    """Whether the codec is for this cut: what its `fits` says, if it has one. Raises UserError."""
    says = getattr(factory(own), "fits", None)
    if says is None:
        return True
    with own.guarded(".fits(), a static method that is called before there is a codec,"):
        return bool(_called(says, cut))


def _called(function: Callable[..., Any], cut: Cut) -> Any:
    """The function's result; it gets the cut if it has a parameter `cut`."""
    return function(cut=cut) if "cut" in inspect.signature(function).parameters else function()


def modules(codec: Any) -> nn.Module:
    """The codec as one module: itself, or one that has those among its attributes."""
    if isinstance(codec, nn.Module):
        return codec
    holder = nn.Module()
    for name, value in getattr(codec, "__dict__", {}).items():
        if isinstance(value, nn.Module):
            holder.add_module(name, value)
    return holder


def _built(own: Own, cut: Cut, seed: int) -> Any:
    """A new codec with what random numbers of this seed make its weights, in eval mode. Raises UserError."""
    with torch.random.fork_rng(devices=[]), own.guarded("()"):
        torch.manual_seed(seed)
        codec = _called(factory(own), cut)
    for method in ("encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise UserError(f"{own.typed}: {own.attribute} has no method {method}(tensors)")
    modules(codec).eval().requires_grad_(False)
    return codec


def _load(own: Own, codec: Any, state: Mapping[str, Tensor]) -> None:
    try:
        modules(codec).load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{own.typed}: the weights do not fit {own.attribute}: {one_line(error)}") from None


# On the driver


def make(own: Own, cut: Cut, seed: int) -> OwnStep:
    """The codec for this cut, with what its `pretrained` returns, if it has that. Raises UserError."""
    codec = _built(own, cut, seed)
    if (pretrained := getattr(factory(own), "pretrained", None)) is not None:
        try:
            with own.guarded(".pretrained()", passing=(OSError,)):
                state = _called(pretrained, cut)
        except OSError as error:  # the weights are not here: the error's words are for the user
            raise UserError(f"no weights for codec {own.name}: {one_line(error)}") from error
        if not isinstance(state, Mapping) or not all(isinstance(each, Tensor) for each in state.values()):
            raise UserError(f"{own.typed}: {own.attribute}.pretrained() returns no state dict")
        _load(own, codec, state)
    return OwnStep(own, cut, codec)


def bound(codecs: Sequence[Codec], cuts: Sequence[Cut], seed: int) -> list[Codec]:
    """The codecs, with a user's own made for each of these cuts that it fits. Raises UserError."""
    owns = dict.fromkeys(codec.own for codec in codecs if codec.own)
    made = {own: {cut.point: make(own, cut, seed) for cut in cuts if fits(own, cut)} for own in owns}
    for codec in codecs:
        if codec.own and len(codec.names) > 1 and any(step.varies for step in made[codec.own].values()):
            raise UserError(
                f"--codec {codec.text}: {codec.own.name} declares most_bytes, so nothing comes behind it: "
                "its bytes are compressed by itself"
            )
    return [codec.bound(made[codec.own]) if codec.own else codec for codec in codecs]


def state_of(steps: Mapping[int, OwnStep]) -> dict[str, Tensor]:
    """The weights of a codec at all its cuts, by `<point>.<key>`."""
    return {f"{point}.{key}": tensor for point, step in steps.items() for key, tensor in step.state.items()}


def cuts_of(steps: Mapping[int, OwnStep]) -> list[messages.OwnCut]:
    """The cuts that a codec was made for and run at, as a host gets them."""
    cuts = []
    for point, step in steps.items():
        encoded = [([*of], [*made]) for of, made in step.known.items()]
        cuts.append(messages.OwnCut(point, step.cut.name, [*layout(step.cut.payload)], encoded))
    return cuts


# On a host


class Received(Mapping[int, OwnStep]):
    """By point, a codec that the driver sent, made when it is used: then it raises BackendError if that fails. The last
    two are kept: a host in the middle of a chain uses two."""

    def __init__(self, message: messages.OwnCodec, model: str) -> None:
        """Raises UserError for a damaged file of weights, and where the codec's file cannot be imported."""
        self.own = message.own
        self.digest = message.digest
        self._path, self._seed, self._model = Path(message.weights), message.seed, model
        if weights.file_digest(self._path) != message.digest:
            self._path.unlink()  # else it would pass for sent for ever
            raise UserError(f"{self._path.name} arrived damaged")
        self._cuts = {cut.point: cut for cut in message.cuts}
        self._made = functools.lru_cache(maxsize=2)(self._make)
        factory(self.own)  # what it imports is here, or it is said now

    def __getitem__(self, point: int) -> OwnStep:
        return self._made(point)

    def __iter__(self) -> Iterator[int]:
        return iter(self._cuts)

    def __len__(self) -> int:
        return len(self._cuts)

    def _make(self, point: int) -> OwnStep:
        known = self._cuts[point]
        cut = Cut.of(self._model, point, known.name, tuple(known.payload))
        before = f"{point}."
        try:
            codec = _built(self.own, cut, self._seed)
            state = {
                key.removeprefix(before): tensor.clone()  # out of the file's mapping, where addresses are odd
                for key, tensor in load_file(self._path).items()
                if key.startswith(before)
            }
            _load(self.own, codec, state)
        except UserError as error:
            raise BackendError(str(error)) from error
        return OwnStep(self.own, cut, codec, {tuple(of): tuple(made) for of, made in known.encoded})
