"""Collects the site's pages for MkDocs: `./pareto.sh site` runs it, with the folder that they go to.

The pages lie as in the repository, so that their links lead where they lead there. Two are made: a gallery of the
figures that `report` draws of results/example, and the Python API from its docstrings.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import analysis
from analysis.figures.shown import KINDS

REPOSITORY = Path(__file__).resolve().parent.parent
COPIED = (
    "*.md",
    "LICENSE",
    "docs/*.md",
    "docs/figures/*.png",
    "results/README.md",
    "results/example/README.md",
)
EXAMPLE = "results/example"
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
    made = {"gallery.md": gallery(pages), "api.md": api()}
    for name, text in made.items():
        (pages / name).write_text(text)


def for_the_site(text: str, page: Path) -> str:
    """Return a page whose links to what is not on the site are their words alone."""

    def kept(link: re.Match[str]) -> str:
        target = link[2]
        if target.startswith("http") or (page.parent / target).is_file():
            return link[0]
        return link[1]

    return LINK.sub(kept, text)


def gallery(pages: Path) -> str:
    """Draw the figures of the example into the pages; return the page that shows one of each kind with its caption."""
    report = pages / "gallery"
    command = [sys.executable, "-m", "pareto", "report", EXAMPLE, "--figures", "all", "--out", str(report)]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    pictures = sorted((report / "figures").glob("*.png"))
    shown, lacking = [], []
    for kind in KINDS:
        of_kind = [path for path in pictures if kind_of(path.stem) == kind]
        if not of_kind:
            lacking.append(kind)
            continue
        caption = of_kind[0].with_suffix(".txt").read_text().strip()
        shown.append(f"## {kind}\n\n![{kind}](gallery/figures/{of_kind[0].name})\n\n{caption}\n")
    for path in (*report.glob("*.*"), *(report / "figures").iterdir()):
        if path not in pictures:
            path.unlink()
    return (
        "# Gallery\n\n"
        f"What `./pareto.sh report {EXAMPLE} --figures all` draws, with the captions that it writes: one figure of "
        f"each kind. [How to read them](docs/figures.md).\n\n{''.join(shown)}\n"
        f"The example has nothing to show in `{'`, `'.join(lacking)}`: these need several codecs or engines, three "
        "hosts, a model profile, or devices that measure their energy.\n"
    )


def kind_of(stem: str) -> str:
    """Return the kind of figure that a file's name begins with: of two that fit, the longer one."""
    return max((kind for kind in KINDS if f"{stem}-".startswith(f"{kind}-")), key=len, default="")


def api() -> str:
    """Return the page of the package `analysis`: what its docstrings say."""
    parts = ["# Python API\n", inspect.getdoc(analysis) or ""]
    for name in analysis.__all__:
        found = getattr(analysis, name)
        signature = str(inspect.signature(found)).replace("'", "") if callable(found) else ""
        parts.append(f"\n## {name}\n\n```python\n{name}{signature}\n```\n\n{as_markdown(found)}\n")
    text = "\n".join(parts)
    return re.sub(r"(?m)^(?: {4}>>> .*\n(?: {4}.*\n)*)", lambda code: f"\n{code[0]}\n", text)


def as_markdown(documented: object) -> str:
    """Return a docstring whose lists begin after an empty line, as Markdown has it."""
    return re.sub(r"(?m)(?<=[^\n])\n(?=- )", "\n\n", inspect.getdoc(documented) or "")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
