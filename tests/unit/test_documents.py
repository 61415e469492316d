"""The pages: what they name is there."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from pareto.__main__ import SWEEP
from pareto.cli import app
from tests import REPOSITORY

PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), REPOSITORY / "results" / "README.md"]
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_examples_import_what_there_is(page: Path) -> None:
    for line in re.findall(
        r"^ +((?:from|import) (?:pareto|analysis|partitions)\b.*)$", page.read_text(), re.MULTILINE
    ):
        (statement,) = ast.parse(line).body
        namespace: dict[str, object] = {}
        exec(compile(ast.Module([statement], []), str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_named_files_exist(page: Path) -> None:
    names = re.findall(
        r"`((?:pareto|analysis|partitions|tests|netem_profiles|sweeps)/[\w./-]*)`", page.read_text()
    )
    made = {"partitions/alexnet.yaml"}  # an example of what a user may add
    assert [name for name in names if not (REPOSITORY / name).exists() and name not in made] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_have_the_options_that_pages_show(page: Path) -> None:
    for line in re.findall(r"^ *(?:\S+=\S+ )*\./pareto\.sh (.*)$", page.read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        if words[0] == "test":
            continue
        command: Any = typer.main.get_command(app)
        words = ["run", *words] if words[0].startswith("-") else words
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known | {"--help"}, line


def test_the_layout_names_modules_that_exist() -> None:
    for folder, text in re.findall(r"^\| `(\w[\w/]*/)` \| (.*) \|$", guide(), re.MULTILINE):
        for name in re.findall(r"`(\w+)/?`", text):
            assert [*(REPOSITORY / folder).rglob(f"{name}.py"), *(REPOSITORY / folder).rglob(f"{name}/")], (
                name
            )


def test_the_guide_has_room_for_every_package() -> None:
    packages = [
        path for name in ("pareto", "analysis") for path in (REPOSITORY / name).iterdir() if path.is_dir()
    ]
    missing = [
        path.name for path in packages if (path / "__init__.py").exists() and f"{path.name}/" not in guide()
    ]
    assert missing == []


def test_the_site_has_the_pages_that_it_names() -> None:
    """Its navigation names pages that are there, and those that `docs/site.py` makes; without the generator."""
    named = set(re.findall(r"[\w/.-]+\.md", (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    made = {"gallery.md", "api.md", "citing.md"}
    copied = {
        str(page.relative_to(REPOSITORY)) for page in [*PAGES, REPOSITORY / "results/example/README.md"]
    }
    assert named - made <= copied


def test_links_to_what_the_site_lacks_are_words(tmp_path: Path) -> None:
    site = runpy.run_path(str(REPOSITORY / "docs" / "site.py"))
    (tmp_path / "there.md").touch()
    text = "[a](there.md#part) [b](gone.py) [c](https://example.org/x)"
    assert (
        site["for_the_site"](text, tmp_path / "page.md") == "[a](there.md#part) b [c](https://example.org/x)"
    )
    assert "\n## load\n" in site["api"]()
    assert [site["kind_of"](name) for name in ("front-a-b", "fronts-a", "paired-codecs-a")] == [
        *("front", "fronts", "paired-codecs"),
    ]


def test_the_front_page_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 90


def test_what_an_extra_provides_is_what_a_missing_module_names() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    requirement = pytest.importorskip("packaging.requirements").Requirement
    extra = [requirement(line) for line in project["optional-dependencies"]["sweep"]]
    assert {each.name for each in extra} == set(SWEEP.values())
    text = (REPOSITORY / "requirements.txt").read_text() + (
        REPOSITORY / "requirements-worker.txt"
    ).read_text()
    pinned = [requirement(line) for line in re.findall(r"^[\w-]+==.*$", text, re.MULTILINE)]
    for each in [*extra, *map(requirement, project["dependencies"])]:
        versions = [str(pin.specifier).removeprefix("==") for pin in pinned if pin.name == each.name]
        assert versions, each
        assert all(each.specifier.contains(version) for version in versions), each
    assert all(find_spec(module) for module in SWEEP)


def test_every_import_is_declared() -> None:
    """The analysis by the base alone, everything else with the extra; in brackets what comes with another package."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    base = " ".join(project["dependencies"]).lower()
    extras = project["optional-dependencies"]
    extra = " ".join([*extras["sweep"], *extras["onnx"]]).lower()
    packages = {"yaml": "pyyaml", "PIL": "pillow", "pynvml": "nvidia-ml-py", "fontTools": "matplotlib"}
    packages |= {"onnx_ir": "onnxscript"}
    packages |= {
        "pydantic_core": "pydantic",
        "markupsafe": "jinja2",
        "ultralytics": "",
        "cv2": "",
    }
    for folder, declared in {"analysis": base, "pareto": base + extra, "partitions": base + extra}.items():
        for file in (REPOSITORY / folder).rglob("*.py"):
            for module in third_party(ast.parse(file.read_text())):
                assert packages.get(module, module).lower() in declared, f"{file}: {module}"


def third_party(tree: ast.Module) -> set[str]:
    """The packages outside of the standard library and of this project that a module imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"pareto", "analysis", "partitions"}


def guide() -> str:
    return (REPOSITORY / "CONTRIBUTING.md").read_text()
