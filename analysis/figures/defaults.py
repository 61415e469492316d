"""matplotlib without what lies in the current folder: it would read a `matplotlibrc` there, whatever that is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class Defaults(MetaPathFinder):
    """In `sys.meta_path` it has matplotlib look elsewhere for its settings, whenever it comes to be imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "matplotlib":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load, exists = spec.loader.exec_module, os.path.exists

            def loaded(module: ModuleType) -> None:
                os.path.exists = lambda path: path != "matplotlibrc" and exists(path)
                try:
                    load(module)
                finally:
                    os.path.exists = exists

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec
