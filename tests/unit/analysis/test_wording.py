"""Figures in words."""

from __future__ import annotations

import numpy as np
import pytest

from pareto.analysis.wording import interval, more, place
from pareto.remote.link.units import duration, percent, rate


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (duration(0.0412), "41.2 ms"),
        (duration(0.041), "41 ms"),
        (duration(1.234), "1.23 s"),
        (duration(0.99996), "1000 ms"),
        (duration(0.00005), "50 µs"),
        (rate(23.4e6), "23 Mbit/s"),
        (rate(1e9), "1 Gbit/s"),
        (rate(1.25e9), "1.2 Gbit/s"),
        (rate(450e3), "450 kbit/s"),
        (rate(137e6), "137 Mbit/s"),
        (rate(np.inf), "no limit"),
        (percent(0.123), "12 %"),
        (percent(0.0), "0 %"),
        (percent(0.0042), "0.42 %"),
        (more(0.5, "longer", "as long"), "50 % longer"),
        (more(2.3, "longer", "as long"), "3.3 times as long"),
        (interval(20e6, 27e6, rate), " (95 %: 20 to 27 Mbit/s)"),
        (interval(500e6, 1.2e9, rate), " (95 %: 500 Mbit/s to 1.2 Gbit/s)"),
        (interval(np.nan, np.nan, rate), ""),
        (place({"payload_bytes": 5, "point": "7", "point_name": "", "backend": "tcp"}), "7 over tcp"),
        (
            place({"payload_bytes": 5, "point": "7", "point_name": "f.6", "backend": "tcp"}),
            "7 (f.6) over tcp",
        ),
        (
            place({"payload_bytes": 5, "point": "0+0", "point_name": "", "backend": "none"}),
            "all on the server",
        ),
    ],
)
def test_wording(said, expected):
    assert said == expected
