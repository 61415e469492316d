"""What of a model a device has in memory: one stage, its weights read when it is set."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from . import weights
from .memory import give_back_freed
from .model import Outline
from .stage import Stage


class ResidentStage:
    """The one stage of a model that a device has in memory; the weights of the others stay in the file.

    file: written by `weights.make`. device: where the weights go, as in 'cuda:0'. No weights are read before the
    first `change`, but a file that does not fit the model is refused at once. Raises UserError.
    """

    def __init__(self, outline: Outline, file: Path, device: str = "cpu") -> None:
        self.stage = Stage(None)
        self._outline = outline
        self._reader = weights.Reader(file, outline.name)
        self._device = torch.device(device)
        self._state: dict[str, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters and buffers in memory."""
        return sum(tensor.nbytes for tensor in self._state.values())

    def change(self, start: int, end: int) -> None:
        """Hold the units from point `start` to point `end` in place of those held so far.

        What both need is kept. What is no longer needed goes before anything is read: the most that is in
        memory is the larger of the two, not their sum. The `stage` of before loses its weights, whoever else
        holds it. After an error `stage` is empty. Raises ValueError as `Outline.cut`, UserError.
        """
        wanted = self._outline.paths(start, end)
        # A graph and its module refer to each other: as garbage they would keep their weights for long.
        self.stage.to("meta")
        self.stage = Stage(None)
        self._state = {path: tensor for path, tensor in self._state.items() if path in wanted}
        give_back_freed()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        missing = wanted - self._state.keys()
        if saved := [path for path in self._reader.keys if path in missing]:
            self._state.update((path, it.to(self._device)) for path, it in self._reader.read(saved))
        for path in wanted - self._state.keys():
            self._state[path] = self._outline.traced.computed[path].to(self._device)
        self.stage = self._outline.cut(start, end, self._state)
