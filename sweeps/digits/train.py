"""Train the network of digits.py and the codec of bottleneck.py, and write their weights and unseen images: a minute.

    .venv/bin/python -m pip install --no-deps -r requirements-digits.txt
    .venv/bin/python sweeps/digits/train.py

The 1797 digits of 8 x 8 pixels, and the two photographs behind them, are files inside the package scikit-learn, so
nothing else is downloaded. Each digit is drawn large, in some colour, on a piece of a photograph. A fifth of the digits
and a third of each photograph are held out: the images of the sweep are made of these.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from PIL import Image
from torch import Tensor, nn

from pareto.partitions import registry
from pareto.partitions.tracing import normalized
from pareto.protocol import own
from pareto.protocol.errors import UserError
from pareto.remote.codecs.own import Cut

MODEL = registry.entry(f"{Path(__file__).with_name('digits.py')}:Net")
CODEC = own.module_of(Path(__file__).with_name("bottleneck.py"), "codec")
SIDE = MODEL.images.shape[1]
FOLDER = Path("results/digits")
HELD_OUT = 5
"""One digit in so many is held out."""
PICTURES = 3
"""Pictures of each digit to train with."""
PASSES = 5
"""Passes of the network over each of them."""
CODEC_PASSES = 3
"""Passes of the codec over one picture of each digit."""
BATCH = 48
INSTALL = ".venv/bin/python -m pip install --no-deps -r requirements-digits.txt"


def package() -> Path:
    """The folder of scikit-learn's data sets, whose files are read without importing it. Raises UserError."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"the digits are in the package scikit-learn: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "datasets"


def digits(folder: Path) -> tuple[Tensor, Tensor]:
    """All digits, (n, 8, 8) with 0 for paper and 1 for ink, and what they are, (n,)."""
    with gzip.open(folder / "data" / "digits.csv.gz", "rt") as file:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
    return rows[:, :-1].reshape(-1, 8, 8) / 16, rows[:, -1].long()


def photographs(folder: Path) -> list[Tensor]:
    """The photographs, each uint8 of shape (3, height, width)."""
    return [_pixels(folder / "images" / name) for name in ("china.jpg", "flower.jpg")]


def _pixels(path: Path) -> Tensor:
    with Image.open(path) as image:
        pixels = torch.frombuffer(bytearray(image.convert("RGB").tobytes()), dtype=torch.uint8)
        return pixels.reshape(image.height, image.width, 3).permute(2, 0, 1)


def draw(digit: Tensor, photo: Tensor, chance: torch.Generator) -> Tensor:
    """The digit on a piece of the photograph: uint8 of shape (3, SIDE, SIDE)."""

    def below(count: int) -> int:
        return int(torch.randint(count, (), generator=chance))

    top, left = below(photo.shape[1] - SIDE), below(photo.shape[2] - SIDE)
    picture = photo[:, top : top + SIDE, left : left + SIDE] * 0.6 + 0.4 * 128
    side = SIDE * 5 // 8 + below(SIDE // 4)
    ink = nn.functional.interpolate(digit[None, None], (side, side), mode="bilinear")[0]
    top, left = below(SIDE - side), below(SIDE - side)
    place = picture[:, top : top + side, left : left + side]
    # Light ink on a dark place, and dark ink on a light one, or nobody could read it.
    colour = torch.rand(3, 1, 1, generator=chance) * 80 + (175 if place.mean() < 128 else 0)
    place += ink * (colour - place)
    return picture.round().to(torch.uint8)


def pictures(digits: Tensor, photos: list[Tensor], chance: torch.Generator) -> Tensor:
    """Each digit on a piece of one of the photographs: uint8 of shape (n, 3, SIDE, SIDE)."""
    drawn = [draw(digit, photos[number % len(photos)], chance) for number, digit in enumerate(digits)]
    return torch.stack(drawn)


