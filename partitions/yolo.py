"""YOLOv8 and YOLOv5 of the optional package ultralytics, made from its own YAML files."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pareto.protocol.errors import UserError, one_line

from . import scratch
from .entry import DETECTION, Entry, with_forward
from .inputs import Images

NAMES = tuple(f"yolo{version}{size}" for version in ("v5", "v8") for size in "nsmlx")
INSTALL = ".venv/bin/python -m pip install --no-deps -r requirements-yolo.txt"
_SIZE = 640


def names() -> tuple[str, ...]:
    """NAMES where the package is installed, else none."""
    return NAMES if importlib.util.find_spec("ultralytics") else ()


@functools.cache
def entry(name: str) -> Entry:
    """One of NAMES. It maps images to boxes, (batch, 4 + 80, 8400): centre, width, height, and a score a class."""
    images = Images((3, _SIZE, _SIZE), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return Entry(name, lambda: _detector(name), images, task=DETECTION)


def _detector(name: str) -> nn.Module:
    """Ultralytics' model with a static graph: its last layer returns the decoded boxes only, with a fixed grid."""
    try:
        with _untouched():
            tasks, tal = (
                importlib.import_module(f"ultralytics.{name}") for name in ("nn.tasks", "utils.tal")
            )
    except ImportError as error:
        raise UserError(f"{name}: ultralytics cannot be imported ({one_line(error)}): {INSTALL}") from error
    detector: nn.Module = tasks.DetectionModel(f"{name}.yaml", verbose=False)
    for module in detector.modules():
        if split := getattr(type(module), "forward_split", None):  # chunk() gives a list of unknown length
            with_forward(module, split)
        activation = getattr(module, "act", None)
        if isinstance(activation, nn.SiLU):  # one object serves the whole model: each cut would have its name
            module.act = copy.copy(activation)
    *_, head = detector.model  # type: ignore[misc]
    head.export = True  # nothing but the boxes
    _fix_grid(head, tal.make_anchors)
    return with_forward(detector, lambda self, images: self.predict(images))


def _fix_grid(head: Any, grid: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """Compute the grid of anchor points now, which `head` would compute at each change of the batch size."""
    levels = [torch.empty(1, 1, _SIZE // int(stride), _SIZE // int(stride)) for stride in head.stride]
    for buffer, values in zip(("grid_points", "grid_strides"), grid(levels, head.stride), strict=True):
        head.register_buffer(buffer, values.transpose(0, 1).contiguous(), persistent=False)
    base = type(head)

    def decoded(self: Any, raw: dict[str, Tensor]) -> Tensor:
        distances, points = self.dfl(raw["boxes"]), self.grid_points.unsqueeze(0)
        boxes: Tensor = self.decode_bboxes(distances, points) * self.grid_strides
        return boxes

    head.__class__ = type(base.__name__, (base,), {"_get_decode_boxes": decoded})


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """Undo what the package does when it is imported.

    It looks for a network, writes settings to the home directory, sets environment variables for other libraries, and
    puts its own torch.save in place of torch's. It logs to what is stdout at that moment.
    """
    environment, save = dict(os.environ), torch.save
    with scratch.folder() as folder:
        os.environ |= {"YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "1"}
        os.environ |= {"YOLO_AUTOINSTALL": "0", "YOLO_VERBOSE": "0"}
        try:
            yield
        finally:
            for added in os.environ.keys() - environment.keys():
                del os.environ[added]
            os.environ.update(environment)
            torch.save = save
