"""The look of figures as a user chooses it: formats, titles, font, style file."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from pareto.analysis import figures
from pareto.analysis.figures.drawing import save_all
from pareto.analysis.figures.heads import figure_head, head
from pareto.analysis.figures.look import Look, drawn_as
from pareto.analysis.figures.style import blank, check_look
from pareto.analysis.reporting import is_ours
from pareto.protocol.errors import UserError
from tests.unit import drawn
from tests.unit.analysis.test_figures import drawing


@pytest.mark.deep
def test_formats_are_written_by_every_process_the_same_bytes_each_time(tmp_path: Path) -> None:
    with drawn_as(Look(formats=("svg", "pdf"))):
        first, again = (save_all([drawing()] * 2, tmp_path / name, ("page",)) for name in "ab")
    stem = "front-my-net-200ms-5mbit"
    ends = (".svg", ".pdf", ".csv", ".txt")
    assert [path.name for path in first] == [f"{stem}{end}" for end in ends] * 2
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert first[0].read_bytes().startswith(b"<?xml")
    assert all(is_ours(f"figures/{path.name}") for path in first), "the next report removes them"


def test_without_titles_the_legend_and_the_axes_stay(tmp_path: Path) -> None:
    rows = figures.example()
    usual = drawn.rendered(figures.fronts(rows))
    with drawn_as(Look(titles=False)):
        bare = drawn.rendered(figures.fronts(rows))
    assert any(text.startswith("Fronts of") for text in _texts(usual))
    assert not any(text.startswith("Fronts of") for text in _texts(bare))
    assert drawn.legend(bare) == drawn.legend(usual)
    assert bare.get_figheight() < usual.get_figheight()
    assert abs(bare.axes[0].bbox.height - usual.axes[0].bbox.height) < 8
    assert drawn.outside(bare) == []
    assert drawn.overlapping(bare) == []


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


def test_a_style_file_and_a_font_change_the_look(tmp_path: Path) -> None:
    style = tmp_path / "own.mplstyle"
    style.write_text("axes.titlesize: 14\npdf.fonttype: 3\n")
    with drawn_as(Look.checked("pdf", "auto", "DejaVu Serif", style)), blank("page", 2) as figure:
        axes = figure.add_subplot()
        head(axes, "A title", [])
        figure_head(figure, "Another", [])
    assert axes._left_title.get_fontsize() == 14
    assert axes._left_title.get_fontfamily()[0] == "DejaVu Serif"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"formats": "pdf,gif"}, "--format pdf,gif: "),
        ({"formats": ""}, "--format"),
        ({"title": "no"}, "--title no: "),
        ({"font": "DejaVu Sams"}, "DejaVu Sans"),
        ({"style": "axes.linwidth: 2"}, "axes.linwidth"),
        ({"style": "axes.linewidth: wide"}, "wide"),
        ({"style": "text.usetex: True"}, "text.usetex"),
        ({"style": None}, "none.mplstyle"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, given: dict[str, str | None], words: str) -> None:
    path = tmp_path / "none.mplstyle"
    if given.get("style"):
        path.write_text(f"{given['style']}\n")
    with pytest.raises(UserError) as refused:
        check_look(
            Look.checked(
                str(given.get("formats", "pdf")),
                str(given.get("title", "auto")),
                str(given.get("font", "")),
                path if "style" in given else None,
            )
        )
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_style_is_a_file() -> None:
    with pytest.raises(UserError, match="not a file"):
        check_look(Look.checked("pdf", "auto", "", Path(os.devnull)))


def test_a_figure_saved_in_a_notebook_has_truetype_fonts() -> None:
    made = io.BytesIO()
    figures.front(figures.example(), width="column").savefig(made, format="pdf")
    assert b"/Type3" not in made.getvalue()
    assert b"/CIDFontType2" in made.getvalue() or b"/TrueType" in made.getvalue()
