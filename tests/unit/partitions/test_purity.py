"""Models whose answer depends on more than their inputs are refused, whatever the way in which they do it."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from pareto.partitions import proof, registry
from pareto.partitions.graph import Input
from pareto.partitions.purity import UnrepeatableModel
from pareto.partitions.recipe import Cuts
from pareto.partitions.tracing import trace
from tests.unit.partitions.builders import Made, load_own


def net_of(work):
    def over_all(net, x):
        return net.last(work(net, net.first(x)).mean((2, 3)))

    parts = {"first": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4), "last": nn.Linear(4, 2)}
    return Made(over_all, **parts, seen=torch.zeros(())).eval()


def assigns(net, x):
    net.seen = net.seen + 1
    return x


def branches(net, x):
    net.seen.add_(1)
    return torch.cat([*x.split(2, 1)], 1)


def trains(net, x):
    net.norm.train()
    return net.norm(x)


def attends(net, x):
    rows = x.flatten(2)
    return functional.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.1).view_as(x)


CHANGES, DRAWS = "changes its own buffer seen when it runs", "draws random numbers in eval mode"


@pytest.mark.parametrize(
    ("work", "said"),
    [
        pytest.param(assigns, CHANGES, id="assigns"),
        pytest.param(lambda net, x: x + net.seen.add_(1), CHANGES, id="in place"),
        pytest.param(branches, CHANGES, id="by torch.export"),
        pytest.param(trains, "puts norm in training mode", id="trains"),
        pytest.param(lambda _, x: functional.dropout(x), DRAWS, id="dropout"),
        pytest.param(lambda _, x: x + torch.randn_like(x), DRAWS, id="noise"),
        pytest.param(attends, DRAWS, id="attention"),
    ],
)
def test_a_model_that_changes_itself_or_draws_is_refused(work, said):
    net = net_of(work)
    with pytest.raises(UnrepeatableModel, match=said):
        trace(net, (Input((3, 8, 8)),))
    assert not any(module.training for module in net.modules())
    assert isinstance(net.seen, torch.Tensor)


def test_what_it_merely_remembers_is_as_before():
    def remembers(net, x):
        net.feature = x
        return x

    net = net_of(remembers)
    assert trace(net, (Input((3, 8, 8)),)).traced_by == "torch.fx"
    assert not hasattr(net, "feature")


@pytest.mark.parametrize(
    "work",
    ["self.calls += 1; x = x * self.calls", "x = x * random.random()", "x, self.last = x + self.last, x"],
    ids=["counts", "Python's own chance", "the request before"],
)
def test_two_runs_that_differ_are_seen_by_the_proof(work: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(registry, "_adopted", {})
    file = tmp_path / "net.py"
    file.write_text(
        "import random\nfrom torch import nn\ninput_shape = (3, 8, 8)\n"
        "class Net(nn.Sequential):\n    calls = last = 0\n"
        f"    def forward(self, x):\n        {work}\n        return super().forward(x)\n"
        "def build():\n    return Net(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    model = load_own(f"{file}:build", tmp_path, Cuts("op"))
    with pytest.raises(UnrepeatableModel, match="two runs differ"):
        next(proof.prove(model, torch.rand(1, 3, 8, 8)))
