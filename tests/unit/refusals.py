"""What is said where something is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refusal(of: type[Exception], call: Callable[..., object], *given: Any, **named: Any) -> str:
    """In one line."""
    with pytest.raises(of) as refused:
        call(*given, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)
