"""Points and chains that somebody wrote down."""

import re

import pytest

from pareto import handmade
from pareto.spec import SpecError
from partitions.recipe import Handmade


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(handmade, "FOLDER", tmp_path / "partitions")
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
    assert handmade.find("alexnet", None) == expected
    assert handmade.find("resnet18", None) is None


def test_for_a_users_model_it_lies_beside_the_file_and_has_the_models_name(folder):
    (folder / "partitions" / "net.build.yaml").write_text("points: [wrong]")
    (folder / "net.build.yaml").write_text("points: [right]")
    assert handmade.find("net.build", folder / "net.py") == Handmade(points=("right",))
    assert handmade.find("net.other", folder / "net.py") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "alexnet.yaml: is empty; write either 'points: "),
        ("points: [a]\nchain: [b]\n", "alexnet.yaml:1: it has points and chain; write either"),
        ("{}\n", "alexnet.yaml:1: it has neither; write either"),
        ("\npoint: [a]\n", "alexnet.yaml:2: unknown key 'point' (did you mean points?)"),
        ("- a\n", "alexnet.yaml:1: a points file must be a mapping"),
        ("points: features.3\n", "alexnet.yaml:1: points is a list of names"),
        ("chain: []\n", "alexnet.yaml:1: chain is a list of names"),
        ("points:\n  - a\n  - {b: c}\n", "alexnet.yaml:3: points is a list of names"),
        ("points:\n  - a\n  - ''\n", "alexnet.yaml:3: a name in points is empty"),
        ("points:\n  - a\n  - b\n  - a\n", "alexnet.yaml:4: point 'a' stands here twice"),
        ("points: [a\n", "alexnet.yaml:2: not YAML"),
    ],
)
def test_a_fault_names_the_file_and_the_line(text, says, folder):
    (folder / "partitions" / "alexnet.yaml").write_text(text)
    with pytest.raises(SpecError, match=re.escape(says)) as info:
        handmade.find("alexnet", None)
    assert "\n" not in str(info.value)
