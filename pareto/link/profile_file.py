"""Reading a profile's YAML file, so that each error names the file and the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from pareto.link import units
from pareto.link.profile import Direction, Profile, ProfileError

_PARSERS = {"delay": ("delay_s", units.delay_s), "rate": ("rate_bps", units.rate_bps)}


def read(path: Path) -> Profile:
    """The profile in a file like ``edge_to_server: {delay: 200ms, rate: 5mbit}``.

    A direction left out is unshaped. Raises ProfileError with the file and the line.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the netem profile {path}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ProfileError(f"{path}:{line}: not YAML: {getattr(error, 'problem', error)}") from None
    if root is None:
        raise ProfileError(f"{path}: is empty; write 'edge_to_server: {{delay: 200ms, rate: 5mbit}}'")
    directions = {
        key: _direction(path, node)
        for key, node in _items(path, root, ("edge_to_server", "server_to_edge"), "the profile")
    }
    return Profile(
        path.stem,
        directions.get("edge_to_server", Direction()),
        directions.get("server_to_edge", Direction()),
    )


def _direction(path: Path, node: yaml.Node) -> Direction:
    values = {}
    for key, value in _items(path, node, tuple(_PARSERS), "a direction"):
        if not isinstance(value, yaml.ScalarNode):
            raise _fault(path, value, f"{key} must be a number and a unit")
        field, parse = _PARSERS[key]
        try:
            values[field] = parse(value.value)
            Direction(**{field: values[field]})  # its range, while the line is at hand
        except ValueError as error:
            raise _fault(path, value, str(error)) from None
    return Direction(**values)


def _items(path: Path, node: yaml.Node, known: tuple[str, ...], what: str) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _fault(path, node, f"{what} must be a mapping with the keys {', '.join(known)}")
    seen = set()
    for key_node, value in node.value:
        key = str(key_node.value)
        if key not in known:
            raise _fault(path, key_node, f"unknown key {key!r}: {what} has the keys {', '.join(known)}")
        if key in seen:
            raise _fault(path, key_node, f"key {key!r} stands here twice")
        seen.add(key)
        yield key, value


def _fault(path: Path, node: yaml.Node, message: str) -> ProfileError:
    return ProfileError(f"{path}:{node.start_mark.line + 1}: {message}")
