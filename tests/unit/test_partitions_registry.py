"""Model names, input shapes, construction, and what the package imports."""

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import partitions
from partitions import registry, torchvision_compat


def test_names_are_classification_models_only():
    names = registry.names()
    assert names == sorted(names)
    assert {"mobilenet_v2", "alexnet", "vit_b_16"} <= set(names)
    assert not any("quantized" in name or "3d" in name or "rcnn" in name for name in names)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("mobilenet_v2", "mobilenet_v2"),
        ("mobilenetv2", "mobilenet_v2"),
        ("MobileNet-V2", "mobilenet_v2"),
        ("InceptionV3", "inception_v3"),
        ("regnet_x_16gf", "regnet_x_16gf"),
        ("regnet_x_1_6gf", "regnet_x_1_6gf"),
    ],
)
def test_canonical_names(written, name):
    assert registry.canonical(written) == name


def test_an_unknown_name_is_answered_with_the_nearest_in_one_line():
    with pytest.raises(
        registry.UnknownModel, match="unknown model 'mobilnetv2': did you mean mobilenet_v2,"
    ) as info:
        registry.canonical("mobilnetv2")
    assert "\n" not in str(info.value)
    assert isinstance(info.value, ValueError)


def test_a_name_of_two_models_is_refused_rather_than_guessed():
    with pytest.raises(registry.UnknownModel, match="ambiguous: regnet_x_16gf or regnet_x_1_6gf"):
        registry.canonical("regnetx16gf")


@pytest.mark.parametrize(
    ("name", "size"),
    [("mobilenetv2", 224), ("inception_v3", 299), ("efficientnet_b1", 240), ("vit_h_14", 518)],
)
def test_input_shape(name, size):
    assert registry.input_shape(name) == (3, size, size)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_no_auxiliary_head_no_input_transform_no_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = registry.build_structure(name)
    assert model.transform_input is False
    assert not [key for key in model.state_dict() if key.startswith(("aux", "Aux"))]


def test_build_is_ready_for_inference_and_follows_the_rng():
    torch.manual_seed(1)
    first = registry.build("squeezenet1_1")
    torch.manual_seed(1)
    again = registry.build("squeezenet1_1")
    assert not first.training
    assert not any(parameter.requires_grad for parameter in first.parameters())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_a_structure_has_real_buffers_and_no_parameters_in_memory():
    structure = registry.build_structure("swin_t")
    assert {parameter.device.type for parameter in structure.parameters()} == {"meta"}
    index = structure.get_buffer("features.1.0.attn.relative_position_index")
    assert index.device.type == "cpu"
    assert int(index.max()) == 13 * 13 - 1  # a 7x7 window has 13x13 relative positions
    assert torch.nn.Linear(2, 2).weight.device.type == "cpu"  # the hook is gone


def test_matching_torch_and_torchvision_are_left_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.setattr(torchvision_compat, "_load_operators", lambda: True)
    monkeypatch.setattr(
        torch.library, "Library", lambda *_: pytest.fail("declared an operator that is there")
    )
    assert torchvision_compat._declare_missing_operators() is None


def test_the_package_itself_does_not_import_torch():
    code = "import sys, partitions; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=Path(partitions.__file__).parent.parent).returncode
        == 0
    )


def test_the_package_needs_nothing_that_a_device_lacks():
    allowed = {"torch", "torchvision", "safetensors", *sys.stdlib_module_names}
    for path in Path(partitions.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module.split(".")[0] in allowed, path
