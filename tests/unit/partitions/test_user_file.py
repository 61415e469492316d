"""A user's own model: what may stand in the file, what is said of one that cannot be used, and one that runs."""

import sys
import textwrap

import pytest
import torch

from partitions import model as partitioned
from partitions import proof, registry, weights
from partitions.recipe import Cuts, Recipe

NET = """
    import dataclasses

    import torch
    from torch import nn

    from partitions.registry import register

    @dataclasses.dataclass
    class Sizes:
        width: int = 8

    class Halves(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.conv = nn.Conv2d(width // 2, width // 2, 3, padding=1)

        def forward(self, x):
            halves = list(x.chunk(2, 1))  # torch.fx does not know how many
            halves[1] = torch.relu_(self.conv(halves[1]))
            return torch.cat(halves, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            width = Sizes().width
            self.stem = nn.Conv2d(3, width, 3, padding=1)
            self.blocks = nn.ModuleList(Halves(width) for _ in range(2))
            self.ramp = torch.linspace(0, 1, 16)
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return {"logits": self.head((x + self.ramp).mean((2, 3)))}

    def log_probabilities(output):
        return output["logits"].log_softmax(1)

    @register(input_shape=(3, 16, 16), postprocess=log_probabilities, mean=(0.5,) * 3, std=(0.25,) * 3,
              classes=tuple("abcdefghij"))
    def build():
        return Net()
"""


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(registry, "_adopted", {})


