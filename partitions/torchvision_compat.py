"""The one way in which this package reaches torchvision: `from .torchvision_compat import models`.

torchvision's wheel on PyPI is built against CUDA. Beside a CPU-only torch its compiled operators cannot be
loaded, and `import torchvision` then fails with "operator torchvision::nms does not exist", because it
registers shape functions for operators that nobody declared. No classification model calls those operators,
so declaring their schemas first is enough. Where torch and torchvision match, nothing is declared.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _load_operators() -> bool:
    """Load torchvision's own compiled operators, as its import would; False where that is impossible."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'torchvision'", name="torchvision")
    for library in Path(spec.origin).parent.glob("_C.*"):
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError:
            continue
        return True
    return False


def _declare_missing_operators() -> torch.library.Library | None:
    """Declare the schemas unless the operators are there; the declarations live as long as the result."""
    if "torchvision" in sys.modules or _load_operators():
        return None
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    return library


_declarations = _declare_missing_operators()
models = importlib.import_module("torchvision.models")
