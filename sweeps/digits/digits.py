"""A small network that reads a handwritten digit in a photograph, with the weights that train.py makes for it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from pareto.partitions.registry import register

FOLDER = Path("results/digits")
"""The folder of the weights and held-out images that train.py makes, in the folder where both commands are started."""
WEIGHTS = "weights.pth"
SIDE = 96
CLASSES = tuple("0123456789")


def trained() -> dict[str, Tensor]:
    """The state dict that train.py made. Raises FileNotFoundError."""
    path = FOLDER / WEIGHTS
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not here: make it, and the images, in a minute by .venv/bin/python sweeps/digits/train.py"
        )
    state: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """A convolution that divides height and width by `stride`."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


@register(input_shape=(3, SIDE, SIDE), mean=(0.5,) * 3, std=(0.25,) * 3, classes=CLASSES, pretrained=trained)
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = ((3, 24, 2), (24, 48, 2), (48, 48, 1), (48, 64, 2), (64, 64, 1), (64, 96, 2))
        self.features = nn.Sequential(*(block(*width) for width in widths))
        self.classifier = nn.Linear(96, len(CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes, from images, (batch, 3, 96, 96) and normalised."""
        return self.classifier(self.features(images).mean((2, 3)))  # type: ignore[no-any-return]
