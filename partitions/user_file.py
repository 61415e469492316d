"""A user's own model: a Python file, and the function or class in it that builds the model.

The file alone travels to the other hosts: all that it imports must be there, as torch is.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pareto.protocol.constants import DTYPES, MAX_TENSORS
from pareto.protocol.errors import UserError, blaming
from pareto.protocol.own import Own, in_rows
from pareto.protocol.own import module_of as own_module

from .entry import Entry
from .inputs import IMAGENET_MEAN, IMAGENET_STD, Images
from .inputs import Own as OwnInputs
from .purity import settings_kept

Builder = TypeVar("Builder", bound=Callable[[], nn.Module])

_DECLARATION = "_pareto_model"


def register(
    *,
    input_shape: tuple[int, int, int] = (3, 224, 224),
    postprocess: Callable[[Any], Any] | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    classes: tuple[str, ...] = (),
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None,
    inputs: Callable[[int, int], Any] | None = None,
) -> Callable[[Builder], Builder]:
    """Declare a function or class that makes an nn.Module without arguments to be a model.

    inputs: for a model that does not take images: returns its inputs for a batch size and a seed, as a tensor, a tuple
    of tensors, or a dict by the parameters of `forward`. input_shape: channels, height and width. postprocess: applied
    to what the module returns, as part of the model.
    mean, std: how images with values between 0 and 1 are normalised; ImageNet's by default, and 0 and 1 for images
    that do not have three channels. classes: what the outputs of a classifier stand for. pretrained: returns the state
    dict for `--weights pretrained`; it runs on the driver only.
    """
    declared = {
        "takes": _images(input_shape, mean, std) if inputs is None else inputs,
        "classes": tuple(classes),
        "postprocess": postprocess,
        "pretrained": pretrained,
    }

    def decorate(builder: Builder) -> Builder:
        setattr(builder, _DECLARATION, declared)
        return builder

    return decorate


def _images(
    input_shape: Any, mean: tuple[float, ...] | None = None, std: tuple[float, ...] | None = None
) -> Images:
    """The images that a user declares. Raises ValueError."""
    try:
        channels, height, width = (operator.index(size) for size in input_shape)
    except (TypeError, ValueError):
        channels = height = width = 0
    if min(channels, height, width) < 1:
        raise ValueError(
            f"input_shape is channels, height and width, as in (3, 224, 224), not {input_shape!r}"
        )
    usual = (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.0,) * channels, (1.0,) * channels)
    mean, std = tuple(mean or usual[0]), tuple(std or usual[1])
    if not len(mean) == len(std) == channels or not all(std):
        raise ValueError(f"mean and std have one number for each of {channels} channels, and no std is 0")
    return Images((channels, height, width), mean, std)


def load(own: Own) -> Entry:
    """The model that path/to/file.py:build names, or the only registered one of path/to/file.py. Raises UserError."""
    file, attribute = Path(own.file).resolve(), own.attribute
    if not attribute:
        named = reversed(vars(module_of(file)).items())  # a builder may have several names: the first counts
        first = {id(value): name for name, value in named if _declared(value)}
        if not first:
            raise UserError(f"{file} registers no model: name what builds it, as in {file.name}:build")
        attribute, *others = reversed(first.values())
        if others:
            names = ", ".join((attribute, *others))
            raise UserError(f"{file} registers {names}: say which, as in {file.name}:{attribute}")
    return read(Own(in_rows(str(file), attribute), str(file), attribute, str(file)))


def read(own: Own) -> Entry:
    """The model that a builder makes. Raises UserError."""
    file, builder = Path(own.file), maker(own)
    module = module_of(file)
    declared = dict(_declared(builder) or {})
    if not declared:
        shape = getattr(builder, "input_shape", getattr(module, "input_shape", (3, 224, 224)))
        make = getattr(builder, "inputs", getattr(module, "inputs", None))
        try:
            declared["takes"] = _images(shape) if make is None else make
        except ValueError as error:
            raise UserError(f"{file}: {error}") from error
    if not isinstance(declared["takes"], Images):
        declared["takes"] = OwnInputs(functools.partial(_inputs, file, declared["takes"]))
    if pretrained := declared.get("pretrained"):
        declared["pretrained"] = functools.partial(_trained, own, pretrained)
    build = functools.partial(_built, own, builder)
    return Entry(own.name, build, file=file, attribute=own.attribute, **declared)


def _declared(builder: Any) -> dict[str, Any] | None:
    """The declaration of a builder itself, not of a class that it is made of; None without."""
    return getattr(builder, "__dict__", {}).get(_DECLARATION)


def maker(own: Own, what: str = "model") -> Callable[..., Any]:
    """The function or class in a user's file. what: it makes, for messages. Raises UserError."""
    with _as_it_was():
        return own.maker(what)


