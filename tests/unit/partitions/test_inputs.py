"""Models that take something other than images: they are cut and proved as others are."""

import re

import pytest
import torch

from pareto.partitions import proof, registry
from pareto.partitions.graph import Input
from pareto.partitions.recipe import Cuts
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit.partitions.builders import load_own, names
from tests.unit.refusals import refusal

TEXT = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    def forward(self, x, padding=None):
        y = self.norm(x)
        return x + self.mlp(self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0])

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.first, self.second = nn.Embedding(100, 16), Layer(), Layer()
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
        first, second = nn.Conv1d(1, 8, 9, 4), nn.Conv1d(8, 16, 9, 4)
        self.features = nn.Sequential(first, nn.BatchNorm1d(8), nn.ReLU(), second, nn.ReLU())
        self.head = nn.Linear(16, 3)
    def forward(self, wave):
        return self.head(self.features(wave).mean(2))
class Looping(Masked):
    def forward(self, ids, keep):
        return self.head(sum(part * keep[:, :1] for part in self.embedding(ids).unbind(1) if part.shape[0] > 0))
class Unused(Tokens):
    def forward(self, ids, types):
        return self.embedding(ids)

def tokens():
    return Tokens()
tokens.inputs = lambda batch, seed: torch.randint(100, (batch, 7))
def masked():
    return Masked()
masked.inputs = lambda batch, seed: {"keep": torch.rand(batch, 7) > 0.3, "ids": torch.randint(100, (batch, 7))}
Looping.inputs = staticmethod(masked.inputs)
def both():
    return Masked()
both.inputs = lambda batch, seed: (torch.randint(100, (batch, 7)), torch.rand(batch, 7) > 0.3)
Unused.inputs = lambda batch, seed: {"types": torch.zeros(batch, 7), "ids": torch.zeros(batch, 7, dtype=torch.int64)}
def faulty():
    return Masked()
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "text.py"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize(
    ("builder", "live_tensors", "dtypes"),
    [
        ("tokens", 1, ["int64"]),
        ("masked", 3, ["bool", "int64"]),
        ("both", 3, ["int64", "bool"]),
        ("Audio", 1, ["float32"]),
    ],
)
def test_each_point_is_proved(file, tmp_path, builder, live_tensors, dtypes):
    model = load_own(f"{file}:{builder}", tmp_path, Cuts("op", live_tensors))
    inputs = registry.entry(model.name).example(3, 7)
    assert [spec.dtype for spec in model.points[0].payload] == dtypes
    assert [one.dtype for one in model.inputs] == [one.dtype for one in inputs]
    proofs = list(proof.prove(model, *inputs))
    assert len(proofs) >= 5
    assert all(point.bitwise and point.parted for point in proofs)
    (output,) = proof.reference(model, *inputs)
    assert output.std() > 0.1


def test_block_points_of_a_transformer_and_a_model_that_only_torch_export_traces(
    file, tmp_path, snapshot
) -> None:
    model = load_own(f"{file}:tokens", tmp_path, Cuts())
    assert names(model.points) == ["input", "embedding", "first", "second", "mean", "output"]
    assert model.points[0].payload_bytes == 7 * 8
    model = load_own(f"{file}:Looping", tmp_path, Cuts("op", 9))
    assert model.traced.traced_by == "torch.export"
    assert [one.name for one in model.inputs] == ["keep", "ids"]
    assert all(point.bitwise for point in proof.prove(model, *registry.entry(model.name).example(2, 1)))
    # Inputs depend on the seed alone.
    entry = registry.entry(f"{file}:masked")
    first, again, other = entry.example(2, 1), entry.example(2, 1), entry.example(2, 2)
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[1], other[1])
    assert entry.inputs == (Input((7,), torch.bool, "keep"), Input((7,), torch.int64, "ids"))
    # An input that is not used.
    assert refusal(UserError, load_own, f"{file}:Unused", tmp_path, Cuts()) == snapshot


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
def test_faults_are_one_line(tmp_path, fault, snapshot):
    file = tmp_path / f"{fault.replace(' ', '_')}.py"
    file.write_text(TEXT + f"faulty.inputs = {FAULTS[fault]}\n")
    assert refusal(UserError, load_own, f"{file}:faulty", tmp_path, Cuts()) == snapshot


@pytest.mark.parametrize(
    ("number", "traced_by", "inner"),
    [
        pytest.param(0, "torch.export", "embedding layers.0 layers.1 mean", marks=pytest.mark.deep),
        (1, "torch.fx", "stft features.0 features.1 features.2 mean"),
    ],
    ids=["sentences", "sound"],
)
def test_the_examples_of_the_documents(tmp_path, number, traced_by, inner):
    text = (REPOSITORY / "docs" / "own-models.md").read_text()
    section = text.partition("## Inputs that are no images")[2].partition("\n## ")[0]
    file = tmp_path / f"example{number}.py"
    file.write_text(re.findall(r"```python\n(.*?)```", section, re.S)[number])
    model = load_own(f"{file}:build", tmp_path, Cuts(live_tensors=2))
    assert (model.traced.traced_by, names(model.points)) == (traced_by, ["input", *inner.split(), "output"])
    proofs = list(proof.prove(model, *registry.entry(model.name).example(2, 1)))
    assert all(point.parted and point.error < 1e-5 for point in proofs)
