"""What codecs cost in accuracy and save in bytes, and how they compete, against what is known by hand."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing import bjontegaard
from pareto.analysis.comparing.bjontegaard import COLUMNS, best, delta_rate, delta_rates, family
from pareto.analysis.comparing.sentences import rates as sentences
from pareto.analysis.fronts import quality
from pareto.analysis.fronts.cells import cells
from pareto.analysis.fronts.front import front, over_codecs
from pareto.analysis.runs.treatments import in_every_codec, pooled
from tests.unit import example_engines
from tests.unit.example_codecs import IMAGES, trials

PLANE = ("latency", "throughput")


def judged(data: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front that say how accurate each cell is."""
    return cells(pooled(in_every_codec(data)))


def by_codec(rows: pd.DataFrame, column: str) -> dict[str, float]:
    """The figure of each codec at point 0."""
    first = rows[rows["point"] == "0"]
    return dict(zip(first["codec"], first[column], strict=True))


def changed(data: pd.DataFrame, **of_codecs: dict[str, Any]) -> pd.DataFrame:
    """The trials with other figures of some codecs."""
    for codec, figures in of_codecs.items():
        data.loc[data["codec"] == codec, [*figures]] = [*figures.values()]
    return data


def marks(*images: int) -> str:
    """These of 200 images, a hexadecimal digit for each four, the first image the highest bit."""
    return f"{sum(1 << (199 - number) for number in images):050x}"


def wrong(**images: range) -> pd.DataFrame:
    """Codecs that are wrong with these of 200 images, of which none is with the first ten."""
    figures = {}
    for codec, of in {"none": range(10), "fp16": range(12), **images}.items():
        shares = {"top1": 1 - len(of) / 200, "agreement": 1 - len({*of} - {*range(10)}) / 200}
        figures[codec] = {**shares, "wrong_images": marks(*of)}
    return changed(trials(codecs=("none", "fp16", "int8"), top1_images=200.0), **figures)


def changing(*, told: bool) -> pd.DataFrame:
    """Codecs that change the class of 6 and of 12 of 200 images."""
    figures: dict[str, dict[str, Any]] = {}
    for codec, count in (("fp16", 6), ("int8", 12)):
        figures[codec] = {"agreement": 1 - count / 200, "agreement_images": 200, "output_error": 0.1}
        figures[codec] |= {"changed_images": marks(*range(count))} if told else {}
    return changed(trials(codecs=("none", "fp16", "int8")), **figures)


FIVE = {"agreement": 1 - 5 / IMAGES}
LABELS: dict[str, Any] = {"int8": {"top1": 0.88}, "fp16": {"top1": 0.8975}}
LEVELS: dict[str, tuple[pd.DataFrame, str, dict[str, float]]] = {
    "what the images cannot tell apart has one level": (
        trials(), "agreement", {"none": 1.0, "zstd": 1.0, "fp16": 1.0, "int8": 0.985, "uint4": 0.9},
    ),
    "5 beside 3 of int8: 2 of at most 8 discordant": (changed(trials(), uint4=FIVE), "agreement", {"uint4": 0.985}),
    "no images, no tie": (
        changed(trials().assign(agreement_images=np.nan), uint4=FIVE), "agreement", {"uint4": 0.975},
    ),
    "an image that changes its class tells a codec from none": (
        changed(trials(), fp16={"agreement": 1 - 1 / IMAGES}), "agreement", {"fp16": 1 - 1 / IMAGES},
    ),
    "with labels: 8 images less, of at most 6 + 0 that int8 changes, and one image less": (
        changed(trials(top1=0.9, top1_images=400), **LABELS), "top1", {"none": 0.9, "fp16": 0.9, "int8": 0.88},
    ),
    "some have no label: agreement is of all": (
        changed(trials(top1=0.9, top1_images=400), **LABELS, zstd={"top1": np.nan, "top1_images": np.nan}),
        "agreement",
        {"int8": 0.985},
    ),
    "two images for one and none for the other; ten for one": (
        wrong(int8=range(20)), "top1", {"none": 0.95, "fp16": 0.95, "int8": 0.9},
    ),
    "20 for one, 10 for the other: by chance": (wrong(int8=range(100, 120)), "top1", {"int8": 0.95}),
    "broken marks: what it must be at most is known still": (
        changed(wrong(int8=range(20)), int8={"wrong_images": "zz"}), "top1", {"int8": 0.9},
    ),
    "without marks what may be discordant is bounded by both together": (
        changing(told=False), "agreement", {"fp16": 0.97, "int8": 0.97},
    ),
    "two codecs of near agreement are told apart by their images": (
        changing(told=True), "agreement", {"fp16": 0.97, "int8": 0.94},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "of", "levels"), LEVELS.values(), ids=LEVELS)
