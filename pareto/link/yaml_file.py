"""Reading a YAML file by its nodes, so that each fault names the file and the line."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class YamlFile:
    """A file that holds one kind of thing. `error` is what a fault in it is raised as."""

    path: Path
    what: str
    error: type[Exception]

    def compose(self) -> yaml.Node | None:
        """The root node; None where the file is empty. Raises `error`."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(f"cannot read the {self.what} {self.path}: {error}") from None
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise self.error(f"{self.path}:{line}: not YAML: {error.problem}") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self.error(f"{self.path}:{line}: not YAML: a character that is not text") from None

    def items(self, node: yaml.Node, known: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        """The values of a mapping with those keys. Each fault names the key's line."""
        keys = f"{what} has the keys {', '.join(known)}"
        items = self.mapping(node, f"{what} must be a mapping with the keys {', '.join(known)}", keys)
        for key_node in self._keys(node):
            if key_node.value not in known:
                near = difflib.get_close_matches(key_node.value, known, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise self.fault(key_node, f"unknown key {key_node.value!r}{hint}: {keys}")
        return items

    def mapping(self, node: yaml.Node, otherwise: str, keys: str = "") -> dict[str, yaml.Node]:
        """The values of a mapping from any names; `otherwise` says what it should be, `keys` what its keys."""
        if not isinstance(node, yaml.MappingNode):
            raise self.fault(node, otherwise)
        items: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self.text(key_node, keys or otherwise)
            if key in items:
                raise self.fault(key_node, f"key {key!r} stands here twice")
            items[key] = value
        return items

    def text(self, node: yaml.Node, otherwise: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.fault(node, otherwise)
        return str(node.value)

    def fault(self, node: yaml.Node, message: str) -> Exception:
        return self.error(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def _keys(self, node: yaml.Node) -> list[yaml.ScalarNode]:
        return [key for key, _ in node.value]
