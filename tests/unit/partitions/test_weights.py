"""Weights files: deterministic, checked, and never degenerate."""

import hashlib
import urllib.error
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pareto.partitions import registry, weights
from pareto.partitions.seeded import seeded
from pareto.partitions.torchvision_models import models
from pareto.protocol.errors import UserError
from tests.unit.gating import gating
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = "squeezenet1_1"


def test_the_same_seed_gives_the_same_file_and_leaves_the_rng_alone(tmp_path):
    before = torch.get_rng_state()
    first = weights.make(SMALL, "seeded", 1, tmp_path / "a")
    torch.rand(10)
    again = weights.make(SMALL, "seeded", 1, tmp_path / "b")
    other = weights.make(SMALL, "seeded", 2, tmp_path / "a")
    assert first.digest == again.digest != other.digest
    assert first.path.read_bytes() == again.path.read_bytes()
    torch.set_rng_state(before)
    weights.make(SMALL, "seeded", 1, tmp_path / "b")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_file_is_named_by_the_digest_of_its_bytes_and_nothing_else_is_left(tmp_path):
    made = weights.make(SMALL, "seeded", 1, tmp_path)
    assert made.digest == hashlib.sha256(made.path.read_bytes()).hexdigest()
    assert list(tmp_path.iterdir()) == [made.path] == [tmp_path / f"{made.digest}.safetensors"]


def test_the_number_of_threads_does_not_matter(tmp_path):
    threads = torch.get_num_threads()
    try:
        digests = set()
        for number in (1, 2):
            torch.set_num_threads(number)
            digests.add(weights.make("mobilenet_v3_small", "seeded", 1, tmp_path).digest)
            assert torch.get_num_threads() == number
        assert len(digests) == 1
    finally:
        torch.set_num_threads(threads)


SIZES = {
    "mobilenet_v2": 224,
    "resnet50": 64,
    "inception_v3": 160,
    "squeezenet1_1": 64,
    "vit_b_32": 64,
    "swin_t": 64,
}


@pytest.mark.parametrize("name", gating(SIZES, "mobilenet_v2", "vit_b_32", "swin_t"))
def test_seeded_outputs_depend_on_the_input(name):
    """With torchvision's initialization MobileNetV2 yields 1e-10, ViT zero: any split would pass for equal."""
    shape = (3, SIZES[name], SIZES[name])
    generator = torch.Generator().manual_seed(5)
    with small(name, SIZES[name]) as called:
        model = seeded(called, 0)
    assert not any(module.training for module in model.modules())
    for images in (torch.randn(2, *shape, generator=generator), torch.rand(2, *shape, generator=generator)):
        with torch.inference_mode():
            first, second = model(images)
        assert first.isfinite().all()
        assert 0.05 < float((first - second).abs().max()) < 100
        assert 0.1 < float(first.abs().max()) < 100


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
    with pytest.raises(UserError) as of_reader:
        weights.read(file, SMALL)
    assert [said] == [str(of_reader.value)] == snapshot
    assert not (tmp_path / "out").exists()


def test_a_reader_reads_what_is_asked_for_and_no_more(tmp_path):
    state = seeded(SMALL, 3).state_dict()
    made = weights.make(SMALL, "seeded", 3, tmp_path)
    reader = weights.Reader([made.path], SMALL)
    assert list(reader.keys) == list(state)
    wanted = ["classifier.1.bias", "features.0.weight"]
    read = dict(reader.read(wanted))
    assert list(read) == wanted
    assert all(torch.equal(read[key], state[key]) for key in wanted)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in read.values())
    assert [dict(reader.read([]))] == [{}]
    assert made.digest not in Path("/proc/self/maps").read_text(), "nothing of the file stays mapped, or open"
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if made.digest in str(fd.resolve())]