def test_levels_of_accuracy(data: pd.DataFrame, of: str, levels: dict[str, float]) -> None:
    rows = judged(data)
    assert set(rows["accuracy_of"]) == {of}
    found = by_codec(rows, "accuracy_level")
    assert {codec: found[codec] for codec in levels} == levels


def test_an_engine_that_changes_results_says_what_that_costs() -> None:
    data = example_engines.trials(("eager", "onnx"), rounds=3)
    assert list(quality.of_engines(front(data))) == []
    figures = ["agreement", "agreement_images", "output_error"]
    data.loc[data["engine"] == "onnx", figures] = 0.97, 200.0, 0.02
    (line,) = quality.of_engines(front(data))
    assert line.startswith("small, engine onnx: it changes the results, agreement of 200 images 97 %")


def test_without_labels_accuracy_is_the_agreement_with_the_whole_model() -> None:
    rows = judged(trials())
    agreement = {"none": 1.0, "zstd": 1.0, "fp16": 1.0, "int8": 0.985, "uint4": 0.9}
    assert by_codec(rows, "accuracy") == agreement
    assert rows.loc[rows["payload_bytes"] == 0, "accuracy"].eq(1).all()
    # 197 and 200 of 200; without a codec, and with one that gives the same output, nothing is to be estimated.
    low = {"none": 1.0, "zstd": 1.0, "fp16": 0.98116, "int8": 0.95684, "uint4": 0.85059}
    assert by_codec(rows, "accuracy_low") == pytest.approx(low, abs=1e-5)


def test_quality_is_of_a_cell_over_all_backends_and_networks() -> None:
    data = pd.concat([trials(netem="slow"), trials(50e6, netem="quick", backends=("tcp", "rpc"))])
    data.loc[(data["codec"] == "int8") & (data["netem"] == "quick"), "agreement"] = 0.975
    rows = judged(data)
    own = rows[(rows["codec"] == "int8") & (rows["point"] == "2")]
    assert own["accuracy"].nunique() == 1
    assert own["agreement"].nunique() == 2, "what was measured stays as it is"


def test_nothing_is_made_up_where_a_codec_s_quality_was_not_measured() -> None:
    data = trials()
    data.loc[data["codec"] == "int8", ["agreement", "output_error"]] = np.nan
    rows = front(data)
    assert np.isnan(by_codec(rows, "accuracy")["int8"])
    assert not rows.loc[(rows["codec"] == "int8") & (rows["backend"] != "none"), "on_codec_front"].any()


def test_wire_is_bytes_per_image_and_without_a_codec_the_payload() -> None:
    rows = front(trials(batch_size=4), ("latency", "wire"))
    wire = by_codec(rows, "wire_bytes_per_image")
    assert (wire["none"], wire["int8"]) == (150_000, 37_500)
    old = trials(codecs=("none",)).drop(columns="wire_bytes")
    assert by_codec(judged(old), "wire_bytes_per_image") == {"none": 600_000}
    assert rows.loc[rows["payload_bytes"] == 0, "on_front"].all(), "nothing that crosses is least"


def test_a_point_where_nothing_crosses_competes_with_every_codec() -> None:
    slow = front(trials(1e5))
    alone = slow[slow["backend"] == "none"]
    assert set(alone["codec"]) == {"none", "zstd", "fp16", "int8", "uint4"}
    assert alone["on_front"].all(), "at 100 kbit/s nothing is faster, whatever the codec"


def test_over_codecs_a_lossy_codec_wins_by_no_more_than_it_costs() -> None:
    rows = front(trials())
    on = rows[rows["on_codec_front"]]
    # By hand at 10 Mbit/s: fp16 at 3 is fastest of those that cannot be told from none; int8 at 3 is faster at 98.5 %,
    # uint4 at 0 and 2 fastest, and of the most throughput, at 90 %.
    assert set(zip(on["codec"], on["point"], strict=True)) == {
        ("fp16", "3"), ("int8", "3"), ("uint4", "0"), ("uint4", "2"),
    }  # fmt: skip
    certain = on.set_index(["codec", "point"])["codec_probability"]
    assert certain["fp16", "3"] == 1.0
    assert rows.loc[~rows["on_codec_front"], "codec_probability"].max() < 0.5


