"""Users' own codecs, as files that tests write."""

from __future__ import annotations

from pathlib import Path

LEARNED = """
import torch
from torch import nn

class Bottleneck(nn.Module):
    def __init__(self, cut):
        super().__init__()
        channels = cut.payload[0].shape[1]
        self.down = nn.Conv2d(channels, 2, 1)
        self.norm = nn.BatchNorm2d(2)
        self.up = nn.Conv2d(2, channels, 1)

    @staticmethod
    def fits(cut):
        return cut.payload[0].dim() == 4 and cut.payload[0].dtype == torch.float32

    def encode(self, tensors):
        return (self.norm(self.down(tensors[0])).half(),)

    def decode(self, tensors):
        return (self.up(tensors[0].float()),)
"""
ENTROPY = """
import zlib
import torch

class Entropy:
    def __init__(self, cut):
        self.most_bytes = 2 * sum(each.numel() for each in cut.payload) + 64
        self.shape = cut.payload[0].shape[1:]

    def encode(self, tensors):
        data = zlib.compress(tensors[0].half().numpy().tobytes())
        return (torch.frombuffer(bytearray(data), dtype=torch.uint8),)

    def decode(self, tensors):
        data = zlib.decompress(tensors[0].numpy().tobytes())
        return (torch.frombuffer(bytearray(data), dtype=torch.float16).float().reshape(-1, *self.shape),)
"""


def simple(encode: str = "return tensors", decode: str = "return tensors", more: str = "pass") -> str:
    """A file with a class Own that has these methods."""
    return f"""
import torch
from torch import Tensor, nn

class Own:
    {more}

    def encode(self, tensors):
        {encode}

    def decode(self, tensors):
        {decode}
"""


def written(folder: Path, text: str, name: str = "own.py") -> Path:
    """The file, with this text."""
    file = folder / name
    file.write_text(text)
    return file
