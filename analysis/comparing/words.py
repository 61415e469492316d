"""How differences are written in sentences."""

from __future__ import annotations


def ms(seconds: float, sign: str = "-") -> str:
    """Two digits behind the point, three where they would hide what is there."""
    value = 1e3 * seconds
    return f"{value:{sign}.2f}" if abs(value) >= 0.1 or not value else f"{value:{sign}.3f}"


def percent(value: float, sign: str = "-") -> str:
    """Two digits, or all those before the point."""
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2g}"
