"""What codecs did in a trial: by request, by host, and of all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pareto.protocol.trial_messages import Coded
from pareto.trial.codec_work import CodecWork, too_many_bytes
from tests.unit.reported import result_of
from tests.unit.test_trial import USAGE, report

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
    usage = result_of({"edge": report(), "server": USAGE}).hosts["server"].usage
    assert not list(too_many_bytes("server", usage, 12))


def test_requests_of_the_warm_up_have_crossed_a_later_hosts_link_too() -> None:
    """It counts from when it got its stage on: 27 requests, of which 17 are timed."""
    wire = [12_500] * 17
    coded = Coded([0.001] * 17, [0.001] * 17, wire)
    server = result_of({"edge": report(), "server": USAGE}).hosts["server"].usage
    usage = replace(server, coded=coded, sent_bytes=27 * 13_200 + 30_000, retransmits=0)
    assert list(too_many_bytes("middle1", usage, 17))
    assert not list(too_many_bytes("middle1", usage, 17, warm_ups=10))
    assert list(too_many_bytes("middle1", replace(usage, sent_bytes=27 * 4 * 12_500), 17, warm_ups=10))
