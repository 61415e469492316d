"""What tests of figures share: each example run is found and drawn once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

    from tests.unit.analysis.figure_runs import Reported


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reported]:
    """Return the run of this name as a report finds and draws it."""
    from tests.unit.analysis.figure_runs import Reported  # not for tests that draw nothing

    @cache
    def made(name: str) -> Reported:
        return Reported.made(name, tmp_path_factory.mktemp(name.replace(" ", "-")))

    return made


@pytest.fixture
def slow(reported: Callable[[str], Reported]) -> pd.DataFrame:
    """The front of five codecs on a slow link."""
    return reported("codecs").found.front[lambda front: front["netem"] == "slow"]
