"""Models that take something other than images: they are cut and proved as others are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.partitions import model as partitioned
from pareto.partitions import proof, registry, weights
from pareto.partitions.graph import Input
from pareto.partitions.model import PartitionedModel
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from tests import REPOSITORY

BLOCKS = Cuts()
TEXT = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x, padding=None):
        y = self.norm(x)
        return x + self.mlp(self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0])


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.first, self.second = Layer(), Layer()
        self.head = nn.Linear(16, 5)

    def forward(self, ids, scale=2.0):
        return self.head(self.second(self.first(self.embedding(ids) * scale)).mean(1))


class Masked(Tokens):
    def forward(self, ids, keep, scale=2.0):
        return self.head((self.second(self.first(self.embedding(ids) * scale)) * keep.unsqueeze(-1)).sum(1))


class Audio(nn.Module):
    inputs = staticmethod(lambda batch, seed: torch.randn(batch, 1, 400))

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 8, 9, 4), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 9, 4), nn.ReLU()
        )
        self.head = nn.Linear(16, 3)

    def forward(self, wave):
        return self.head(self.features(wave).mean(2))


def tokens():
    return Tokens()


tokens.inputs = lambda batch, seed: torch.randint(100, (batch, 7))


def masked():
    return Masked()


masked.inputs = lambda batch, seed: {"keep": torch.rand(batch, 7) > 0.3, "ids": torch.randint(100, (batch, 7))}


def both():
    return Masked()


both.inputs = lambda batch, seed: (torch.randint(100, (batch, 7)), torch.rand(batch, 7) > 0.3)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "text.py"
    path.write_text(TEXT)
    return path


def load(reference: str, folder: Path, cuts: Cuts = BLOCKS) -> PartitionedModel:
    name = registry.canonical(reference)
    source, attribute = registry.source(name)
    recipe = Recipe(name, cuts, source, attribute)
    return partitioned.load(recipe, weights.make(name, "seeded", 0, folder).path)


@pytest.mark.parametrize(
    ("builder", "live_tensors", "dtypes"),
    [
        ("tokens", 1, ["int64"]),
        ("masked", 3, ["bool", "int64"]),
        ("both", 3, ["int64", "bool"]),
        ("Audio", 1, ["float32"]),
    ],
)
def test_each_point_is_proved(
    file: Path, tmp_path: Path, builder: str, live_tensors: int, dtypes: list[str]
) -> None:
    model = load(f"{file}:{builder}", tmp_path, Cuts("op", live_tensors))
    inputs = registry.entry(model.name).example(3, 7)
    assert [spec.dtype for spec in model.points[0].payload] == dtypes
    assert [one.dtype for one in model.inputs] == [one.dtype for one in inputs]
    proofs = list(proof.prove(model, *inputs))
    assert len(proofs) >= 5
    assert all(point.bitwise and point.parted for point in proofs)
    (output,) = proof.reference(model, *inputs)
    assert output.std() > 0.1


def test_block_points_of_a_transformer(file: Path, tmp_path: Path) -> None:
    model = load(f"{file}:tokens", tmp_path)
    assert [point.name for point in model.points] == [
        "input",
        "embedding",
        "first",
        "second",
        "mean",
        "output",
    ]
    assert model.points[0].payload_bytes == 7 * 8


def test_a_model_that_only_torch_export_traces(tmp_path: Path) -> None:
    file = tmp_path / "looping.py"
    file.write_text(
        TEXT
        + """

class Looping(Masked):
    def forward(self, ids, keep):
        x = self.embedding(ids)
        total = sum(part * keep[:, :1] for part in x.unbind(1) if part.shape[0] > 0)
        return self.head(total)


def looping():
    return Looping()


looping.inputs = masked.inputs
"""
    )
    model = load(f"{file}:looping", tmp_path, Cuts("op", 9))
    assert model.traced_by == "torch.export"
    assert [one.name for one in model.inputs] == ["keep", "ids"]
    assert all(point.bitwise for point in proof.prove(model, *registry.entry(model.name).example(2, 1)))


def test_inputs_depend_on_the_seed_alone(file: Path) -> None:
    entry = registry.entry(f"{file}:masked")
    first, again, other = entry.example(2, 1), entry.example(2, 1), entry.example(2, 2)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[1], other[1])
    assert entry.inputs == (Input((7,), torch.bool, "keep"), Input((7,), torch.int64, "ids"))


FAULTS = {
    "raises": "lambda batch, seed: 1 / 0",
    "no tensor": "lambda batch, seed: [3]",
    "no batch": "lambda batch, seed: torch.zeros(7, batch)",
    "complex": "lambda batch, seed: torch.zeros(batch, 7, dtype=torch.complex64)",
    "scalar": "lambda batch, seed: torch.tensor(1.0)",
    "none": "lambda batch, seed: ()",
    "unknown name": "lambda batch, seed: {'words': torch.zeros(batch, 7, dtype=torch.int64)}",
    "one too few": "lambda batch, seed: {'ids': torch.zeros(batch, 7, dtype=torch.int64)}",
    "one too many": "lambda batch, seed: (torch.zeros(batch, 7, dtype=torch.int64),) * 4",
    "wrong dtype": "lambda batch, seed: (torch.zeros(batch, 7), torch.zeros(batch, 7))",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_one_line(tmp_path: Path, fault: str, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / f"{fault.replace(' ', '_')}.py"
    file.write_text(TEXT + f"\n\ndef faulty():\n    return Masked()\n\n\nfaulty.inputs = {FAULTS[fault]}\n")
    with pytest.raises(UserError) as error:
        load(f"{file}:faulty", tmp_path)
    assert "\n" not in str(error.value)
    assert str(error.value) == snapshot


def test_an_input_that_is_not_used(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / "unused.py"
    file.write_text(
        TEXT
        + """

class Unused(Tokens):
    def forward(self, ids, types):
        return self.embedding(ids)


Unused.inputs = lambda batch, seed: {"types": torch.zeros(batch, 7), "ids": torch.zeros(batch, 7, dtype=torch.int64)}
"""
    )
    with pytest.raises(UserError) as error:
        load(f"{file}:Unused", tmp_path)
    assert str(error.value) == snapshot


@pytest.mark.parametrize(
    ("number", "traced_by", "names"),
    [
        pytest.param(
            *(0, "torch.export", ["input", "embedding", "layers.0", "layers.1", "mean", "output"]),
            marks=pytest.mark.deep,
        ),
        (1, "torch.fx", ["input", "stft", "features.0", "features.1", "features.2", "mean", "output"]),
    ],
    ids=["sentences", "sound"],
)
def test_the_examples_of_the_documents(tmp_path: Path, number: int, traced_by: str, names: list[str]) -> None:
    text = (REPOSITORY / "docs" / "own-models.md").read_text()
    section = text.partition("## Inputs that are no images")[2].partition("\n## ")[0]
    file = tmp_path / f"example{number}.py"
    file.write_text(re.findall(r"```python\n(.*?)```", section, re.S)[number])
    model = load(f"{file}:build", tmp_path, Cuts(live_tensors=2))
    assert model.traced_by == traced_by
    assert [point.name for point in model.points] == names
    proofs = list(proof.prove(model, *registry.entry(model.name).example(2, 1)))
    assert all(point.parted and point.error < 1e-5 for point in proofs)
