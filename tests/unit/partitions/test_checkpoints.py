"""Checkpoints as people have them give the state dict that is in them, or one line."""

import argparse
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pareto.partitions import registry, weights
from pareto.protocol.errors import UserError

TEXT = """
from torch import nn
input_shape = (3, 8, 8)
def build():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    net.again = nn.Linear(144, 5)
    net.again.weight = net[3].weight
    return net
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "_adopted", {})
    (tmp_path / "held.py").write_text(TEXT)
    return registry.canonical(f"{tmp_path / 'held.py'}:build")


def state_of(name: str) -> dict[str, Tensor]:
    torch.manual_seed(3)
    return dict(registry.build(name).state_dict())


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}{key}": tensor for key, tensor in state.items()}


ONE = torch.ones(1)
FORMS = {
    "plain.pth": lambda state: state,
    "no ending": lambda state: state,
    "training.pth.tar": lambda state: {"epoch": 3, "state_dict": state, "optimizer": {"state": {0: {"step": ONE}}}},
    "of nets.bin": lambda state: {"acc": 93.1, "net": prefixed(state, "module.")},
    "numpy.pt": lambda state: {"model_state_dict": state, "loss": np.float64(0.3), "args": argparse.Namespace(lr=1)},
    "compiled.pt": lambda state: prefixed(state, "_orig_mod.module."),
    "nested.pt": lambda state: {"a": {"b": {"weights": state}}},
    "parameters.pt": lambda state: {
        key: nn.Parameter(tensor, requires_grad=tensor.is_floating_point()) if tensor.is_floating_point() else tensor
        for key, tensor in state.items()
    },
    "without counters.pt": lambda state: {key: one for key, one in state.items() if "batches" not in key},
    "of a profiler.pt": lambda state: {**state, "total_ops": ONE, "3.total_params": ONE},
    "one of two names.pt": lambda state: {key: one for key, one in state.items() if key != "again.weight"},
    "the other name.pt": lambda state: {key: one for key, one in state.items() if key != "3.weight"},
    "sparse.pt": lambda state: {key: one.to_sparse() if one.dim() == 2 else one for key, one in state.items()},
    "strided.pt": lambda state: {key: one.T.contiguous().T if one.dim() == 2 else one for key, one in state.items()},
    "sliced.pt": lambda state: state | {"3.bias": torch.cat([state["3.bias"], torch.ones(7)])[:-7]},
    "double.pt": lambda state: {key: one.double() for key, one in state.items()},
}  # fmt: skip


def test_each_form_gives_the_same_file(name: str, tmp_path: Path) -> None:
    state = state_of(name)
    for file, form in FORMS.items():
        torch.save(form(state), tmp_path / file)
    own = {key: tensor.clone() for key, tensor in prefixed(state, "model.").items()}
    save_file(own, tmp_path / "own.safetensors")
    torch.save(state, tmp_path / "named wrong.safetensors")
    save_file(
        {key.removeprefix("model."): tensor for key, tensor in own.items()}, tmp_path / "named wrong.pt"
    )
    files = [*FORMS, "own.safetensors", "named wrong.safetensors", "named wrong.pt"]
    made = {file: weights.make(name, str(tmp_path / file), 0, tmp_path / "out").digest for file in files}
    assert made == dict.fromkeys(files, made["plain.pth"])
    written = weights.layout(tmp_path / "out" / f"{made['plain.pth']}.safetensors")
    assert "again.weight" not in written, "what two layers share is there once"


def bad(kind: str, state: dict[str, Tensor], file: Path) -> None:
    match kind:
        case "script":
            torch.jit.save(torch.jit.script(nn.Linear(2, 2)), file)
        case "whole module":
            torch.save(nn.Linear(2, 2), file)
        case "not a number":
            torch.save(state | {"0.weight": torch.full((4, 3, 3, 3), torch.nan)}, file)
        case "no head":
            torch.save({key: one for key, one in state.items() if not key.startswith("3.")}, file)
        case "other classes":
            torch.save(state | {"3.bias": torch.zeros(7)}, file)
        case "no tensors":
            torch.save({"epoch": 3, "history": [1, 2]}, file)
        case "page":
            file.write_text("<!DOCTYPE html>")
        case "text":
            file.write_bytes(pickle.dumps("text", 2))
        case "folder":
            file.mkdir()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("script", "TorchScript"),
        ("whole module", "other things than tensors"),
        ("not a number", "0.weight has values that are not numbers"),
        ("no head", "3.bias"),
        ("other classes", "3.bias: 7, not 5"),
        ("no tensors", "it has epoch, history"),
        ("page", "neither of torch.save nor of safetensors"),
        ("text", "cannot read weights"),
        ("folder", "no such file"),
        ("nothing", "no such file"),
    ],
)
def test_what_has_none_is_one_line_without_advice_to_run_it(
    name: str, kind: str, said: str, tmp_path: Path
) -> None:
    bad(kind, state_of(name), tmp_path / "file.pt")
    with pytest.raises(UserError) as refused:
        weights.make(name, str(tmp_path / "file.pt"), 0, tmp_path / "out")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "weights_only" not in str(refused.value)


def test_the_head_of_a_published_model_follows_the_weights(tmp_path: Path) -> None:
    state = registry.build("squeezenet1_1@7").state_dict()
    torch.save({"net": prefixed(state, "module.")}, tmp_path / "own.pth")
    torch.save({key: one for key, one in state.items() if "0" not in key}, tmp_path / "another.pth")
    assert weights.classes("squeezenet1_1", str(tmp_path / "own.pth")) == 7
    assert weights.classes("squeezenet1_1@7", str(tmp_path / "own.pth")) == 0
    assert weights.classes("squeezenet1_1", "seeded") == 0


def test_no_other_head_is_looked_for_where_none_can_follow(name: str, tmp_path: Path) -> None:
    torch.save(state_of(name) | {"3.bias": torch.zeros(7)}, tmp_path / "other.pth")
    assert weights.classes(name, str(tmp_path / "other.pth")) == 0