@pytest.mark.deep
def test_a_limit_on_quality_makes_codecs_compete_by_the_objectives_alone() -> None:
    assert over_codecs(PLANE, "") == (*PLANE, "accuracy")
    assert over_codecs(PLANE, "latency_s < 1") == (*PLANE, "accuracy")
    assert over_codecs(PLANE, "agreement >= 0.99") == PLANE
    assert over_codecs(("accuracy", "wire"), "") == ("accuracy", "wire")
    rows = front(trials(), where="agreement >= 95%")
    on = rows[rows["on_codec_front"]]
    assert set(zip(on["codec"], on["point"], strict=True)) == {("fp16", "3"), ("int8", "3")}
    assert not rows.loc[rows["codec"] == "uint4", "feasible"][rows["backend"] != "none"].any()


def test_without_several_codecs_the_front_over_them_is_the_front() -> None:
    plain = trials(codecs=("none",), backends=("tcp", "rpc"))
    assert in_every_codec(plain) is plain
    rows = front(plain)
    assert (rows["on_codec_front"] == rows["on_front"]).all()
    pd.testing.assert_series_equal(rows["codec_probability"], rows["probability_all"], check_names=False)


def test_ties_over_codecs_name_the_codec() -> None:
    data, figures = trials(codecs=("none", "fp16"), noise=0.05), ["latency_s", "throughput_ips"]
    plain = (data["codec"] == "none") & (data["payload_bytes"] > 0)
    data.loc[data["codec"] == "fp16", figures] = data.loc[plain, figures].to_numpy()
    (third,) = front(data).query("point == '3' and codec == 'none'")["codec_ties"]
    assert "tcp fp16 3" in third


def test_a_line_for_each_codec_says_what_it_costs(snapshot: SnapshotAssertion) -> None:
    data = trials()
    varied = changed(data.copy(), uint4={"agreement": np.nan, "output_error": np.nan})
    varied.loc[(varied["codec"] == "int8") & (varied["point"] == "1"), "agreement"] = 0.96
    # What is no float is not quantised: there the codec gives the same output.
    varied.loc[(varied["codec"] == "fp16") & (varied["point"] == "0"), "output_error"] = 0.0
    labels = changed(trials(top1=0.9, top1_images=400), int8={"top1": 0.88})
    lines = [list(quality.sentences(judged(each))) for each in (data, varied, labels)]
    assert any("int8: agreement of 200 images 98.5 %" in line for line in lines[0])
    assert any("uint4: what it costs in accuracy was not measured" in line for line in lines[1])
    assert any("least at point 1 (95 %: 98.1 to 100 %)" in line for line in lines[1] if "fp16" in line)
    assert any("top-1 of 400 images 88 %, without a codec 90 %" in line for line in lines[2])
    assert lines == snapshot
    assert not list(quality.sentences(judged(trials(codecs=("none",)))))


@pytest.mark.parametrize(("column", "word"), [("mean_iou", "mean IoU"), ("map50", "mAP at 0.5")])
def test_what_has_no_classes_is_as_accurate_as_its_pixels_or_boxes(column: str, word: str) -> None:
    data = trials(codecs=("none", "fp16", "int8"))
    data[["agreement", "agreement_images"]] = np.nan
    data[column] = data["codec"].map({"none": 1.0, "fp16": 0.999, "int8": 0.9})
    rows = judged(data)
    assert set(rows["accuracy_of"]) == {column}
    assert by_codec(rows, "accuracy") == {"none": 1.0, "fp16": 0.999, "int8": 0.9}
    assert by_codec(rows, "accuracy_level") == by_codec(rows, "accuracy"), (
        "no share of images: all that differs counts"
    )
    assert rows["accuracy_low"].isna().all()
    assert rows["agreement"].isna().all()
    assert any(f"{word} 90 %" in line for line in quality.sentences(rows))
    assert front(data, where=f"{column} >= 0.95")["feasible"].sum() > 0


WIRE, SAME = [1000.0, 2000.0, 4000.0, 8000.0], [0.80, 0.85, 0.90, 0.95]
BETWEEN = [2000, 2000 * 2 ** (2 / 3), 2000 * 2 ** (4 / 3), 8000]


