"""Points that somebody chose by hand: <model>.yaml, in partitions/ or beside the user's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import StringConstraints

import partitions
from pareto.errors import UserError
from pareto.yaml_file import Keys, YamlFile
from partitions.recipe import Handmade

FOLDER = Path(partitions.__file__).parent

_SHAPE = "either 'points: [features.3, features.6]' or 'chain: [stem, body, head]'"
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Points(Keys):
    WHAT: ClassVar[str] = "a points file"
    points: tuple[_Name, ...] = ()
    chain: tuple[_Name, ...] = ()


def find(name: str, file: Path | None) -> Handmade | None:
    """What <name>.yaml says: beside `file` for a user's own model, else in partitions/. None where there is none.

    name: the registry's. Raises UserError: one line with the file and the line in it.
    """
    path = (file.parent if file else FOLDER) / f"{name}.yaml"
    if not path.exists():
        return None
    points_file = YamlFile(path, "points file")
    keys = points_file.read(_Points, _SHAPE)
    with points_file.blaming():
        if bool(keys.points) == bool(keys.chain):
            raise UserError(f"it has {'points and chain' if keys.points else 'neither'}; write {_SHAPE}")
    for place, point in enumerate(keys.points):
        with points_file.blaming("points", place):
            if point in keys.points[:place]:
                raise UserError(f"point {point!r} stands here twice")
    return Handmade(points=keys.points, chain=keys.chain)
