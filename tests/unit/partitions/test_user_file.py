"""A user's own model: what may stand in the file, what is said of one that cannot be used, and one that runs."""

import re
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pareto.partitions import model as partitioned
from pareto.partitions import proof, registry, weights
from pareto.partitions.inputs import Images
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from tests.unit.partitions.builders import load_own, recipe_of
from tests.unit.refusals import refusal

pytestmark = pytest.mark.usefixtures("none_adopted")

REGISTER = "from torch import nn\nfrom pareto.partitions.registry import register\n"
NET = """
    import dataclasses
    import torch
    from torch import nn
    from pareto.partitions.registry import register

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
            self.stem, self.head = nn.Conv2d(3, width, 3, padding=1), nn.Linear(width, 10)
            self.blocks = nn.Sequential(Halves(width), Halves(width))
            self.ramp = torch.linspace(0, 1, 16)
        def forward(self, x):
            return {"logits": self.head((self.blocks(self.stem(x)) + self.ramp).mean((2, 3)))}

    def log_probabilities(output):
        return output["logits"].log_softmax(1)

    @register(input_shape=(3, 16, 16), postprocess=log_probabilities, mean=(0.5,) * 3, std=(0.25,) * 3,
              classes=tuple("abcdefghij"))
    def build():
        return Net()
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="net.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return written


def test_a_registered_builder_is_a_model_with_all_that_it_declared_and_is_proved(write, tmp_path):
    path = write(NET)
    assert registry.canonical(f"{path}:build") == "net.build"
    assert registry.canonical(str(path)) == "net.build"  # the only one there
    assert registry.canonical("net.build") == "net.build"
    entry = registry.entry("net.build")
    assert entry.takes == Images((3, 16, 16), (0.5,) * 3, (0.25,) * 3)
    assert entry.classes == tuple("abcdefghij")
    assert registry.source("net.build") == (str(path), "build")
    assert "net.build" in registry.names()
    assert [*path.parent.iterdir()] == [path]  # no bytecode
    model = registry.entry("net.build").module()
    assert next(iter(model.state_dict())) == "stem.weight"
    assert type(model).__name__ == "Net"
    with torch.no_grad():
        total = model(torch.randn(2, 3, 16, 16)).exp().sum(1)
    torch.testing.assert_close(total, torch.ones(2))
    model = load_own(f"{path}:build", tmp_path / "weights", Cuts("op", live_tensors=2))
    assert model.traced.traced_by == "torch.export"
    inputs = torch.randn(3, 3, 16, 16)
    proved = [*proof.prove(model, inputs)]
    assert len(proved) > 8
    assert all(it.bitwise and it.parted for it in proved)
    assert float(proof.reference(model, inputs)[0].std(0).min()) > 1e-3


def test_on_another_host_it_has_the_same_name_and_graph_whatever_the_file_is_called(write, monkeypatch):
    path = write(NET)
    recipe = recipe_of(path, Cuts())
    here = partitioned.outline(recipe).graph_digest
    shipped = replace(recipe, file=str(path.rename(path.with_name("5f3a.py"))))
    monkeypatch.setattr(registry, "_adopted", {})
    registry.adopt(shipped)
    registry.adopt(shipped)
    assert registry.source("net.build") == (shipped.file, "build")
    assert partitioned.outline(shipped).graph_digest == here
    registry.adopt(Recipe("alexnet"))  # nothing to load


def test_a_plain_function_or_class_will_do_and_names_are_safe_for_files(write):
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
    assert registry.entry(f"{path}:Digits").images.shape == (1, 32, 32)
    entry = registry.entry(f"{path}:small")
    assert entry.takes == Images((1, 28, 28), (0.0,), (1.0,))
    assert not any(
        parameter.requires_grad for parameter in registry.build_structure("net.small").parameters()
    )
    assert not registry.entry("net.Digits").module().training
    plain = write("def build():\n    raise SystemExit\n", "plain.py")
    assert registry.entry(f"{plain}:build").images.shape == (3, 224, 224)  # it has not been called
    path = write("def build(): pass\n", "my net, v1.0.py")
    assert registry.canonical(f"{path}:build") == "my_net__v1.0.build"


def test_a_file_is_run_once_and_again_when_it_has_changed(write, capsys):
    path = write("print('run')\nfrom torch import nn\ndef build():\n    return nn.Linear(2, 2)\n")
    for _ in range(2):
        registry.canonical(f"{path}:build")
    assert capsys.readouterr().out == "run\n"
    write("from torch import nn\ndef build():\n    return nn.Linear(3, 2)\n")
    assert registry.canonical(f"{path}:build") == "net.build"
    assert registry.entry("net.build").module().in_features == 3


def test_two_files_cannot_have_one_name(write, tmp_path, snapshot):
    (tmp_path / "other").mkdir()
    registry.canonical(f"{write('def build(): pass')}:build")
    other = write("def build(): pass", "other/net.py")
    assert refusal(UserError, registry.canonical, f"{other}:build") == snapshot


@pytest.mark.parametrize(
    ("text", "attribute", "runs"),
    [
        pytest.param("def create(): pass\nx = 1\n", ":build", True, id="another name"),
        pytest.param("x = 1\n", ":x", True, id="no function"),
        pytest.param("input_shape = 5\ndef build(): pass\n", ":build", True, id="no shape"),
        pytest.param("def build(): pass\n", "", True, id="none registered"),
        pytest.param(
            f"{REGISTER}@register()\ndef a(): 1\nalias = a\n@register()\ndef b(): 1\n", "", True, id="two"
        ),
        pytest.param(None, ":build", False, id="no file"),
        pytest.param("def build(:\n    pass\n", ":build", False, id="no Python"),
        pytest.param("import os\nimport nosuch\n", ":build", False, id="import"),
        pytest.param("raise SystemExit('no')\n", ":build", False, id="exit"),
        pytest.param(
            f"{REGISTER}@register(input_shape=(3, 8, 0))\ndef build(): 1\n", ":build", False, id="shape"
        ),
        pytest.param(f"{REGISTER}@register(mean=(0.5,))\ndef build(): 1\n", ":build", False, id="mean"),
    ],
)
def test_a_file_without_such_a_model_is_told_in_one_line(text, attribute, runs, write, tmp_path, snapshot):
    path, loaded = tmp_path / "net.py" if text is None else write(text), set(sys.modules)
    said = refusal(UserError, registry.canonical, f"{path}{attribute}")
    assert re.sub("SyntaxError: .*", "SyntaxError: ...", said) == snapshot  # Python's own words
    assert runs or not [name for name in set(sys.modules) - loaded if name.startswith("_pareto")], (
        "nothing is left"
    )


@pytest.mark.parametrize("body", ["return 5", "return {}['k']", "raise SystemExit(0)"])
def test_a_builder_that_fails_is_told_in_one_line(body, write, snapshot):
    path = write(f"def build():\n    {body}\n")
    name = registry.canonical(f"{path}:build")
    said = refusal(UserError, registry.entry(name).module)
    assert refusal(UserError, registry.build_structure, name) == said
    assert [said] == snapshot


def trained(write, body):
    """A model with pretrained weights from a function of this body."""
    text = f"import torch\n{REGISTER}def trained():\n    {body}\n@register(input_shape=(3, 4, 4), pretrained=trained)\n"
    return registry.canonical(
        str(write(f"{text}def build():\n    return nn.Conv2d(3, 1, 1)\n", "trained.py"))
    )


def test_its_own_pretrained_weights_are_used(write, tmp_path):
    name = trained(write, 'return {"weight": torch.full((1, 3, 1, 1), 7.0), "bias": torch.zeros(1)}')
    made = weights.make(name, "pretrained", 0, tmp_path)
    assert weights.read(made, name)["weight"].unique().tolist() == [7.0]
    assert weights.read(weights.make(name, "seeded", 0, tmp_path), name)["weight"].abs().max() < 7


@pytest.mark.parametrize(
    "body",
    [
        'raise FileNotFoundError("net.pth is not here: make it by train.py")',
        'raise KeyError("weight")',
        "raise SystemExit(0)",
        "return 7",
        'return {"weight": 7}',
        'return {"weight": torch.zeros(1)}',
    ],
)
def test_pretrained_weights_that_cannot_be_had_are_one_line(write, tmp_path, snapshot, body):
    said = refusal(UserError, weights.make, trained(write, body), "pretrained", 0, tmp_path)
    assert "pretrained" in said
    assert said == snapshot


KINDS = """
import torch
from torch import nn
input_shape = (3, 8, 8)
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))
model = Net()
def lazy():
    return nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(4))
