"""Model profiles in folders: written, read again, refused in a line; what a backend adds to a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import FACTS, CodecTimes, ModelProfile, UnitTimes, read
from pareto.analysis.schema import BACKENDS, CODECS, PROFILE
from pareto.protocol.errors import UserError
from tests.unit.refusals import refusal

SIZES = np.array([1e3, 1e4, 1e5, 1e6])
MEDIANS = np.array([0.002, 0.0034567891234, 0.001])


def times(role: str, batch_size: int = 1) -> UnitTimes:
    median_s = MEDIANS * batch_size
    figures = (median_s, 0.9 * median_s, 1.1 * median_s, 0.8 * median_s)
    whole = tuple(1.02 * float(each.sum()) for each in figures)
    return UnitTimes(role, "cpu", batch_size, 1, 0.25 if role == "edge" else 1.0, *figures, whole)  # type: ignore[arg-type]


def profile() -> ModelProfile:
    return ModelProfile(
        model="small",
        graph_digest="ab" * 32,
        granularity="block",
        input="uint8",
        points=(("input", 150_528), ("stem", 802_816), ("body", 4_000), ("output", 0)),
        result_bytes=4_000,
        flops=np.array([12_345_678_901.0, 2e6, 0.0]),
        parameters=np.array([864.0, 100.0, 0.0]),
        parameter_bytes=np.array([3456.0, 400.0, 0.0]),
        activation_bytes=np.array([1e6, 2e6, 4000.0]),
        times=(times("edge"), times("server"), times("edge", 8), times("server", 8)),
        backends=(
            BackendCost("edge-server", "tcp", SIZES, 1e-4 + 1e-9 * SIZES, np.zeros(4)),
            BackendCost("edge-server", "rpc", SIZES, 0.01 + 7e-4 + 2e-9 * SIZES, np.full(4, 0.01)),
        ),
        hosts={"edge": {"cpu": "one", "peak_flops": 5e10}, "server": {"cpu": "one", "threads": 1}},
        made_at="2026-11-22T16:00:00+00:00",
    )


KNOWN, ONLY_INPUT = np.array([1.0, 2.0, 3.0, np.nan]), np.array([1e-3, np.nan, np.nan, np.nan])
UNKNOWN = np.full(4, np.nan)


def coded() -> ModelProfile:
    """The profile with two codecs, one of which is used at point 0 alone."""
    sent = (4e5 * KNOWN, 1e5 * KNOWN, 1e5 * KNOWN, 1e-3 * KNOWN, 9e-4 * KNOWN)
    decoding_s = {"edge": UNKNOWN, "server": 2e-3 * KNOWN}
    int8 = (CodecTimes(role, 8, "int8", *sent, each_s, each_s) for role, each_s in decoding_s.items())
    picture = CodecTimes("server", 8, "jpeg:90", *(ONLY_INPUT,) * 2, UNKNOWN, *(ONLY_INPUT,) * 4)
    return replace(profile(), codecs=(*int8, picture))


def with_peaks() -> ModelProfile:
    """The profile of one device with all that is optional."""
    peaks = {"peak_bytes": np.array([1e6, 3e6, 2e6]), "energy_j": 0.5, "outside_s": 1e-4}
    peaks["units_energy_j"] = np.array([0.1, np.nan, 0.3])
    return replace(profile(), times=(replace(times("edge"), **peaks, after_pause_s=-2e-4),))


@pytest.mark.parametrize("made", [profile(), coded(), with_peaks()], ids=["plain", "codecs", "peaks"])
def test_what_is_written_is_read_again_with_every_digit(made: ModelProfile, tmp_path: Path) -> None:
    made.write(tmp_path)
    known = [
        {**asdict(each), "backends": [cost.figures for cost in each.backends]}
        for each in (read(tmp_path), made)
    ]
    np.testing.assert_equal(*known)
    assert (tmp_path / CODECS.file).exists() == bool(made.codecs)


def test_a_profile_knows_its_units_hosts_batch_sizes_codecs_and_backends() -> None:
    of = coded()
    assert (of.units, of.roles, of.batch_sizes) == (("stem", "body", "output"), ("edge", "server"), (1, 8))
    assert of.times[0].difference == pytest.approx(1 / 1.02 - 1)
    assert (of.of("server", 8), of.cost("edge-server", "rpc")) == (of.times[3], of.backends[1])
    assert of.coding("server", 8, "int8") is of.codecs[1]
    with pytest.raises(
        UserError, match="the codec zstd on edge at batch size 8: it has int8 on edge at batch size 8"
    ):
        of.coding("edge", 8, "zstd")


def edited(file: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return damage


def linked(folder: Path) -> None:
    (folder / PROFILE.file).rename(folder / "other")
    (folder / PROFILE.file).symlink_to("other")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / FACTS).unlink(), "there is no profile.json"),
        (lambda folder: (folder / FACTS).write_text("{"), "is not a model profile: "),
        (lambda folder: (folder / FACTS).write_text("[" * 10_000), "nested too deeply"),
        (edited(FACTS, '"hosts"', '"guests"'), "hosts"),
        (edited(FACTS, '"result_bytes": 4000', '"result_bytes": "many"'), "result_bytes"),
        (edited(FACTS, '"model": "small"', '"model": "\\u001b[2Jsmall"'), "cannot be seen"),
        (linked, "is a link"),
        (lambda folder: (folder / BACKENDS.file).unlink(), "No such file"),
        (edited(PROFILE.file, ",2,body,", ",3,body,"), "each unit once"),
        (edited(PROFILE.file, "cpu,8,1,1.0,1,stem", "cpu,8,1,1.0,1,root"), "different units"),
        (edited(PROFILE.file, "0.0034567891234,", ","), "lacks figures"),
        (edited(PROFILE.file, "0.0034567891234,", "-1,"), "median_s"),
        (edited(PROFILE.file, "edge,cpu", "nobody,cpu"), "wrong form"),
        (edited(BACKENDS.file, "0.000101,", ","), "a row lacks a figure: payload_bytes, trip_s"),
        (lambda folder: (folder / PROFILE.file).write_text(",".join(PROFILE.columns) + "\n"), "has no rows"),
        (
            edited(CODECS.file, "edge,8,int8,2,", "edge,8,int8,1,"),
            "int8 on edge at batch size 8 has a point twice",
        ),
        (edited(CODECS.file, "edge,8,int8,2,", "edge,8,int8,3,"), "its points are 0 to 2"),
        (edited(CODECS.file, ",0.001,0.0009", ",,0.0009"), "a row lacks a figure: wire_bytes, encode_s"),
    ],
)
def test_a_folder_of_somebody_else_is_refused_in_a_line(
    tmp_path: Path, damage: Callable[[Path], None], named: str
) -> None:
    coded().write(tmp_path)
    damage(tmp_path)
    said = refusal(UserError, read, tmp_path)
    assert named in said and "\x1b" not in said


def test_a_backend_costs_a_fixed_time_and_one_for_each_byte() -> None:
    tcp, rpc = profile().backends
    assert (tcp.fixed_s, tcp.per_byte_s) == (pytest.approx(1e-4), pytest.approx(1e-9))
    assert tcp.residual == pytest.approx(0, abs=1e-6)
    assert (rpc.fixed_s, rpc.per_byte_s) == (pytest.approx(7e-4), pytest.approx(2e-9)), "beyond the link"
    noisy = BackendCost(
        "edge-server", "tcp", SIZES, (1e-4 + 1e-9 * SIZES) * [1.1, 0.9, 1.1, 0.9], np.zeros(4)
    )
    assert 0.05 < noisy.residual < 0.15


def test_a_link_that_slows_payloads_has_a_line_of_its_own() -> None:
    bare = BackendCost("edge-server", "tcp", SIZES, 1e-4 + 1e-9 * SIZES, np.zeros(4), near_s=np.full(4, 1e-5))
    link_s = 0.01 + 8e-8 * SIZES
    slowed = replace(bare, trip_s=link_s + 7e-4, link_s=link_s, near_s=np.empty(0), far_s=1e-5 + 3e-9 * SIZES)
    both = bare.and_of(slowed)
    assert both.where(waiting=False).fixed_s == pytest.approx(1e-4)
    assert both.where(waiting=True).fixed_s == pytest.approx(7e-4)
    assert [len(part.trip_s) for part in both.parts] == [4, 4]
    assert both.processor_s("near_s", SIZES) == pytest.approx(np.full(4, 1e-5))
    assert both.processor_s("far_s", SIZES) == pytest.approx(1e-5 + 3e-9 * SIZES)
    assert both.processor_s("shaper_s", SIZES).tolist() == [0] * 4, "nobody knows"
    assert bare.where(waiting=True).trip_s.tolist() == bare.trip_s.tolist(), "there are no others"
    assert [part.fixed_s for part in bare.parts] == [bare.fixed_s]


def test_payloads_that_overflow_a_queue_are_not_on_the_line() -> None:
    sizes = np.array([1e3, 1e5, 2e5, 3e5, 1e6])
    link_s = 0.01 + 8e-8 * sizes
    times = np.array([1, 1, 1, 3, 2])
    cost = BackendCost("edge-server", "rpc", sizes, times * (link_s + 1e-3), link_s)
    assert (cost.fixed_s, cost.residual) == (pytest.approx(1e-3), pytest.approx(0, abs=1e-9))
    assert cost.resends
    assert not replace(cost, trip_s=link_s + 1e-3).resends
    assert not replace(cost, link_s=np.zeros(5)).resends, "a link without a rate has no queue"


def test_neither_term_of_a_backend_is_negative() -> None:
    falling = BackendCost("edge-server", "tcp", SIZES, np.array([2.0, 1.9, 1.8, 1.7]), np.zeros(4))
    assert falling.per_byte_s == 0
    assert falling.fixed_s > 0
    quicker_than_the_link = BackendCost("edge-server", "tcp", SIZES, SIZES / 1e6, np.full(4, 2.0))
    assert (quicker_than_the_link.fixed_s, quicker_than_the_link.per_byte_s) == (0, 0)
