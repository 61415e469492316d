"""What a worker does for a driver that is no user of this machine (`pareto serve`): nothing of the driver's is run.

Files are those in one folder, where `serve` puts what came, and the user's own code that it allows. The worker listens
on one address, and connects to none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pareto import messages, profile_messages
from pareto.jsonlines import Refused
from pareto.messages import Request
from partitions.user_file import is_reference

CODE, DATA = ".py", ".safetensors"


@dataclass(frozen=True)
class Confinement:
    """folder: of all files. address: the only one. rpc: whether that may be used, which runs what comes."""

    folder: Path
    address: str
    rpc: bool

    def check(self, request: Request[Any]) -> None:
        """Raises Refused for a request that goes beyond it."""
        for name, kind in _files(request):
            path = Path(name)
            if path.parent != self.folder or path.suffix != kind:
                raise Refused(f"{name}: no such file was sent")
        match request:
            case messages.LoadModel() if is_reference(str(request.recipe.get("name"))):
                raise Refused("a model's name that names a file is none")
            case messages.OpenRendezvous() | messages.JoinAgents() if not self.rpc:
                raise Refused("rpc is not allowed here: serve was started without --rpc")
            case messages.Listen() | messages.OpenRendezvous() | messages.JoinAgents():
                if request.address != self.address:
                    raise Refused(f"{request.address} is not the address that is served")
            case messages.Connect():
                raise Refused("the server connects to nobody")


def _files(request: Request[Any]) -> Iterator[tuple[str, str]]:
    """The files that a request names, each with the kind that it must be."""
    match request:
        case messages.LoadModel():
            if file := request.recipe.get("file"):
                yield str(file), CODE
            for name in (*request.weights, *request.data, *(codec.weights for codec in request.codecs)):
                yield name, DATA
            for codec in request.codecs:
                yield codec.file, CODE
        case profile_messages.TimeCodecs():
            yield request.data, DATA
