"""What tests of this folder share: figures are printed past pytest's capture."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    def show(line: str) -> None:
        with capsys.disabled():
            print(line)

    return show