def test_what_a_reader_reads_has_the_models_dtype(tmp_path):
    state = {key: tensor.half() for key, tensor in seeded(SMALL, 3).state_dict().items()}
    save_file(state, tmp_path / "half.safetensors")
    read = weights.read(tmp_path / "half.safetensors", SMALL)
    assert {tensor.dtype for tensor in read.values()} == {torch.float32}
    assert all(torch.equal(read[key], state[key].float()) for key in state)


def test_a_file_that_shrank_or_went_away_is_one_clear_line(tmp_path, snapshot):
    made = weights.make(SMALL, "seeded", 3, tmp_path)
    reader = weights.Reader([made.path], SMALL)
    with made.path.open("r+b") as file:
        file.truncate(made.path.stat().st_size - 1)
    with pytest.raises(UserError) as ends:
        dict(reader.read(reader.keys))
    with pytest.raises(UserError):
        weights.Reader([made.path], SMALL)
    made.path.unlink()
    with pytest.raises(UserError) as gone:
        dict(reader.read(reader.keys))
    assert [str(it.value).replace(made.digest, "DIGEST") for it in (ends, gone)] == snapshot


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("code from a weights file was run",))


def refused(file, tmp_path):
    """What is said of a file in one line."""
    with pytest.raises(UserError) as info:
        weights.make(SMALL, str(file), 0, tmp_path / "out")
    assert "\n" not in str(info.value)
    return str(info.value)


def test_a_bad_file_is_one_clear_line(tmp_path, snapshot):
    contents = {
        "no.pt": None,
        "empty.pt": b"",
        "garbage.pt": b"garbage",
        "empty.safetensors": b"",
        "garbage.safetensors": b"garbage garbage",
    }
    said = []
    for name, content in contents.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        ours, path, _ = refused(tmp_path / name, tmp_path).partition(name)
        said.append(ours + path)  # what follows is in torch's words, or the format's
    (tmp_path / "weights.onnx").touch()
    torch.save([1, 2], tmp_path / "other.pt")
    assert [*said, *(refused(tmp_path / name, tmp_path) for name in ("weights.onnx", "other.pt"))] == snapshot


def test_code_in_a_pickle_is_not_run(tmp_path):
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
    with pytest.raises(UserError) as refused:
        weights.make(SMALL, "pretrained", 0, tmp_path)
    assert str(refused.value) == snapshot


HEADS = {"googlenet": "aux1.", "inception_v3": "AuxLogits."}


@pytest.fixture
def downloaded(monkeypatch):
    def put(published):
        monkeypatch.setattr(
            "torchvision.models._api.load_state_dict_from_url", lambda *_args, **_options: published
        )
        return published

    return put


@pytest.mark.parametrize("name", gating(HEADS, "googlenet"))
def test_pretrained_weights_lose_their_auxiliary_heads(name, downloaded, tmp_path):
    published = downloaded(models.get_model(name, aux_logits=True, init_weights=False).state_dict())
    assert any(key.startswith(HEADS[name]) for key in published)
    written = weights.read(weights.make(name, "pretrained", 0, tmp_path).path, name)
    assert written.keys() == registry.build_structure(name).state_dict().keys()
    assert all(torch.equal(tensor, published[key]) for key, tensor in written.items())


def test_auxiliary_heads_that_the_model_runs_are_kept(downloaded, tmp_path):
    name = "deeplabv3_mobilenet_v3_large"
    published = downloaded(registry.build(name).state_dict())
    assert any(key.startswith("aux_classifier.") for key in published)
    written = weights.read(weights.make(name, "pretrained", 0, tmp_path).path, name)
    assert written.keys() == published.keys()
    assert all(torch.equal(tensor, published[key]) for key, tensor in written.items())


def test_a_users_own_model_has_no_pretrained_weights(tmp_path, snapshot):
    file = tmp_path / "model_of_test_weights.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Conv2d(3, 4, 1)\n")
    name = registry.canonical(f"{file}:build")
    with pytest.raises(UserError) as refused:
        weights.make(name, "pretrained", 0, tmp_path)
    assert str(refused.value) == snapshot
