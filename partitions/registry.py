"""The models that can be partitioned: every torchvision classification model, by name."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from .torchvision_compat import models


class UnknownModel(ValueError):
    """No model has this name, or more than one has; the message is one line with the nearest names."""


# Auxiliary heads are for training only: no inference graph runs them, so they are not built.
# transform_input would differ between random and pretrained weights: one graph whichever weights are used.
_WITHOUT_AUXILIARY = {"aux_logits": False, "transform_input": False, "init_weights": False}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "googlenet": _WITHOUT_AUXILIARY,
    "inception_v3": _WITHOUT_AUXILIARY,
}


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(models.list_models(module=models))


def names() -> list[str]:
    """Canonical names of all models, sorted."""
    return list(_names())


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def canonical(name: str) -> str:
    """The registered name for `name`, whatever its case and separators: 'MobileNet-V2' -> 'mobilenet_v2'.

    Raises UnknownModel for a name that fits no model, or several (regnetx16gf: 16 or 1.6 GF).
    """
    known = _names()
    if name in known:
        return name
    matches = [candidate for candidate in known if _squash(candidate) == _squash(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownModel(f"model {name!r} is ambiguous: {' or '.join(matches)}?")
    squashed = {_squash(candidate): candidate for candidate in known}
    nearest = difflib.get_close_matches(_squash(name), squashed, n=3, cutoff=0.0)
    raise UnknownModel(f"unknown model {name!r}: did you mean {', '.join(squashed[n] for n in nearest)}?")


def input_shape(name: str) -> tuple[int, int, int]:
    """Channels, height and width that the model's default weights were evaluated at; downloads nothing."""
    transforms = models.get_model_weights(canonical(name)).DEFAULT.transforms
    size = int(transforms.keywords["crop_size"])
    return (3, size, size)


def build(name: str) -> nn.Module:
    """A new float32 model in eval mode, gradients off, with torchvision's random initialization.

    The weights come from the current global RNG.
    """
    name = canonical(name)
    arguments = dict(_ARGUMENTS.get(name, {}))
    if name.startswith("vit_"):  # its position embedding is as long as the image is large
        arguments["image_size"] = input_shape(name)[1]
    model: nn.Module = models.get_model(name, weights=None, **arguments)
    return model.eval().requires_grad_(False)


def build_structure(name: str) -> nn.Module:
    """The same model with its parameters on the meta device: neither allocated nor initialized.

    Buffers are real, since constructors compute with them. `torch.device("meta")` would take those along,
    and RegNet, which computes its widths with tensors, could not be built.
    """

    def without_memory(_module: nn.Module, _name: str, parameter: nn.Parameter) -> nn.Parameter:
        return nn.Parameter(parameter.to("meta"), requires_grad=False)

    hook = register_module_parameter_registration_hook(without_memory)  # type: ignore[arg-type]
    try:
        return build(name)
    finally:
        hook.remove()
