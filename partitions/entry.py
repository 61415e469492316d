"""A model's entry in the registry, and its modules, made with or without memory for their parameters."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from pareto.protocol.errors import UserError, blaming

from .graph import Input
from .inputs import Images, Taken
from .purity import settings_kept

SEGMENTATION, DETECTION = "segmentation", "detection"
"""Tasks: the first output has logits of each pixel's classes, (n, classes, height, width); or boxes as YOLO's."""

Placing = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Entry:
    """One model. build: makes it, float32, with random weights from the global RNG. takes: what goes in.

    classes: that the model tells apart, in the order of its outputs; empty where they are not known.
    pretrained: downloads the state dict of trained weights; None where there is none. postprocess: is applied to what
    the module returns. file, attribute: for a user's own model, the Python file and the name of the builder in it.
    task: of what kind the outputs are, where figures of quality need to know (`partitions.quality`).
    places: of a detector, what turns its outputs into the form of YOLO's; None: the first of them has it.
    """

    name: str
    build: Callable[[], nn.Module]
    takes: Taken
    classes: tuple[str, ...] = ()
    pretrained: Callable[[], Mapping[str, Tensor]] | None = None
    postprocess: Callable[[Any], Any] | None = None
    file: Path | None = None
    attribute: str = ""
    task: str = ""
    places: Placing | None = None

    def module(self) -> nn.Module:
        """A new module in eval mode, with its postprocessing. Raises what `build` raises."""
        model = self.build().eval()
        if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
            with torch.no_grad():  # layers that learn their sizes from what they get first
                self.call(model, self.example(2, 0))
        if self.postprocess is None:
            return model
        forward, postprocess = type(model).forward, self.postprocess

        @functools.wraps(forward)  # its parameters are looked at
        def processed(*args: Any, **kwargs: Any) -> Any:
            return postprocess(forward(*args, **kwargs))

        return with_forward(model, processed)

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """A context for a user's own code: what it raises becomes one line with the file's, a UserError, and what it
        sets for the whole process is set back."""
        blame = blaming(self.file, f"{self.name} fails", (UserError, MemoryError))
        with blame if self.file else contextlib.nullcontext(), settings_kept():
            yield

    @functools.cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The tensors that the module takes; images as float32. Raises UserError."""
        return self.takes.inputs

    @property
    def images(self) -> Images:
        """Those that it takes. Raises UserError where it takes something else."""
        if not isinstance(self.takes, Images):
            raise UserError(f"{self.name} makes its own inputs, and takes no images")
        return self.takes

    def example(self, batch_size: int, seed: int) -> tuple[Tensor, ...]:
        """A batch of what the model takes. Raises UserError."""
        return next(self.takes.batches(1, batch_size, seed))

    def call(self, module: nn.Module, inputs: Sequence[Tensor]) -> Any:
        """The result of a module of this model for these inputs."""
        names = [one.name for one in self.inputs]
        return module(**dict(zip(names, inputs, strict=True))) if names[0] else module(*inputs)


def with_forward(module: nn.Module, forward: Callable[..., Any]) -> nn.Module:
    """The same module with another forward; its parameters keep their names, and it stays an instance of its class."""
    base = type(module)
    module.__class__ = type(base.__name__, (base,), {"forward": forward})
    return module


def without_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """The module that `build` makes, its parameters on the meta device: neither allocated nor initialized.

    Buffers are real, because constructors compute with them, and the same in every process. `torch.device("meta")`
    would put them on that device too, and RegNet, which computes its widths with tensors, could not be built. A
    constructor that needs the values of its parameters gets them, with memory for them, as long as it runs.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hook = register_module_parameter_registration_hook(_without_memory)  # type: ignore[arg-type]
        try:
            with _MetaPrevails():  # type: ignore[no-untyped-call]
                model = build()
        except Exception:  # whatever a constructor does when the values that it asks for are not there
            model = None
        finally:
            hook.remove()
        if model is None or any(buffer.is_meta for buffer in model.buffers()):
            model = build()
    moved = dict[int, nn.Parameter]()  # what two layers share, they share there, too
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            empty = moved.setdefault(id(parameter), _without_memory(module, name, parameter))
            module.register_parameter(name, empty)
    return model


def _without_memory(_module: nn.Module, _name: str, parameter: nn.Parameter) -> nn.Parameter:
    if parameter.is_meta or isinstance(parameter, UninitializedParameter):
        return parameter
    return nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)


class _MetaPrevails(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Moves what meets a parameter to the meta device: constructors may run the model to learn sizes."""

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = (args, dict(kwargs or {}))
        tensors = [value for value in tree_leaves(given) if isinstance(value, Tensor)]
        if len({tensor.is_meta for tensor in tensors}) > 1:
            if func._schema.is_mutable and not tensors[0].is_meta:
                raise RuntimeError("a tensor is to take the value of a parameter")
            given = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), given)
        return func(*given[0], **given[1])
