"""Points and chains that somebody wrote down."""

import pytest

from pareto.partitions.recipe import Handmade
from pareto.protocol.errors import UserError
from pareto.sweep import splits


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(splits, "FOLDER", tmp_path / "partitions")
    (tmp_path / "partitions").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("points: [features.3, features.6]\n", Handmade(points=("features.3", "features.6"))),
        ("# why\npoints:\n  - add_1\n  - 7\n", Handmade(points=("add_1", "7"))),
        ("chain: [stem, body, body, head]\n", Handmade(chain=("stem", "body", "body", "head"))),
    ],
)
def test_what_a_file_says(text, expected, folder):
    (folder / "partitions" / "alexnet.yaml").write_text(text)
    assert splits.chosen_points("alexnet", "") == expected
    assert splits.chosen_points("resnet18", "") is None


def test_for_a_users_model_it_lies_beside_the_file_and_has_the_models_name(folder):
    (folder / "partitions" / "net.build.yaml").write_text("points: [wrong]")
    (folder / "net.build.yaml").write_text("points: [right]")
    assert splits.chosen_points("net.build", str(folder / "net.py")) == Handmade(points=("right",))
    assert splits.chosen_points("net.other", str(folder / "net.py")) is None


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "alexnet.yaml"),
        ("points: [a]\nchain: [b]\n", "alexnet.yaml:1"),
        ("{}\n", "alexnet.yaml:1"),
        ("\npoint: [a]\n", "alexnet.yaml:2"),
        ("- a\n", "alexnet.yaml:1"),
        ("points: features.3\n", "alexnet.yaml:1"),
        ("chain: []\n", "alexnet.yaml:1"),
        ("points:\n  - a\n  - {b: c}\n", "alexnet.yaml:3"),
        ("points:\n  - a\n  - ''\n", "alexnet.yaml:3"),
        ("points:\n  - a\n  - b\n  - a\n", "alexnet.yaml:4"),
        ("points: [a\n", "alexnet.yaml:2"),
    ],
)
def test_a_fault_names_the_file_and_the_line(text, where, folder, snapshot):
    (folder / "partitions" / "alexnet.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        splits.chosen_points("alexnet", "")
    line = str(refused.value)
    assert f"{where}: " in line
    assert "\n" not in line
    assert line == snapshot
