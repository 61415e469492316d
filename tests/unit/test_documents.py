"""The pages, and the files that a container is made by: what they name is there."""

from __future__ import annotations

import ast
import itertools
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from pareto.__main__ import SWEEP
from pareto.commands.app import commands
from pareto.hosts.local.rights import CAPABILITIES
from tests import REPOSITORY
from tests.unit import example_run
from tests.unit.analysis.test_forecast import profile
from tests.unit.gating import gating

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), REPOSITORY / "results/README.md"])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


of_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@of_pages
def test_links_lead_somewhere_and_named_files_and_imported_names_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
    for line in re.findall(r"^ +((?:from|import) (?:pareto|analysis|partitions)\b.*)$", text, re.MULTILINE):
        (statement,) = ast.parse(line).body
        exec(compile(ast.Module([statement], []), str(page), "exec"), {})  # noqa: S102
    names = re.findall(r"`((?:pareto|analysis|partitions|tests|netem_profiles|sweeps)/[\w./-]*)`", text)
    made = {"partitions/alexnet.yaml"}  # an example of what a user may add
    assert [name for name in names if not (REPOSITORY / name).exists() and name not in made] == []


@of_pages
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
LONG = {"docs/analysis.md", "docs/figures.md", "docs/simulated.md"}


@pytest.mark.parametrize("name", gating(WITH_EXAMPLES, *(WITH_EXAMPLES.keys() - LONG)))
def test_python_examples_run_as_they_stand(name: str, at_a_clone: Path) -> None:
    namespace: dict[str, object] = {}
    for example in python_examples(WITH_EXAMPLES[name]):
        exec(compile(example, name, "exec"), namespace)  # noqa: S102


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
    shows = ("_repr_html_", "_repr_markdown_")
    assert sum(any(hasattr(value, name) for name in shows) for value in shown) >= 4
    written = {path.name: path for path in (at_a_clone / "paper").iterdir()}
    assert written["front.pdf"].read_bytes().startswith(b"%PDF")
    tables = [*(written["report"] / "figures").glob("*.tex")]
    assert all(r"\begin{table}" in table.read_text() for table in tables)
    assert len(tables) >= 3
    assert written["methods.txt"].read_text().startswith("We measured mobilenet_v2")


def test_the_guide_names_what_exists_and_has_room_for_every_package() -> None:
    guide = (REPOSITORY / "CONTRIBUTING.md").read_text()
    for folder, text in re.findall(r"^\| `(\w[\w/]*/)` \| (.*) \|$", guide, re.MULTILINE):
        of = REPOSITORY / folder
        for name in re.findall(r"`(\w+)/?`", text):
            assert [*of.rglob(f"{name}.py"), *of.rglob(f"{name}/")], name
    rooms = [it.parent for top in ("pareto", "analysis") for it in (REPOSITORY / top).glob("*/__init__.py")]
    assert [path.name for path in rooms if f"{path.name}/" not in guide] == []
    assert len((REPOSITORY / "README.md").read_text().splitlines()) <= 110, "the front page is short"


