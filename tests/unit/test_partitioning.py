"""`partitions`: the tables and the figure, as printed and drawn, and the table in a document."""

import io

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from pareto.analysis.figures.point_figures import partitions_figure
from pareto.commands import partitions as partitioning
from pareto.partitions import costs, proof, registry
from pareto.partitions import model as partitioned
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from tests.unit.refusals import refusal

NET = """
import torch
from torch import fx, nn

class Net(nn.Module):
    input_shape = (3, 8, 8)

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        kept = self.act(self.first(x))
        return self.head((self.second(kept) + kept).mean((2, 3)))

class Another(Net):
    def forward(self, x):
        return super().forward(x) * (2 if isinstance(x, fx.Proxy) else 1)

class Picky(Net):
    input_shape = (3, 80, 80)

    def forward(self, x):
        small = not isinstance(x, fx.Proxy) and x.shape[-1] == 64
        return super().forward(x + 1 if small else x)

class Untraceable(nn.Module):
    input_shape = (3, 8, 8)

    def forward(self, x):
        while x.sum() > 0:
            x = x - 1
        return x

class Large(Net):
    input_shape = Picky.input_shape
"""


@pytest.fixture(scope="session")
def net(tmp_path_factory):
    """The file of a small user's model; one file of a process may have its name."""
    file = tmp_path_factory.mktemp("user") / "inside_net.py"
    file.write_text(NET)
    return file


def run(asked, folder, **options):
    """What the command prints, and what it returns."""
    out = Console(width=80, color_system=None, file=io.StringIO())
    usual = {"prove": False, "document": None, "json": False}
    good = partitioning.run(out, make_sweep(asked), folder, **usual | options)
    return out.file.getvalue(), good


@pytest.fixture
def undrawn(monkeypatch):
    """Without the figure, which takes a second."""
    monkeypatch.setattr(partitioning, "draw", lambda *_: [])


def rows(text):
    """The cells of the lines that begin with a point's number."""
    found = [line.split() for line in text.splitlines() if line.startswith(" ")]
    return [cells for cells in found if cells and cells[0].isdigit()]


def test_each_point_of_a_model(net, tmp_path, snapshot):
    asked = {"model": f"{net}:Net", "granularity": "op", "live_tensors": 2, "input": "float32"}
    text, good = run(asked, tmp_path)
    assert good
    assert max(map(len, text.split("\n/")[0].splitlines())) <= 80
    # FLOPs: 3x3 convolutions of 8x8, 13824 and 18432; a head of 40. Parameters: 112, 148 and 25.
    assert rows(text) == [
        ["0", "input", "3x8x8", "0.75", "100", "0.0", "32.3", "0", "0", "285", "0"],
        ["1", "act", "4x8x8", "1.00", "133", "13.8", "18.5", "43", "112", "173", "39"],
        ["2", "second", "4x8x8", "2.00", "267", "32.3", "0.0", "100", "260", "25", "91"],
        ["3", "add", "4x8x8", "1.00", "133", "32.3", "0.0", "100", "260", "25", "91"],
        ["4", "mean", "4", "0.02*", "2.1", "32.3", "0.0", "100", "260", "25", "91"],
        ["5", "output", "-", "32.3", "0.0", "100", "285", "0", "100"],
    ]
    assert text.partition(f"\n{tmp_path}")[0] == snapshot
    assert {path.name for path in tmp_path.iterdir()} == {
        ".made",
        "partitions-inside-net.Net.pdf",
        "partitions-inside-net.Net.png",
    }
    run(asked, again := tmp_path / "again")
    assert all((tmp_path / path.name).read_bytes() == path.read_bytes() for path in again.iterdir())


def test_unfolded_there_is_nothing_to_tell_and_images_are_bytes(tmp_path, net, undrawn):
    text, _ = run({"model": f"{net}:Net", "granularity": "op", "fold": False}, tmp_path)
    assert [cells[1] for cells in rows(text)] == ["input", "first", "act", "add", "mean", "output"]
    assert "--no-fold" not in text
    # Images as bytes.
    text, _ = run({"model": f"{net}:Net", "granularity": "op"}, tmp_path)
    assert rows(text)[0][:6] == ["0", "input", "3x8x8", "uint8", "0.19", "25"]
    assert rows(text)[1][:5] == ["1", "act", "4x8x8", "1.00", "133"]  # of what float32 would be
    assert "float32" in text


def test_a_proof_for_every_point(net, tmp_path, undrawn, snapshot):
    text, good = run({"model": f"{net}:Net", "granularity": "op", "live_tensors": 2}, tmp_path, prove=True)
    assert good
    assert [cells[-1] for cells in rows(text)] == ["bitwise"] * 6
    text, good = run({"model": f"{net}:Another", "granularity": "op"}, tmp_path, prove=True)
    assert not good
    assert {cells[-1] for cells in rows(text)} == {"no"}
    _, _, verdict = " ".join(text.split()).rpartition(" 6 of 6 points ")
    assert verdict.rpartition(" ")[0] == snapshot  # then by how much


