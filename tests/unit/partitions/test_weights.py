"""Weights files: deterministic, checked, made of checkpoints as people have them; and folders for a moment."""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pareto.partitions import registry, scratch, weights
from pareto.partitions.seeded import seeded
from pareto.partitions.torchvision_models import models
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit.refusals import refusal

pytestmark = pytest.mark.usefixtures("one_thread")


SMALL = "squeezenet1_1"


def test_the_same_seed_gives_the_same_file_named_by_its_digest_and_leaves_the_rng_alone(tmp_path) -> None:
    before = torch.get_rng_state()
    first = weights.make(SMALL, "seeded", 1, tmp_path / "a")
    torch.rand(10)
    again = weights.make(SMALL, "seeded", 1, tmp_path / "b")
    other = weights.make(SMALL, "seeded", 2, tmp_path / "a")
    assert first.stem == again.stem != other.stem
    assert first.read_bytes() == again.read_bytes()
    torch.set_rng_state(before)
    weights.make(SMALL, "seeded", 1, tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), before)
    assert again.stem == hashlib.sha256(again.read_bytes()).hexdigest()
    assert list(again.parent.iterdir()) == [again] == [tmp_path / "b" / f"{again.stem}.safetensors"]
    # The number of threads does not matter.
    threads = torch.get_num_threads()
    try:
        digests = set()
        for number in (1, 2):
            torch.set_num_threads(number)
            digests.add(weights.make("mobilenet_v3_small", "seeded", 1, tmp_path).stem)
            assert torch.get_num_threads() == number
        assert len(digests) == 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"classifier.1.bias": None}, id="missing"),
        pytest.param({"extra": torch.ones(1)}, id="unexpected"),
        pytest.param({"classifier.1.bias": torch.ones(10)}, id="reshaped"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused(spoil, tmp_path, snapshot):
    state = {key: tensor.clone() for key, tensor in seeded(SMALL, 3).state_dict().items()} | spoil
    file = tmp_path / "spoilt.safetensors"
    save_file({key: tensor for key, tensor in state.items() if tensor is not None}, file)
    said = refused(file, tmp_path)
    assert [said] == [refusal(UserError, weights.read, file, SMALL)] == snapshot
    assert not (tmp_path / "out").exists()


def test_a_reader_reads_what_is_asked_for_and_no_more_in_the_models_dtype(tmp_path):
    state = seeded(SMALL, 3).state_dict()
    made = weights.make(SMALL, "seeded", 3, tmp_path)
    reader = weights.Reader([made], SMALL)
    assert list(reader.keys) == list(state)
    wanted = ["classifier.1.bias", "features.0.weight"]
    read = dict(reader.read(wanted))
    assert list(read) == wanted
    assert all(torch.equal(read[key], state[key]) for key in wanted)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in read.values())
    assert [dict(reader.read([]))] == [{}]
    assert made.stem not in Path("/proc/self/maps").read_text(), "nothing of the file stays mapped, or open"
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if made.stem in str(fd.resolve())]
    state = {key: tensor.half() for key, tensor in seeded(SMALL, 3).state_dict().items()}
    save_file(state, tmp_path / "half.safetensors")
    read = weights.read(tmp_path / "half.safetensors", SMALL)
    assert {tensor.dtype for tensor in read.values()} == {torch.float32}
    assert all(torch.equal(read[key], state[key].float()) for key in state)


def test_a_file_that_shrank_or_went_away_is_one_clear_line(tmp_path, snapshot):
    made = weights.make(SMALL, "seeded", 3, tmp_path)
    reader = weights.Reader([made], SMALL)
    with made.open("r+b") as file:
        file.truncate(made.stat().st_size - 1)
    ends = refusal(UserError, lambda: dict(reader.read(reader.keys)))
    refusal(UserError, weights.Reader, [made], SMALL)
    made.unlink()
    gone = refusal(UserError, lambda: dict(reader.read(reader.keys)))
    assert [it.replace(made.stem, "DIGEST") for it in (ends, gone)] == snapshot


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("code from a weights file was run",))