def averaged():
    return torch.optim.swa_utils.AveragedModel(nn.DataParallel(Net()))
def in_part():
    return nn.Sequential(torch.compile(Net()), nn.Sequential(nn.DataParallel(nn.ReLU())))
def compiled_in_place():
    net = Net()
    net.compile()
    return net
def graph():
    return torch.fx.symbolic_trace(Net())
def script():
    return torch.jit.script(Net())
def scripted_part():
    return nn.Sequential(torch.jit.script(nn.ReLU()), Net())
def exported():
    return torch.export.export(Net(), (torch.zeros(1, 3, 8, 8),)).module()
"""


@pytest.mark.parametrize(
    "kind", ["Net", "model", "lazy", "averaged", "in_part", "compiled_in_place", "graph"]
)
def test_what_wraps_a_module_is_left_out(kind, write, tmp_path):
    model = load_own(f"{write(KINDS)}:{kind}", tmp_path, Cuts("op"))
    assert all(each.bitwise and each.parted for each in proof.prove(model, torch.rand(1, 3, 8, 8)))
    assert len(model.points) > 2


@pytest.mark.parametrize(
    ("kind", "said"), [("script", "TorchScript"), ("scripted_part", "part 0"), ("exported", "eval")]
)
def test_code_that_cannot_be_cut_is_named_in_one_line(kind, said, write):
    name = registry.canonical(f"{write(KINDS)}:{kind}")
    with pytest.raises(UserError, match=said) as refused:
        registry.build_structure(name)
    assert kind in str(refused.value)


def test_what_a_file_sets_for_the_whole_process_is_set_back(write):
    before = torch.get_num_threads(), Path.cwd()
    settings = """
import os
import torch
from torch import nn
def spoil():
    torch.set_num_threads(7)
    torch.set_grad_enabled(False)
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    os.chdir("/")
spoil()
def inputs(batch, seed):
    spoil()
    return torch.zeros(batch, 2, device="cpu", dtype=torch.float32)
def build():
    spoil()
    return nn.Linear(2, 2).float()
"""
    name = registry.canonical(f"{write(settings)}:build")
    for work in (lambda: registry.entry(name).module(), lambda: registry.entry(name).inputs):
        work()
        assert (torch.get_num_threads(), Path.cwd()) == before
        assert torch.is_grad_enabled()
        assert torch.zeros(1).device.type == "cpu"
        assert torch.get_default_dtype() == torch.float32
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.are_deterministic_algorithms_enabled()


def test_whatever_a_users_model_raises_names_its_line(write):
    text = (
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return {}[x.shape]"
    )
    name = registry.canonical(f"{write(text)}:Net")
    with pytest.raises(UserError, match=r"net.py:4: .*KeyError"), registry.entry(name).blamed():
        registry.entry(name).module()(torch.zeros(1))
