"""Quantities as people write them: ``200ms``, ``2.5mbit``, ``1%``, ``64kib``. Elsewhere they are seconds, bit/s,
numbers from 0 to 1, and bytes.

Readers take what the quantity is called (`what`), for the ValueError that says what is wrong with it.
"""

from __future__ import annotations

import re

# Divided by, not multiplied with: 200 / 1000 is the float nearest to 0.2, 200 * 0.001 is not.
_PER_SECOND = {"us": 1_000_000, "ms": 1_000, "s": 1}
_LONG = {"s": 1, "min": 60, "h": 3600}
_BITS = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_BYTES = {
    "b": 1,
    "kb": 1_000,
    "kib": 1 << 10,
    "mb": 1_000_000,
    "mib": 1 << 20,
    "gb": 1_000_000_000,
    "gib": 1 << 30,
}
_PERCENT = {"%": 100}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z%]*)", re.IGNORECASE)


def delay_s(text: str, what: str = "delay") -> float:
    """Seconds of a time such as ``200ms``."""
    number, unit = _split(text, what, tuple(_PER_SECOND), "200ms")
    return number / _PER_SECOND[unit]


def duration_s(text: str, what: str = "duration") -> float:
    """Seconds of a waiting time such as ``20min``."""
    number, unit = _split(text, what, tuple(_LONG), "20min")
    return number * _LONG[unit]


def rate_bps(text: str, what: str = "rate") -> float:
    """Bits a second of a rate such as ``5mbit``."""
    number, unit = _split(text, what, tuple(_BITS), "5mbit")
    return number * _BITS[unit]


def share(text: str, what: str = "percentage") -> float:
    """The probability for a percentage such as ``0.1%``. A bare number is refused: 1 may mean 1 % or 100 %."""
    number, unit = _split(text, what, tuple(_PERCENT), "1%")
    return number / _PERCENT[unit]


def size_bytes(text: str, what: str = "limit") -> int:
    """Bytes of a size such as ``64kib``, to the nearest one."""
    number, unit = _split(text, what, tuple(_BYTES), "64kib")
    return round(min(number, 1e30) * _BYTES[unit])  # a number of 400 digits is infinite, which has no integer


def show_delay(seconds: float) -> str:
    """The delay to three digits in milliseconds: ``231 ms``, ``0.12 ms``."""
    return f"{seconds * 1e3:.3g} ms" if abs(seconds) < 1 else f"{seconds * 1e3:.0f} ms"


def show_rate(bits_per_second: float) -> str:
    """The rate to three digits: ``4.79 Mbit/s``, ``250 kbit/s``."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bits_per_second >= size:
            return f"{bits_per_second / size:.3g} {unit}"
    return f"{bits_per_second / 1e3:.3g} kbit/s"


def _split(text: str, what: str, units: tuple[str, ...], example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{what} {text!r} is not a number and a unit: write it like {example}")
    if match[2].lower() not in units:
        fault = f"has the unknown unit {match[2]!r}" if match[2] else "has no unit"
        raise ValueError(f"{what} {text!r} {fault}: use {', '.join(units)}, as in {example}")
    return float(match[1]), match[2].lower()
