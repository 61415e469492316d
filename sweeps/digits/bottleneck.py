"""A learned codec for the network of digits.py at point 2: 6 channels of bytes at half the size, for 48 of floats."""

from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = Path("results/digits")
"""The folder of the weights that train.py makes, in the folder where both commands are started."""
WEIGHTS = "bottleneck.pth"
POINT = 2
NARROW = 6
LEVELS = 255


class Bottleneck(nn.Module):
    """A codec from (batch, channels, height, width) floats to (batch, 6, height / 2, width / 2) bytes, and back."""

    def __init__(self, cut) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        channels = cut.payload[0].shape[1]
        self.narrow = nn.Sequential(
            nn.Conv2d(channels, NARROW, 4, 2, 1), nn.BatchNorm2d(NARROW), nn.Sigmoid()
        )
        self.widen = nn.Sequential(
            nn.ConvTranspose2d(NARROW, channels, 4, 2, 1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1),
        )

    @staticmethod
    def fits(cut) -> bool:  # type: ignore[no-untyped-def]
        return bool(cut.point == POINT)

    @staticmethod
    def pretrained() -> dict[str, Tensor]:
        """The state dict that train.py made. Raises FileNotFoundError."""
        path = FOLDER / WEIGHTS
        if not path.exists():
            raise FileNotFoundError(f"{path} is not here: make it by .venv/bin/python sweeps/digits/train.py")
        state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        return state

    def encode(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return ((self.narrow(tensors[0]) * LEVELS).round().to(torch.uint8),)

    def decode(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.widen(tensors[0] / LEVELS),)

    def forward(self, payload: Tensor) -> Tensor:
        """The payload after both, for training: rounding passes no gradient, so noise of its size takes its place."""
        levels = self.narrow(payload)
        return self.widen(levels + (torch.rand_like(levels) - 0.5) / LEVELS)  # type: ignore[no-any-return]