def refused(file, tmp_path):
    return refusal(UserError, weights.make, SMALL, str(file), 0, tmp_path / "out")


def test_a_bad_file_is_one_clear_line_and_code_in_a_pickle_is_not_run(tmp_path, snapshot):
    contents = {"no.pt": None, "empty.pt": b"", "garbage.pt": b"garbage"}
    contents |= {"empty.safetensors": b"", "garbage.safetensors": b"garbage garbage"}
    said = []
    for name, content in contents.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        ours, path, _ = refused(tmp_path / name, tmp_path).partition(name)
        said.append(ours + path)  # what follows is in torch's words, or the format's
    (tmp_path / "weights.onnx").touch()
    torch.save([1, 2], tmp_path / "other.pt")
    assert [*said, *(refused(tmp_path / name, tmp_path) for name in ("weights.onnx", "other.pt"))] == snapshot
    torch.save(Evil(), tmp_path / "other.pt")
    (tmp_path / "text.pth").write_text("no pickle at all")
    for file in ("other.pt", "text.pth"):
        line = refused(tmp_path / file, tmp_path)
        assert file in line
        assert "weights_only" not in line, "PyTorch's words advise to run it"


def test_pretrained_weights_that_cannot_be_had(monkeypatch, tmp_path, snapshot):
    def offline(*_args, **_options):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    assert refusal(UserError, weights.make, SMALL, "pretrained", 0, tmp_path) == snapshot
    file = tmp_path / "model_of_test_weights.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Conv2d(3, 4, 1)\n")
    name = registry.canonical(f"{file}:build")
    assert refusal(UserError, weights.make, name, "pretrained", 0, tmp_path) == snapshot


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("googlenet", "aux1."),
        pytest.param("inception_v3", "AuxLogits.", marks=pytest.mark.deep),
        ("deeplabv3_mobilenet_v3_large", "aux_classifier."),  # which the model runs
    ],
)
def test_pretrained_weights_lose_auxiliary_heads_that_do_not_run(name, head, monkeypatch, tmp_path):
    is_run = head == "aux_classifier."
    whole = (
        registry.entry(name).module()
        if is_run
        else models.get_model(name, aux_logits=True, init_weights=False)
    )
    published, download = whole.state_dict(), "torchvision.models._api.load_state_dict_from_url"
    monkeypatch.setattr(download, lambda *_args, **_options: published)
    assert any(key.startswith(head) for key in published)
    written = weights.read(weights.make(name, "pretrained", 0, tmp_path), name)
    assert written.keys() == (published if is_run else registry.build_structure(name).state_dict()).keys()
    assert all(torch.equal(tensor, published[key]) for key, tensor in written.items())


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
def name(tmp_path, none_adopted):
    (tmp_path / "held.py").write_text(TEXT)
    return registry.canonical(f"{tmp_path / 'held.py'}:build")


def state_of(name):
    torch.manual_seed(3)
    return dict(registry.entry(name).module().state_dict())


def prefixed(state, prefix):
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


def test_each_form_gives_the_same_file(name, tmp_path):
    state = state_of(name)
    for file, form in FORMS.items():
        torch.save(form(state), tmp_path / file)
    own = {key: tensor.clone() for key, tensor in prefixed(state, "model.").items()}
    save_file(own, tmp_path / "own.safetensors")
    torch.save(state, tmp_path / "named wrong.safetensors")
    save_file({key.removeprefix("model."): one for key, one in own.items()}, tmp_path / "named wrong.pt")
    files = [*FORMS, "own.safetensors", "named wrong.safetensors", "named wrong.pt"]
    made = {file: weights.make(name, str(tmp_path / file), 0, tmp_path / "out").stem for file in files}
    assert made == dict.fromkeys(files, made["plain.pth"])
    written = weights.layout(tmp_path / "out" / f"{made['plain.pth']}.safetensors")
    assert "again.weight" not in written, "what two layers share is there once"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(lambda _: nn.Linear(2, 2), "other things than tensors", id="whole module"),
        pytest.param(
            lambda state: state | {"0.weight": torch.full((4, 3, 3, 3), torch.nan)},
            "0.weight has values that are not numbers",
            id="not a number",
        ),
        pytest.param(
            lambda state: {key: state[key] for key in state if key[0] != "3"}, "3.bias", id="no head"
        ),
        pytest.param(
            lambda state: state | {"3.bias": torch.zeros(7)}, "3.bias: 7, not 5", id="other classes"
        ),
        pytest.param(lambda _: {"epoch": 3, "history": [1, 2]}, "it has epoch, history", id="no tensors"),
    ],
)
def test_what_has_none_is_one_line_without_advice_to_run_it(name, content, said, tmp_path):
    torch.save(content(state_of(name)), tmp_path / "file.pt")
    assert_refused(name, tmp_path, said)