def _built(own: Own, builder: Callable[[], Any]) -> nn.Module:
    with own.guarded("()"), settings_kept():
        model = copy.deepcopy(builder) if isinstance(builder, nn.Module) else builder()
        if isinstance(model, nn.Module):
            model = _unwrapped(model)
            model.eval()
    if not isinstance(model, nn.Module):
        raise UserError(f"{own.file}: {own.attribute}() makes no torch.nn.Module but {type(model).__name__}")
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"the part {path} that it makes" if path else "what it makes"
            raise UserError(
                f"{own.file}: {own.attribute}(): {what} is TorchScript, whose code cannot be cut: return the nn.Module "
                "itself"
            )
        module._compiled_call_impl = None  # by `module.compile()`
    return model


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module within what wraps it for a training or for a compiler; also where a part of it is wrapped."""
    while (inner := _INNER.get(type(model).__name__)) and isinstance(
        vars(model)["_modules"].get(inner), nn.Module
    ):
        model = getattr(model, inner)
    for name, child in model.named_children():
        if (plain := _unwrapped(child)) is not child:
            setattr(model, name, plain)
    return model


_INNER = {
    **dict.fromkeys(("DataParallel", "DistributedDataParallel", "AveragedModel"), "module"),
    "OptimizedModule": "_orig_mod",
}
"""The wrappers of a module for a training or by a compiler, and its name in each."""


def _trained(own: Own, pretrained: Callable[[], Any]) -> Mapping[str, Tensor]:
    """The state dict that a user's function returns. Raises UserError, and OSError and RuntimeError as they come."""
    # Where the weights are not here, the error's words are for the user.
    its = f"the pretrained weights of {own.attribute}"
    with blaming(Path(own.file), f"{its} fail", (OSError, RuntimeError, UserError)):
        state = pretrained()
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise UserError(f"{own.file}: {its} are no state dict")
    return state


def _inputs(file: Path, make: Callable[[int, int], Any], batch_size: int, seed: int) -> dict[str, Tensor]:
    """The tensors that a user's function makes, contiguous on the CPU: by name, or numbered. Raises UserError."""
    given = f"inputs({batch_size}, {seed})"
    with blaming(file, f"{given} fails"), _as_it_was():
        torch.manual_seed(seed)
        made = make(batch_size, seed)
    if not isinstance(made, Mapping):
        made = {str(i): one for i, one in enumerate(made if isinstance(made, tuple | list) else (made,))}
    if not 0 < len(made) <= MAX_TENSORS:
        raise UserError(f"{file}: {given} makes {len(made)} inputs: a model has 1 to {MAX_TENSORS}")
    for name, tensor in made.items():
        its = f"{file}: {given}: its input {name}"
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise UserError(f"{its} is no dense tensor but {type(tensor).__name__}")
        if (dtype := str(tensor.dtype).removeprefix("torch.")) not in DTYPES:
            raise UserError(f"{its} is {dtype}, which cannot be sent: {', '.join(DTYPES)} can")
        if tensor.dim() == 0 or len(tensor) != batch_size:
            shape = "x".join(map(str, tensor.shape)) or "no dimension"
            raise UserError(f"{its} has {shape}: the batch comes first, {batch_size}")
    return {name: tensor.detach().cpu().contiguous() for name, tensor in made.items()}


def module_of(file: Path) -> ModuleType:
    """The module of a user's file; see `own.module_of`. Raises UserError."""
    with _as_it_was():
        return own_module(file, "model")


@contextmanager
def _as_it_was() -> Iterator[None]:
    """A context for a user's code, which may change torch's settings and seed."""
    with settings_kept(), torch.random.fork_rng(devices=[]):
        yield
