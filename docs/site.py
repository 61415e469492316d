"""Collects the site's pages for MkDocs: `./pareto.sh site` runs it, with the folder that they go to. With `--pictures
RUN...` it draws the pictures of docs/figures anew.

The pages lie as in the repository, so that their links lead where they lead there. Three are made: a gallery of the
figures that `report` draws, the options, and the Python API from its docstrings.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pareto
from pareto import analysis
from pareto import api as api_module
from pareto.analysis.figures.drawing import Nothing, save
from pareto.analysis.figures.look import Look, drawn_as
from pareto.analysis.figures.shown import KINDS, drawings
from pareto.analysis.findings import Options, find
from pareto.sweep.options import GROUPS, OPTIONS
from tests.unit import example_codecs, example_engines, example_run

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = (
    "*.md",
    "LICENSE",
    "docs/**/*.md",
    "docs/figures/*.png",
    "docs/site.css",
    "results/README.md",
    "results/example/README.md",
)
EXAMPLE = "results/example"
SIMULATED = (
    "--netem wifi --codec none,fp16,int8 --points 0,4,9,15,21",
    "--netem wifi+lte --hosts 3 --points 0,3,7,12,17,21",
    "--netem wifi --load poisson:4/s,poisson:10/s,poisson:16/s --points 0,15,21",
)
"""What is simulated for the kinds of figures that the example has nothing for."""
MOST_COLUMNS = 76
"""Characters of code that a line of the site has room for, beside the button that copies."""
COMMANDS = re.compile(r"(?m)^ {4}(?:\./pareto\.sh|sudo) .*\n(?: {4}.*\n)*")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def main(pages: Path) -> None:
    """Write the pages into a folder, which is made anew."""
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in COPIED:
        for path in REPOSITORY.glob(pattern):
            there = pages / path.relative_to(REPOSITORY)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there)
    for page in pages.rglob("*.md"):
        page.write_text(for_the_site(page.read_text(), page))
    made = {"gallery.md": gallery(pages), "api.md": api(), "options.md": options()}
    for name, text in made.items():
        (pages / name).write_text(text)


def for_the_site(text: str, page: Path) -> str:
    """Return a page whose links to what is not on the site are their words alone, and whose commands are told from
    other code: long ones are wrapped (docs/site.css), a table is not."""

    def kept(link: re.Match[str]) -> str:
        target = link[2]
        if target.startswith("http") or (page.parent / target).is_file():
            return link[0]
        return link[1]

    fenced = COMMANDS.sub(lambda code: f"```sh\n{textwrap.dedent(code[0])}```\n", text)
    return LINK.sub(kept, fenced)


def gallery(pages: Path) -> str:
    """Draw a figure of each kind into the pages; return the page that shows them with their captions."""
    shown: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for run, words in runs(Path(scratch)):
            for drawing in drawings(find([run], Options()), each=True):
                if drawing.kind not in shown:
                    with drawn_as(Look(formats=("png",))), suppress(Nothing):
                        picture, data, caption = save(drawing, pages / "gallery")
                        image = f"![{drawing.kind}](gallery/{picture.name})"
                        text = f"{image}\n\n{caption.read_text()}\n{words}\n"
                        shown[drawing.kind] = f"## {drawing.kind}\n\n{text}"
                        data.unlink()
                        caption.unlink()
    if lacking := [kind for kind in KINDS if kind not in shown]:
        raise SystemExit(f"docs/site.py: no run of the gallery has {', '.join(lacking)}")
    return (
        "# Gallery\n\nA figure of each kind that `./pareto.sh report` draws, with the caption that it writes. "
        f"[How to read them](docs/figures.md).\n\n{''.join(shown[kind] + chr(10) for kind in KINDS)}"
    )


def runs(scratch: Path) -> Iterator[tuple[Path, str]]:
    """Yield folders of results, and what each is in Markdown: measured first, then simulated, then made up."""
    yield REPOSITORY / EXAMPLE, f"Of the [example run]({EXAMPLE}/README.md)."
    for number, options in enumerate(SIMULATED):
        out = scratch / str(number)
        sweep = ["--model", "mobilenetv2", "--testbed", "simulated", *options.split()]
        command = [sys.executable, "-m", "pareto", "run", *sweep, "--figures", "none", "--out", str(out)]
        subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        (run,) = out.iterdir()
        yield run, f"[Simulated](docs/simulated.md): `./pareto.sh {' '.join(sweep)}`"
    frames = {"codecs": example_codecs.trials(), "engines": example_engines.trials()}
    made_up = {"energy": example_run.with_energy(example_run.trials())}
    for name, frame in frames.items():
        made_up[name] = frame.drop(columns="setup").astype(object).fillna("").to_dict("records")
    for name, rows in made_up.items():
        run = example_run.write(scratch / name, rows, testbed="none: made-up numbers")
        yield run, "Of made-up numbers, to show what it looks like."


def redraw(pictures: Path, runs: Sequence[Path]) -> list[Path]:
    """Draw those pictures of a folder anew that a report of these runs draws; return them."""
    drawn = []
    with drawn_as(Look(formats=("png",))), tempfile.TemporaryDirectory() as scratch:
        for drawing in drawings(find(list(runs), Options()), each=True):
            if (there := pictures / f"{drawing.stem()}.png").is_file():
                with suppress(Nothing):
                    picture, *_ = save(drawing, Path(scratch))
                    drawn.append(Path(shutil.copyfile(picture, there)))
    return drawn


def api() -> str:
    """Return the page of what Python calls: `pareto` first, then `pareto.analysis` below it, by their docstrings."""
    parts = ["# Python API\n"]
    for package, about, names in (
        (pareto, api_module, pareto.__all__),
        (analysis, analysis, analysis.__all__),
    ):
        parts += [f"\n# {package.__name__}\n", as_markdown(about)]
        for name in names:
            found = getattr(package, name)
            parts.append(f"\n## {name}\n\n{_documented(name, found)}\n")
            own = vars(found) if inspect.isclass(found) and package is pareto else {}
            members = [(each, value) for each, value in own.items() if each[0] != "_"]
            for member, value in members:
                parts.append(f"\n### {name}.{member}\n\n{_documented(member, value)}\n")
    text = "\n".join(parts)
    return re.sub(r"(?m)^(?: {4}>>> .*\n(?: {4}.*\n)*)", lambda code: f"\n{code[0]}\n", text)


def _documented(name: str, found: object) -> str:
    """Return the signature of something that is called, and what its docstring says."""
    is_called = callable(found) and found is not pareto.UserError
    if not is_called:
        return as_markdown(found)
    signature = inspect.signature(found)  # type: ignore[arg-type]
    text = f"{name}{signature}"
    if len(text) > MOST_COLUMNS:
        each = "".join(f"    {parameter},\n" for parameter in signature.parameters.values())
        text = f"{name}(\n{each}){str(signature).rpartition(')')[2]}"
    code = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return f"```python\n{code}\n```\n\n{as_markdown(found)}"


def options() -> str:
    """Return the page of the options of a sweep: each once, as `--help-all` has it."""
    parts = ["# Options\n\nThe options of a sweep, and the keys of a sweep file (`model: [resnet18]`).\n"]
    for group in GROUPS:
        own = [option for option in OPTIONS.values() if option.group == group]
        rows = [
            f"| `{', '.join(each.names)}` | {each.described.replace('|', chr(92) + '|')} |" for each in own
        ]
        if rows:
            parts += [f"\n## {group}\n", "| option | meaning  [default] |\n|---|---|", *rows, ""]
    return "\n".join(parts)


def as_markdown(documented: object) -> str:
    """Return a docstring whose lists begin after an empty line, as Markdown has it."""
    return re.sub(r"(?m)(?<=[^\n])\n(?=- )", "\n\n", inspect.getdoc(documented) or "")


if __name__ == "__main__":
    if sys.argv[1] == "--pictures":
        for path in redraw(
            REPOSITORY / "docs" / "figures", [Path(run) for run in sys.argv[2:] or (EXAMPLE,)]
        ):
            print(path)
    else:
        main(Path(sys.argv[1]).resolve())