def test_the_site_has_the_pages_that_it_names_and_links_to_what_it_lacks_are_words(tmp_path: Path) -> None:
    """Its navigation names pages that are there, and those that `docs/site.py` makes; without the generator."""
    named = set(re.findall(r"[\w/.-]+\.md", (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    copied = [*PAGES, REPOSITORY / "results/example/README.md"]
    assert named - {"gallery.md", "api.md", "options.md"} <= {
        str(page.relative_to(REPOSITORY)) for page in copied
    }
    site = runpy.run_path(str(REPOSITORY / "docs" / "site.py"))
    (tmp_path / "there.md").touch()
    text = "[a](there.md#part) [b](gone.py) [c](https://example.org/x)"
    text = site["for_the_site"](text, tmp_path / "page.md")
    assert text == "[a](there.md#part) b [c](https://example.org/x)"
    made = site["api"]()
    assert made.index("\n### Run.front\n") < made.index("\n## hypervolumes\n")
    assert "| `--netem" in site["options"]()


def test_the_pictures_of_the_pages_are_drawn_anew(tmp_path: Path) -> None:
    site = runpy.run_path(str(REPOSITORY / "docs" / "site.py"))
    run = example_run.write(tmp_path / "run", example_run.trials(rounds=1)[::8])
    names = ["attribution-mobilenetv2-200ms-5mbit.png", "front-another-run.png"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in site["redraw"](tmp_path, [run])] == names[:1]
    assert [bool((tmp_path / name).stat().st_size) for name in names] == [True, False]


def test_what_an_extra_provides_is_what_a_missing_module_names() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    requirement = pytest.importorskip("packaging.requirements").Requirement
    extra = [requirement(line) for line in project["optional-dependencies"]["sweep"]]
    assert {each.name for each in extra} == set(SWEEP.values())
    files = "requirements.txt", "requirements-worker.txt"
    text = "".join((REPOSITORY / name).read_text() for name in files)
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
    extra = " ".join(itertools.chain(*extras.values())).lower()
    packages = {"yaml": "pyyaml", "PIL": "pillow", "pynvml": "nvidia-ml-py", "fontTools": "matplotlib"}
    packages |= {"onnx_ir": "onnxscript", "dask": "distributed", "pydantic_core": "pydantic"}
    packages |= {"markupsafe": "jinja2", "ultralytics": "", "cv2": "", "zmq": "pyzmq"}
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


# The files that a container is made by

DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
DEVCONTAINER = json.loads((REPOSITORY / ".devcontainer/devcontainer.json").read_text())


def test_both_containers_are_what_the_testbed_needs() -> None:
    assert DEVCONTAINER["capAdd"] == list(CAPABILITIES)
    assert re.findall(r"--cap-add (\w+)", DOCKERFILE) == list(CAPABILITIES)
    built = DEVCONTAINER["build"]
    assert (REPOSITORY / ".devcontainer" / built["dockerfile"]).resolve() == REPOSITORY / "Dockerfile"
    assert built["target"] in re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    (version,) = re.findall(r"^FROM python:(\d+\.\d+)-", DOCKERFILE, flags=re.MULTILINE)
    assert tuple(map(int, version.split("."))) >= (3, 10)


def test_what_the_image_runs_is_there() -> None:
    """Nothing of the main job is left to be installed when it is started, perhaps without a network."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line]
    assert {name for name, *_ in lines} == {"FROM", "RUN", "WORKDIR", "COPY", "ENTRYPOINT", "CMD"}
    told = {name: rest for name, _, rest in lines}
    commands = json.loads(told["ENTRYPOINT"])[0], told["RUN"].split()[1]
    for command in (*commands, DEVCONTAINER["postCreateCommand"].split()[0]):
        assert (REPOSITORY / command).stat().st_mode & 0o100, command
    installed = next(rest for name, _, rest in lines if name == "RUN").split()
    assert {"openssh-server", "openssh-client", "util-linux", "mount"} <= set(installed)


LEFT = ("lab.yaml", "lab/member-key.pem", "member-key.pem", "net.pth", "units.json", "members.sh")
"""What commands of the documents put into a clone."""


def test_git_ignores_what_commands_put_into_a_clone_and_an_image_has_none_of_it(tmp_path: Path) -> None:
    """By the file alone, in a clone of its own; and nothing that is kept is ignored."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    shutil.copy(REPOSITORY / ".gitignore", tmp_path)
    kept = ("mkdocs.yml", "sweeps/paper.yaml", "netem_profiles/lte.yaml", "docs/images/one.png", "README.md")
    argv = ["git", "check-ignore", *LEFT, *kept]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == list(LEFT)
    patterns = (REPOSITORY / ".dockerignore").read_text().split()
    for name in LEFT:
        ignored = (fnmatch(name, each) or fnmatch(f"/{name}", each.removeprefix("**")) for each in patterns)
        assert any(ignored), name