@pytest.mark.parametrize(
    ("wire", "accuracy", "share"),
    [
        *(([factor * nbytes for nbytes in WIRE], SAME, factor - 1) for factor in (0.5, 1.0, 2.0)),
        # The logarithm of the rate is a straight line in the accuracy: rate doubles every 0.05. The other one's is
        # shifted by 0.05 and starts at 0.85, so that at equal accuracy it sends half as much.
        (WIRE, [0.85, 0.90, 0.95, 1.0], -0.5),
        # Twice as much at the lower end, as much at the upper one, a straight line between.
        (BETWEEN, SAME, math.sqrt(2) - 1),
        (WIRE, [0.96, 0.97, 0.98, 0.99], math.nan),
        (WIRE[:3], SAME[:3], math.nan),
        # Points that are beaten, or not known, are not on the curve.
        ([*WIRE, 9000, 3000, math.nan], [*SAME, 0.9, 0.80, 0.99], 0),
    ],
)
def test_delta_rates_of_curves_whose_areas_are_known(
    wire: list[float], accuracy: list[float], share: float
) -> None:
    other = np.array([wire, accuracy], dtype=float)
    found, low, high = delta_rate(np.array([WIRE, SAME]), other)
    assert found == pytest.approx(share, nan_ok=True, abs=1e-12)
    if not math.isnan(share):
        assert (low, high) == (accuracy[0], 0.95)
        np.testing.assert_allclose(best(*other)[1], accuracy[:4])


@pytest.mark.parametrize(
    ("codec", "of"),
    [
        ("jpeg:90", "jpeg"), ("int8+zstd:3", "int8+zstd"), ("int8:channel", "int8:channel"),
        ("blosc2:blosclz:9:shuffle", "blosc2:blosclz:shuffle"), ("zstd:3+fp16", "zstd+fp16"), ("uint4", "uint4"),
    ],
)  # fmt: skip
def test_levels_are_one_family(codec: str, of: str) -> None:
    assert family(codec) == of


@cache
def pictures(of_webp: tuple[float, ...] = tuple(SAME)) -> pd.DataFrame:
    """A front of picture codecs at point 0, four levels each; `webp` sends 30 % less than `jpeg`."""
    parts, one = [], trials(codecs=("none",), rounds=1, noise=0.0)
    one = one[one["point"] == "0"].assign(agreement_images=1000, output_error=0.1)
    for kind, values, size in (("jpeg", SAME, 1000), ("webp", of_webp, 700)):
        for level, value in zip((30, 50, 70, 90), values, strict=True):
            nbytes = size * 2 ** (level / 20)
            parts.append(one.assign(codec=f"{kind}:{level}", agreement=value, wire_bytes=nbytes))
    return front(pd.concat(parts, ignore_index=True))


def test_codecs_of_several_levels_are_compared(
    snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = delta_rates(pictures())
    assert list(rates.columns) == COLUMNS
    (row,) = rates.to_dict("records")
    assert (row["first"], row["other"], row["first_points"]) == ("jpeg", "webp", 4)
    assert row["rate_percent"] == pytest.approx(-30, abs=0.1)
    assert row["rate_low_percent"] < -30 < row["rate_high_percent"] < 0
    wider = delta_rates(pictures().assign(accuracy_images=100)).iloc[0]
    # A tenth of the images: an interval about three times as wide, or none where curves no longer meet.
    width, of_wider = (each["rate_high_percent"] - each["rate_low_percent"] for each in (row, wider))
    assert not of_wider < 2 * width
    apart = delta_rates(pictures((0.96, 0.97, 0.98, 0.99)))
    unknown = delta_rates(pictures().assign(accuracy_images=math.nan))
    assert math.isnan(apart.iloc[0]["rate_percent"]) and math.isnan(unknown.iloc[0]["rate_low_percent"])
    assert delta_rates(front(trials(rounds=1))).empty, "lossless codecs and single levels have no curve"
    assert [line for rates in (rates, apart, unknown) for line in sentences(rates)] == snapshot
    # What a codec leaves as it is at point 0, where another one is at work, says nothing of it.
    monkeypatch.setattr(bjontegaard, "DRAWN", 20)
    plain = {"codec": "webp:1", "codec_at_work": "none", "wire_bytes_per_image": 1.0, "accuracy": 1.0}
    rows = pictures()
    both = pd.concat([rows, rows[rows["codec"] == "webp:30"].assign(**plain)], ignore_index=True)
    pd.testing.assert_frame_equal(delta_rates(both), delta_rates(rows))
