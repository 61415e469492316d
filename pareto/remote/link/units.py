"""Quantities as people write them, read and written: ``200ms``, ``2.5mbit``, ``1%``, ``64kib``. Elsewhere they are
seconds, bit/s, numbers from 0 to 1, and bytes. Readers take what the quantity is called (`what`), for UserErrors.
"""

from __future__ import annotations

import math
import re

from pareto.protocol.errors import UserError

# Divided by, not multiplied with: 200 / 1000 is the float nearest to 0.2, 200 * 0.001 is not.
_PER_SECOND = {"us": 1_000_000, "ms": 1_000, "s": 1}
_LONG = {"s": 1, "min": 60, "h": 3600}
_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_BYTES = {"b": 1, "kb": 10**3, "kib": 1 << 10, "mb": 10**6, "mib": 1 << 20, "gb": 10**9, "gib": 1 << 30}
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


def duration(seconds: float) -> str:
    """`1.23 s`, `41 ms`, `0.3 ms`, `25 µs`: three digits."""
    if abs(seconds) >= 1:
        return f"{digits_of(seconds, 3)} s"
    if abs(seconds) >= 1e-4 or not seconds:
        return f"{digits_of(seconds * 1e3, 3)} ms"
    return f"{digits_of(seconds * 1e6, 3)} µs"


def minutes(seconds: float) -> str:
    """A duration in words: `45 s`, `12 min 30 s`, `3 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rate(bps: float, digits: int = 2) -> str:
    """`23 Mbit/s`, `1.2 Gbit/s`."""
    if bps == math.inf:
        return "no limit"
    for scale, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if float(digits_of(bps / scale, digits)) >= 1:
            return f"{digits_of(bps / scale, digits)} {unit}"
    return f"{digits_of(bps / 1e3, digits)} kbit/s"


def percent(share: float) -> str:
    """`12 %`, `0.4 %`: two digits."""
    return f"{digits_of(share * 100, 2)} %"


def nbytes(count: float) -> str:
    """`288 bytes`, `98 kB`, `1.6 MB`: three digits."""
    if count < 1e3:
        return f"{count:.0f} bytes"
    for scale, unit in ((1e9, "GB"), (1e6, "MB")):
        if count >= scale:
            return f"{digits_of(count / scale, 3)} {unit}"
    return f"{digits_of(count / 1e3, 3)} kB"


def digits_of(value: float, digits: int) -> str:
    """The value with that many significant digits, without zeros at the end: 0.0412 as 0.041, 5.04 as 5."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    decimals = max(0, digits - 1 - exponent)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def _split(text: str, what: str, units: tuple[str, ...], example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UserError(f"{what} {text!r} is not a number and a unit: write it like {example}")
    if match[2].lower() not in units:
        fault = f"has the unknown unit {match[2]!r}" if match[2] else "has no unit"
        raise UserError(f"{what} {text!r} {fault}: use {', '.join(units)}, as in {example}")
    return float(match[1]), match[2].lower()