def train(images: Tensor, labels: Tensor, passes: int, chance: torch.Generator) -> nn.Module:
    """The network after so many passes over `images`, which are uint8; its first weights are from the global RNG."""
    model = MODEL.build().train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    steps = passes * len(torch.arange(len(images)).split(BATCH))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps)
    for _ in range(passes):
        for chosen in torch.randperm(len(images), generator=chance).split(BATCH):
            logits = model(normalized(images[chosen], MODEL.images.mean, MODEL.images.std))
            loss = nn.functional.cross_entropy(logits, labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def train_codec(model: nn.Module, images: Tensor, passes: int, chance: torch.Generator) -> nn.Module:
    """The codec after so many passes over `images`, which are uint8; the network stays as it is.

    Its aim is what the network makes of the payload without it: the same classes, and the same features.
    """
    model.requires_grad_(False)
    front, back = model.features[: CODEC.POINT], model.features[CODEC.POINT :]  # type: ignore[index]
    payload = front(normalized(images[:1], MODEL.images.mean, MODEL.images.std))
    cut = Cut("", CODEC.POINT, "", (payload.to("meta"),))
    codec: nn.Module = CODEC.Bottleneck(cut)
    optimizer = torch.optim.AdamW(codec.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-2, passes * len(torch.arange(len(images)).split(BATCH))
    )
    for _ in range(passes):
        for chosen in torch.randperm(len(images), generator=chance).split(BATCH):
            payload = front(normalized(images[chosen], MODEL.images.mean, MODEL.images.std))
            features = back(payload)
            restored = back(codec(payload))
            logits, wanted = (model.classifier(each.mean((2, 3))) for each in (restored, features))  # type: ignore[operator]
            loss = nn.functional.mse_loss(restored, features) / features.square().mean()
            loss = loss + nn.functional.cross_entropy(logits, wanted.softmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return codec.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images, uint8, whose class is right."""
    right = [
        model(normalized(part, MODEL.images.mean, MODEL.images.std)).argmax(1) for part in images.split(BATCH)
    ]
    return float((torch.cat(right) == labels).float().mean())


def save(folder: Path, model: nn.Module, codec: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Write the weights, and images/ with a folder for each class; what they replace is there until they are whole."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            path = Path(made, "images", str(int(label)), f"{number:03}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(path)
        torch.save(model.state_dict(), Path(made, "weights.pth"))
        torch.save(codec.state_dict(), Path(made, CODEC.WEIGHTS))
        shutil.rmtree(folder / "images", ignore_errors=True)
        for name in ("images", "weights.pth", CODEC.WEIGHTS):
            Path(made, name).rename(folder / name)


def make(folder: Path, seed: int, pictures_each: int, passes: int, codec_passes: int = CODEC_PASSES) -> float:
    """Draw, train and write; returns the share of held-out images whose class is right. Raises UserError, OSError.

    The same seed gives the same images, and on one machine with as many threads the same weights.
    """
    every, labels = digits(package())
    torch.manual_seed(seed)
    chance = torch.Generator().manual_seed(seed)
    held = torch.arange(len(every)) % HELD_OUT == 0
    photos = photographs(package())
    shown, hidden = ([*parts] for parts in zip(*(_parts(photo) for photo in photos), strict=True))
    held_out = pictures(every[held], hidden, chance)
    images = torch.cat([pictures(every[~held], shown, chance) for _ in range(pictures_each)])
    model = train(images, labels[~held].repeat(pictures_each), passes, chance)
    codec = train_codec(model, images[: len(images) // pictures_each], codec_passes, chance)
    save(folder, model, codec, held_out, labels[held])
    return accuracy(model, held_out, labels[held])


def _parts(photo: Tensor) -> tuple[Tensor, Tensor]:
    """The left two thirds of a photograph, to train with, and the rest."""
    border = photo.shape[2] * 2 // 3
    return photo[:, :, :border], photo[:, :, border:]


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where they are written ({FOLDER})")
    parser.add_argument("--seed", type=int, default=0, help="of the images and the first weights (0)")
    parser.add_argument(
        "--pictures", type=int, default=PICTURES, help=f"of each digit to train with ({PICTURES})"
    )
    parser.add_argument("--passes", type=int, default=PASSES, help=f"over all of them ({PASSES})")
    options = parser.parse_args()
    if min(options.pictures, options.passes) < 1:
        parser.error("--pictures and --passes count from 1")
    began = time.monotonic()
    try:
        right = make(options.folder, options.seed, options.pictures, options.passes)
    except (UserError, OSError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    print(
        f"{right:.1%} of the held-out images are right, after {time.monotonic() - began:.0f} s: {options.folder}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
