"""What codecs did in a trial: by request, by host, and of all of them."""

from __future__ import annotations

import pytest

from pareto.protocol.trial_messages import Coded
from pareto.trial.codec_work import CodecWork, too_many_bytes

WORK = CodecWork(
    {
        "edge": Coded([0.0] * 5, [0.002, 0.004, 0.003, 0.001, 0.001], [100, 300, 200, 90, 110]),
        "middle1": Coded([0.001] * 5, [0.0, 0.001, 0.002, 0.0, 0.0], [50, 50, 50, 70, 70]),
        "server": Coded([0.001, 0.001, 0.004, 0.001, 0.001], [0.0] * 5, [0] * 5),
    },
    first=3,
)
NONE = CodecWork({}, first=3)


def test_times_are_of_all_hosts_together_request_by_request() -> None:
    assert WORK.times_s("encode_s") == pytest.approx([0.002, 0.005, 0.005, 0.001, 0.001])
    assert WORK.trial_columns() == {"encode_s": pytest.approx(0.005), "decode_s": pytest.approx(0.002)}
    assert WORK.alone([1.0, 1.0, 1.0]) == pytest.approx([0.996, 0.993, 0.99])
    # A bound has the least of both phases, each of which has its own requests.
    assert WORK.least_s == pytest.approx({"edge": 0.001, "middle1": 0.001, "server": 0.001})
    bytes_of = {role: (WORK.wire_bytes(role), WORK.least_wire_bytes(role)) for role in ("edge", "middle1")}
    assert bytes_of == {"edge": (200, 100), "middle1": (50, 50)}
    first, later = WORK.request_columns("edge", slice(3)), WORK.request_columns("edge", slice(3, None))
    assert (first["wire_bytes"], later["wire_bytes"]) == ([100, 300, 200], [90, 110])
    assert later["decode_s"] == pytest.approx([0.002, 0.002])
    sending = {"encode_s": 0.001, "decode_s": 0.001, "wire_bytes": 50}
    assert WORK.stage_columns("middle1", sends=True) == sending
    assert WORK.stage_columns("server", sends=False)["wire_bytes"] is None


def test_without_a_codec_nothing_is_said() -> None:
    assert NONE.trial_columns() == {"encode_s": None, "decode_s": None}
    assert NONE.request_columns("edge", slice(3)) == {}
    assert NONE.alone([1.0, 2.0]) == [1.0, 2.0]
    assert set(NONE.stage_columns("edge", sends=True).values()) == {None}
    assert NONE.wire_bytes("edge") is NONE.least_wire_bytes("edge") is None
    assert not list(too_many_bytes("server's data interface sent", 10**9, []))


def test_requests_of_the_warm_up_have_crossed_a_later_hosts_link_too() -> None:
    """It counts from when it got its stage on: 27 requests, of which 17 are timed."""
    wire, sent_bytes = [12_500] * 17, 27 * 13_200 + 30_000
    assert list(too_many_bytes("middle1", sent_bytes, wire))
    assert not list(too_many_bytes("middle1", sent_bytes, wire, warm_ups=10))
    assert list(too_many_bytes("middle1", 27 * 4 * 12_500, wire, warm_ups=10))


def test_a_result_that_comes_back_encoded_counts_apart() -> None:
    """The last host encodes it, the edge decodes it, in a thread of its own: a request's latency has it, no step of
    the edge's has both."""
    assert WORK.results == ("", [])
    back = CodecWork(
        {
            "edge": Coded([0.0] * 6, [0.002] * 6, [100] * 6, [0.01, 0.02, 0.03] * 2),
            "server": Coded([0.001] * 6, [0.004] * 6, [70, 80, 90] * 2),
        },
        first=3,
        closed=6,
    )
    assert back.results == ("server", [70, 80, 90] * 2)
    assert (back.wire_bytes("server"), back.least_wire_bytes("server")) == (80, 80)
    assert back.times_s("decode_s")[:3] == pytest.approx([0.011, 0.021, 0.031])
    assert back.stage_columns("edge", sends=True)["decode_s"] == pytest.approx(0.02)
    assert back.least_s == pytest.approx({"edge": 0.002, "server": 0.005})
    assert back.least_result_s == pytest.approx(0.02)
    assert back.alone([1.0, 1.0, 1.0]) == pytest.approx([0.983, 0.973, 0.963])
