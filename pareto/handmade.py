"""Points that somebody chose by hand: <model>.yaml, in partitions/ or beside the user's own file."""

from __future__ import annotations

from pathlib import Path

import yaml

import partitions
from pareto.errors import UserError
from pareto.link.yaml_file import YamlFile
from partitions.recipe import Handmade

FOLDER = Path(partitions.__file__).parent

_KEYS = ("points", "chain")
_SHAPE = "write either 'points: [features.3, features.6]' or 'chain: [stem, body, head]'"


def find(name: str, file: Path | None) -> Handmade | None:
    """What <name>.yaml says: beside `file` for a user's own model, else in partitions/. None where there is none.

    name: the registry's. Raises UserError: one line with the file and the line in it.
    """
    path = (file.parent if file else FOLDER) / f"{name}.yaml"
    return _File(path, "points file", UserError).handmade() if path.exists() else None


class _File(YamlFile):
    def handmade(self) -> Handmade:
        root = self.compose()
        if root is None:
            raise UserError(f"{self.path}: is empty; {_SHAPE}")
        items = self.items(root, _KEYS, "a points file")
        if len(items) != 1:
            raise self.fault(root, f"it has {' and '.join(items) or 'neither'}; {_SHAPE}")
        ((key, node),) = items.items()
        return Handmade(**{key: self._names(node, key)})

    def _names(self, node: yaml.Node, key: str) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            raise self.fault(node, f"{key} is a list of names; {_SHAPE}")
        names: list[str] = []
        for item in node.value:
            name = self.text(item, f"{key} is a list of names; {_SHAPE}").strip()
            if not name:
                raise self.fault(item, f"a name in {key} is empty")
            if key == "points" and name in names:
                raise self.fault(item, f"point {name!r} stands here twice")
            names.append(name)
        return tuple(names)