def test_several_models_are_a_row_each(net, tmp_path, snapshot):
    document = tmp_path / "models.md"
    models = ",".join(f"{net}:{name}" for name in ("Net", "Another", "Untraceable"))
    text, good = run({"model": models}, tmp_path, document=document)
    assert good
    assert max(map(len, text.splitlines())) <= 80
    assert not list(tmp_path.glob("*.png"))
    lines = document.read_text().splitlines()
    assert lines[1] == partitioning.BEGIN
    assert [line for line in lines if line.startswith("| inside_net.Net |")] == [
        "| inside_net.Net | torch.fx | 4 | 5 | 4 | 5 | 5 | 0.02 | 2.1 | mean | not proved |"
    ]
    (refused,) = [line for line in lines if line.startswith("| inside_net.Untraceable |")]
    assert refused.startswith("| inside_net.Untraceable | none |  |")
    assert refused == snapshot
    *_, why = refused.removesuffix(" |").split(" | ")
    assert " ".join(why.split()) in " ".join(text.split())


def test_rows_are_made_anew_and_others_stay(net, tmp_path):
    document = tmp_path / "models.md"
    document.write_text(f"# Models\n\nBefore.\n\n{partitioning.BEGIN}\n{partitioning.END}\n\nAfter.\n")
    partitioning.write([("b", "torch.fx", "old"), ("c", "torch.fx", "kept")], document)
    partitioning.write([("b", "torch.fx", "new"), ("a", "none", "why")], document)
    text = document.read_text()
    assert text.startswith(f"# Models\n\nBefore.\n\n{partitioning.BEGIN}\n\n| model |")
    assert text.endswith(f"\n\n{partitioning.END}\n\nAfter.\n")
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")] == [
        "| model", "| a", "| b", "| c",
    ]  # fmt: skip
    assert "old" not in text
    partitioning.write([], document)
    assert document.read_text() == text


@pytest.mark.parametrize(("name", "size"), [("Large", 64), ("Picky", 80)])
def test_proofs_take_the_smallest_images_that_the_graph_takes_or_else_the_models_own(net, name, size):
    recipe = Recipe(registry.canonical(f"{net}:{name}"), file=net, attribute=name)
    assert proof.all_at_once(recipe) == f"bitwise, {size} px"


def test_proofs_of_several_and_none_that_would_take_hours(tmp_path, net, monkeypatch):
    _, good = run({"model": f"{net}:Net,{net}:Another"}, tmp_path, prove=True, document=tmp_path / "table.md")
    assert not good
    lines = {
        line.split(" | ")[0]: line.split(" | ")[-1]
        for line in (tmp_path / "table.md").read_text().splitlines()
    }
    assert lines["| inside_net.Net"] == "bitwise, 8 px |"
    assert lines["| inside_net.Another"].startswith("no: at point 0 (input) ")
    # A proof that would take hours is not tried.
    monkeypatch.setattr(proof, "LIMIT_S", 0.0)
    recipe = Recipe(registry.canonical(f"{net}:Net"), file=net, attribute="Net")
    assert proof.all_at_once(recipe).startswith("not proved: ")


def test_a_place_that_cannot_be_written_to_is_one_line(net, tmp_path, snapshot):
    (tmp_path / "file").write_text("")
    for folder, document in ((tmp_path / "file", None), (tmp_path, tmp_path / "none" / "nowhere.md")):
        said = refusal(UserError, run, {"model": f"{net}:Net"}, folder, document=document)
        assert str(document or folder) in said
        assert said == snapshot


def test_the_input_may_be_what_sends_least():
    outline = partitioned.outline(Recipe("resnet18", Cuts(), input="uint8"))
    before_pooling = outline.points[:4]
    assert partitioning.smallest((*before_pooling, outline.points[-1])).name == "input"


def frame(name, cuts):
    outline = partitioned.outline(Recipe(name, cuts))
    running = costs.before_points(outline)
    return partitioning.figure_rows(outline, running), outline.takes.nbytes


@pytest.mark.parametrize(
    ("name", "cuts"),
    [
        ("alexnet", Cuts()),
        ("mobilenet_v2", Cuts("op", 2, fold=False)),
        pytest.param("googlenet", Cuts("op", 8), marks=pytest.mark.deep),
    ],
    ids=["few points, named", "150 points", "up to eight tensors"],
)
def test_the_figure_has_every_point(name, cuts):
    points, input_bytes = frame(name, cuts)
    figure = partitions_figure(points, input_bytes, "The caption.")
    FigureCanvasAgg(figure).draw()
    above, below = figure.axes
    lines = {line.get_label(): np.asarray(line.get_ydata(), float) for line in (*above.lines, *below.lines)}
    assert (1024 * lines["payload"])[:-1].tolist() == points["payload_bytes"].tolist()[:-1]
    assert lines["input"][0] == input_bytes / 1024
    for name, label in (("edge_flops", "FLOPs"), ("edge_parameters", "parameters")):
        assert lines[f"{label} on the edge"].tolist() == (points[name] / points[name].iloc[-1]).tolist()
    assert "The caption." in figure.get_supxlabel()