@pytest.fixture
def write(tmp_path):
    def written(text, name="net.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return written


def test_a_registered_builder_is_a_model_with_all_that_it_declared(write):
    path = write(NET)
    assert registry.canonical(f"{path}:build") == "net.build"
    assert registry.canonical(str(path)) == "net.build"  # the only one there
    assert registry.canonical("net.build") == "net.build"
    entry = registry.entry("net.build")
    assert (entry.input_shape, entry.mean, entry.std) == ((3, 16, 16), (0.5,) * 3, (0.25,) * 3)
    assert entry.classes == tuple("abcdefghij")
    assert registry.source("net.build") == (path, "build")
    assert "net.build" in registry.names()
    assert [*path.parent.iterdir()] == [path]  # no bytecode


def test_postprocessing_is_part_of_the_model_and_parameters_keep_their_names(write):
    name = registry.canonical(str(write(NET)))
    model = registry.build(name)
    assert next(iter(model.state_dict())) == "stem.weight"
    assert type(model).__name__ == "Net"
    with torch.no_grad():
        total = model(torch.randn(2, 3, 16, 16)).exp().sum(1)
    torch.testing.assert_close(total, torch.ones(2))


def test_it_is_cut_and_proved_like_any_other(write, tmp_path):
    path = write(NET)
    name = registry.canonical(f"{path}:build")
    recipe = Recipe(name, Cuts("op", live_tensors=2), *registry.source(name))
    made = weights.make(name, "seeded", 1, tmp_path / "weights")
    model = partitioned.load(recipe, made.path)
    assert model.traced_by == "torch.export"
    inputs = torch.randn(3, 3, 16, 16)
    proved = [*proof.prove(model, inputs)]
    assert len(proved) > 8
    assert all(it.bitwise and it.parted for it in proved)
    assert float(proof.reference(model, inputs)[0].std(0).min()) > 1e-3


def test_on_another_host_it_has_the_same_name_and_graph_whatever_the_file_is_called(write, monkeypatch):
    path = write(NET)
    recipe = Recipe(registry.canonical(str(path)), Cuts(), *registry.source("net.build"))
    here = partitioned.outline(recipe).graph_digest
    shipped = recipe.at(path.rename(path.with_name("5f3a.py")))
    monkeypatch.setattr(registry, "_adopted", {})
    registry.adopt(shipped)
    registry.adopt(shipped)
    assert registry.source("net.build") == (shipped.file, "build")
    assert partitioned.outline(shipped).graph_digest == here
    registry.adopt(Recipe("alexnet"))  # nothing to load


def test_a_plain_function_or_class_will_do(write):
    path = write("""
        from torch import nn
        input_shape = (1, 28, 28)
        class Digits(nn.Sequential):
            input_shape = (1, 32, 32)
            def __init__(self):
                super().__init__(nn.Conv2d(1, 2, 3))
        def small():
            return nn.Conv2d(1, 2, 3)
        def annotated(x: int): ...
        assert annotated.__annotations__["x"] is int  # no future of ours is in force in it
    """)
    assert registry.input_shape(f"{path}:Digits") == (1, 32, 32)
    entry = registry.entry(f"{path}:small")
    assert (entry.input_shape, entry.mean, entry.std) == ((1, 28, 28), (0.0,), (1.0,))
    assert not any(parameter.requires_grad for parameter in registry.build("net.small").parameters())
    assert not registry.build("net.Digits").training
    plain = write("def build():\n    raise SystemExit\n", "plain.py")
    assert registry.input_shape(f"{plain}:build") == (3, 224, 224)  # it has not been called


def test_names_are_safe_for_files(write):
    path = write("def build(): pass\n", "my net, v1.0.py")
    assert registry.canonical(f"{path}:build") == "my_net__v1.0.build"


def test_a_file_is_run_once_and_again_when_it_has_changed(write, capsys):
    path = write("print('run')\nfrom torch import nn\ndef build():\n    return nn.Linear(2, 2)\n")
    registry.canonical(f"{path}:build")
    registry.canonical(f"{path}:build")
    assert capsys.readouterr().out == "run\n"
    write("from torch import nn\ndef build():\n    return nn.Linear(3, 2)\n")
    assert registry.canonical(f"{path}:build") == "net.build"
    assert registry.build("net.build").in_features == 3


def test_two_files_cannot_have_one_name(write, tmp_path):
    (tmp_path / "other").mkdir()
    registry.canonical(f"{write('def build(): pass')}:build")
    with pytest.raises(registry.UnknownModel, match=r"both have a model net\.build: rename one of the files"):
        registry.canonical(f"{write('def build(): pass', 'other/net.py')}:build")


@pytest.mark.parametrize(
    ("text", "attribute", "says"),
    [
        (None, ":build", r"cannot read the model file .*net\.py: No such file"),
        ("def build(:\n    pass\n", ":build", r"net\.py:1: SyntaxError: "),
        ("import os\nimport nosuch\n", ":build", r"net\.py:2: ModuleNotFoundError: No module named 'nosuch'"),
        ("raise SystemExit('no')\n", ":build", r"net\.py:1: SystemExit: no"),
        ("def create(): pass\nx = 1\n", ":build", r"has no function or class 'build': it has create$"),
        ("x = 1\n", ":x", r"has no function or class 'x': it has none$"),
        (
            "input_shape = 5\ndef build(): pass\n",
            ":build",
            r"input_shape is channels, height and width, .*, not 5",
        ),
        ("def build(): pass\n", "", r"registers no model: name what builds it, as in net\.py:build"),
        (
            "from partitions.registry import register\n"
            "@register()\ndef a(): pass\nalias = a\n@register()\ndef b(): pass\n",
            "",
            r"registers a, b: say which, as in net\.py:a$",
        ),
        (
            "from partitions.registry import register\n@register(input_shape=(3, 8, 0))\ndef build(): pass\n",
            ":build",
            r"net\.py:2: ValueError: input_shape is channels",
        ),
        (
            "from partitions.registry import register\n@register(mean=(0.5,))\ndef build(): pass\n",
            ":build",
            r"net\.py:2: ValueError: mean and std have one number for each of 3 channels",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_one_line(text, attribute, says, write, tmp_path):
    path = tmp_path / "net.py" if text is None else write(text)
    loaded = set(sys.modules)
    with pytest.raises(registry.UnknownModel, match=says) as info:
        registry.canonical(f"{path}{attribute}")
    assert "\n" not in str(info.value)
    failed_to_run = text is None or "Error" in says or "Exit" in says
    assert not failed_to_run or not [name for name in set(sys.modules) - loaded if name.startswith("_pareto")]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return 5", r"net\.py: build\(\) makes no torch\.nn\.Module but int"),
        ("return {}['k']", r"net\.py:2: build\(\) fails: KeyError: 'k'"),
    ],
)
def test_a_builder_that_fails_is_told_in_one_line(body, says, write):
    path = write(f"def build():\n    {body}\n")
    name = registry.canonical(f"{path}:build")
    for build in (registry.build, registry.build_structure):
        with pytest.raises(registry.UnknownModel, match=says):
            build(name)