def test_no_checkpoint_is_one_line_without_advice_to_run_it(name, tmp_path):
    file = tmp_path / "file.pt"
    assert_refused(name, tmp_path, "no such file")
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), file)
    assert_refused(name, tmp_path, "TorchScript")
    file.write_text("<!DOCTYPE html>")
    assert_refused(name, tmp_path, "neither of torch.save nor of safetensors")
    file.write_bytes(pickle.dumps("text", 2))
    assert_refused(name, tmp_path, "cannot read weights")
    file.unlink()
    file.mkdir()
    assert_refused(name, tmp_path, "no such file")


def assert_refused(name, folder, said):
    line = refusal(UserError, weights.make, name, str(folder / "file.pt"), 0, folder / "out")
    assert said in line
    assert "weights_only" not in line


def test_the_head_of_a_model_follows_the_weights_where_it_can(tmp_path, name):
    state = registry.entry("squeezenet1_1@7").module().state_dict()
    torch.save({"net": prefixed(state, "module.")}, tmp_path / "own.pth")
    torch.save({key: one for key, one in state.items() if "0" not in key}, tmp_path / "another.pth")
    assert weights.classes("squeezenet1_1", str(tmp_path / "own.pth")) == 7
    assert weights.classes("squeezenet1_1@7", str(tmp_path / "own.pth")) == 0
    assert weights.classes("squeezenet1_1", "seeded") == 0
    torch.save(state_of(name) | {"3.bias": torch.zeros(7)}, tmp_path / "other.pth")
    assert weights.classes(name, str(tmp_path / "other.pth")) == 0


HOLD = """
import sys
from pareto.partitions import scratch
with scratch.folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_removed_with_all_that_is_in_it(temporary: Path) -> None:
    with pytest.raises(KeyError), scratch.folder() as folder:
        (folder / "in it").mkdir()
        assert folder.stat().st_mode & 0o77 == 0
        raise KeyError
    assert [*temporary.iterdir()] == []
    # Only what is left over is removed.
    environment, pipes = (
        {**os.environ, "TMPDIR": str(temporary)},
        dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
    )
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, text=True, **pipes) as holder:
        assert holder.stdout
        folder = Path(holder.stdout.readline().strip())
        (folder / "weights").touch()
        with scratch.folder() as ours:
            assert scratch.left() == scratch.left(remove=True) == []
            assert ours.is_dir()
        holder.kill()
        holder.wait()
        assert scratch.left() == [folder]
        with scratch.folder() as ours:
            assert [*temporary.iterdir()] == [ours]
    # Folders of others are let be. Somebody else may make names in a folder that is everybody's.
    (temporary / "precious").mkdir()
    (temporary / f"{scratch.PREFIX}link").symlink_to("precious")
    (temporary / f"{scratch.PREFIX}file").touch()
    if os.geteuid() == 0:
        theirs = temporary / f"{scratch.PREFIX}theirs"
        theirs.mkdir()
        os.chown(theirs, 12345, 12345)
    before = sorted(temporary.iterdir())
    assert scratch.left(remove=True) == scratch.left() == []
    assert sorted(temporary.iterdir()) == before
