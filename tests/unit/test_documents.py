"""The pages: what they name is there."""

from __future__ import annotations

import ast
import itertools
import json
import re
import runpy
import shlex
import sys
import tempfile
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from pareto.__main__ import SWEEP
from pareto.commands.app import commands
from tests import REPOSITORY
from tests.unit import example_run
from tests.unit.analysis.test_forecast import profile
from tests.unit.gating import gating

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
def test_commands_parse_as_they_stand(page: Path) -> None:
    for line in re.findall(r"^ *(?:\S+=\S+ )*\./pareto\.sh (.*)$", page.read_text(), re.MULTILINE):
        words = shlex.split(line, comments=True)
        words = list(itertools.takewhile(lambda word: word not in ("|", ">", "&&", "..."), words))
        if words[0] == "test":
            continue
        command = commands()
        words = ["run", *words] if words[0].startswith("-") else words
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        try:
            command.make_context(command.name, words)
        except typer.Exit as done:  # of --help
            assert done.exit_code == 0, line
        except Exception as error:
            pytest.fail(f"{line}: {error}")


def python_examples(page: Path) -> list[str]:
    """The blocks of a page, indented or fenced, that begin with an import; so one that begins otherwise is a part."""
    text = page.read_text()
    blocks = re.findall(r"(?:^|\n\n)((?: {4}.*\n|\n(?= {4}))+)", text)
    blocks += re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = []
    for block in map(textwrap.dedent, blocks):
        try:
            first = ast.parse(block).body[:1]
        except SyntaxError:
            continue
        if first and isinstance(first[0], ast.Import | ast.ImportFrom):
            examples.append(block)
    return examples


@pytest.fixture
def at_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example run, and a model profile whose name a page leaves open."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "example").symlink_to(REPOSITORY / "results" / "example")
    (tmp_path / "results" / "profiles" / "<profile>").mkdir(parents=True)
    profile(3).write(tmp_path / "results" / "profiles" / "<profile>")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


WITH_EXAMPLES = {str(page.relative_to(REPOSITORY)): page for page in PAGES if python_examples(page)}


@pytest.mark.parametrize(
    "name",
    gating(
        WITH_EXAMPLES, *(WITH_EXAMPLES.keys() - {"docs/analysis.md", "docs/figures.md", "docs/simulated.md"})
    ),
)
def test_python_examples_run_as_they_stand(name: str, at_a_clone: Path) -> None:
    namespace: dict[str, object] = {}
    for example in python_examples(WITH_EXAMPLES[name]):
        exec(compile(example, name, "exec"), namespace)  # noqa: S102


@pytest.mark.deep
def test_the_notebook_runs_from_a_run_to_a_figure_and_a_table(at_a_clone: Path) -> None:
    notebook = json.loads((REPOSITORY / "docs" / "tutorial.ipynb").read_text())
    namespace: dict[str, object] = {}
    shown = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            assert all((REPOSITORY / "docs" / link).exists() for link in re.findall(r"\]\(([\w.-]+)", source))
            continue
        assert cell["outputs"] == [], "results are made, not kept"
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "tutorial", "exec"), namespace)  # noqa: S102
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "tutorial", "eval"), namespace))  # noqa: S307
    assert sum(hasattr(value, "_repr_html_") for value in shown) >= 4
    written = {path.name: path for path in (at_a_clone / "paper").iterdir()}
    assert written["front.pdf"].read_bytes().startswith(b"%PDF")
    assert r"\begin{table}" in written["front.tex"].read_text()
    assert written["methods.txt"].read_text().startswith("We measured mobilenet_v2")


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
    made = {"gallery.md", "api.md"}
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


def test_the_pictures_of_the_pages_are_drawn_anew(tmp_path: Path) -> None:
    site = runpy.run_path(str(REPOSITORY / "docs" / "site.py"))
    run = example_run.write(tmp_path / "run", example_run.trials(rounds=1)[::8])
    names = ["attribution-mobilenetv2-200ms-5mbit.png", "front-another-run.png"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in site["redraw"](tmp_path, [run])] == names[:1]
    assert [bool((tmp_path / name).stat().st_size) for name in names] == [True, False]


def test_the_front_page_is_short() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 110


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
    extra = " ".join([*extras["sweep"], *extras["onnx"], *extras["fleet"]]).lower()
    packages = {"yaml": "pyyaml", "PIL": "pillow", "pynvml": "nvidia-ml-py", "fontTools": "matplotlib"}
    packages |= {"onnx_ir": "onnxscript", "dask": "distributed"}
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
