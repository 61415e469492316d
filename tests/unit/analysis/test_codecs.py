"""From what rate on a codec pays, against arithmetic by hand; advice over codecs."""

from __future__ import annotations

import io
import math
import re
from functools import cache
from typing import Any

import pandas as pd
import pytest
from rich.console import Console, RenderableType
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.advice.advise import Advice, advise, answers, sentence
from pareto.analysis.advice.codecs import pays, sentences
from pareto.analysis.advice.observed import observe, workloads
from pareto.analysis.advice.predict import Ensemble, advisable
from pareto.analysis.prediction.network import Network
from pareto.analysis.schema import STAGES
from pareto.analysis.tables.advice import advice_table
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from tests.unit import simulated_network as world
from tests.unit.example_codecs import DELAY_S, EDGE_S, PAYLOAD_BYTES, SERVER_S, of_bytes, trials

PROFILES = {"slow": Network(DELAY_S, 10e6, DELAY_S), "quick": Network(DELAY_S, 50e6, DELAY_S)}
STAGES_OF_NONE = pd.DataFrame(columns=[*STAGES.columns, "setup"])


def measured(noise: float = 0.0, **fixed: Any) -> pd.DataFrame:
    both = [trials(PROFILES[name].rate_bps, netem=name, noise=noise, **fixed) for name in PROFILES]
    return pd.concat(both, ignore_index=True)


@cache
def told(**fixed: Any) -> list[str]:
    """What is said of each codec, by trials with noise."""
    return sentences(measured(0.01, **fixed), STAGES_OF_NONE, [world.manifest(PROFILES)])


def advised(network: Network, rows: pd.DataFrame, **options: Any) -> Advice:
    return advise(rows, STAGES_OF_NONE, [world.manifest(PROFILES)], network, **options)


def shown(table: RenderableType) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(table)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return text


def by_hand_bps(point: int, share: float, encode_s: float) -> float:
    """Where the codec takes at this point what all on the edge takes."""
    left_s = EDGE_S[-1] - EDGE_S[point] - SERVER_S[point] - PAYLOAD_BYTES[point] * encode_s - 2 * DELAY_S
    return 8 * PAYLOAD_BYTES[point] * share / GOODPUT / left_s


def test_where_a_codec_pays_is_what_arithmetic_says() -> None:
    rows = measured()
    (workload,) = workloads(rows, over_codecs=True)
    known = {name: PROFILES[name] for name in PROFILES}
    ensemble = Ensemble(observe(advisable(workload, known), STAGES_OF_NONE, known), {})
    found = {
        each.codec: each
        for each in pays(
            *ensemble.measured("slow", PROFILES["slow"]), ensemble.blocks.present, PROFILES["slow"]
        )
    }
    assert set(found) == {"zstd", "fp16", "int8", "uint4"}
    # Below, all on the edge is better; above, none is: with zstd 2e-8 s a byte of the payload, by hand at point 3.
    assert found["int8"].low == pytest.approx(by_hand_bps(3, 0.25, 2e-9), rel=1e-3)
    assert found["zstd"].low == pytest.approx(by_hand_bps(3, 0.6, 2e-8), rel=1e-3)
    # At 150 Mbit/s and more zstd at 2 saves 8 x 400 kB x 0.4 / rate and takes 8 ms; without a codec point 2 is best.
    assert found["zstd"].high == pytest.approx(8 * 0.4 * 400e3 / GOODPUT / (400e3 * 2e-8), rel=0.02)
    assert all(each.sure for each in found.values())
    assert found["zstd"].low_ends == pytest.approx((found["zstd"].low,) * 2, rel=0.01)


def test_the_sentences(snapshot: SnapshotAssertion) -> None:
    manifests = [world.manifest(PROFILES)]
    lines = told()
    assert len(lines) == 2
    assert all("int8 pays from" in line and "agreement 98.5 %" in line for line in lines)
    few = told(rounds=2)
    assert "may pay" in few[0]
    slow = measured()
    slow.loc[slow["codec"] == "zstd", ["latency_s", "serialize_s"]] += 5.0
    never = sentences(slow, STAGES_OF_NONE, manifests)
    assert any(line.endswith("zstd pays at no rate") for line in never)
    assert [lines, few, never] == snapshot
    assert sentences(measured(codecs=("none",)), STAGES_OF_NONE, manifests) == []


def test_nothing_is_said_of_a_codec_without_a_valid_trial_in_a_network() -> None:
    rows, manifests = measured(0.01), [world.manifest(PROFILES)]
    lost = rows["netem"].eq("quick") & rows["codec"].eq("int8") & rows["payload_bytes"].gt(0)
    said = sentences(rows.assign(status=rows["status"].mask(lost, "invalid")), STAGES_OF_NONE, manifests)
    of_quick = [line for line in said if "at quick" in line]
    assert of_quick
    assert not any("int8" in line for line in of_quick)
    assert all("among the points measured here" in line for line in of_quick)
    assert not any("among" in line for line in said if "at slow" in line)
    plain = rows["netem"].eq("quick") & (rows["codec"].eq("none") | rows["payload_bytes"].eq(0))
    alone = sentences(rows.assign(status=rows["status"].mask(plain, "invalid")), STAGES_OF_NONE, manifests)
    assert not any("at quick" in line for line in alone), "nothing to compare a codec with"
    off = rows[rows["netem"].eq("slow")].head(1).assign(codec="int8", point="7", payload_bytes=1e5)
    struck = sentences(rows, STAGES_OF_NONE, manifests, off)
    assert all("among" in line for line in struck if "at slow" in line)


def test_a_limit_on_quality_chooses_among_codecs(
    snapshot: SnapshotAssertion,
) -> None:
    between = Network(DELAY_S, 20e6, DELAY_S)
    with pytest.raises(UserError, match=r"codec .none., .zstd.*agreement >= 0.99"):
        advised(between, measured())
    assert advised(between, measured(), where="codec == none").ranking.best.codec == "none"
    strict = advised(between, measured(0.01), where="agreement >= 0.99")
    assert (strict.ranking.best.codec, strict.ranking.best.point) == ("fp16", "3")
    # 8 x 50 kB at TCP's share of 20 Mbit/s, 10 ms, 86 ms of stages and 0.1 ms to encode.
    assert strict.ranking.best.latency_s == pytest.approx(8 * 50e3 / 20e6 / GOODPUT + 0.0961, rel=0.01)
    loose = advised(between, measured(0.01), where="accuracy >= 95%")
    assert (loose.ranking.best.codec, loose.ranking.best.point) == ("int8", "0")
    assert [choice.place for choice in loose.ranking.choices].count("all on the edge") == 1
    said = sentence(loose)
    # Shares of draws that are nearly equal: the last digit depends on the processor.
    table = re.sub(r"(?<=\.\d\d )\d\.\d\d(?= *$)", "p", shown(advice_table(loose)), flags=re.MULTILINE)
    assert [sentence(strict), said, table] == snapshot


def test_each_codec_s_answer_says_what_it_costs_by_what_crosses() -> None:
    lines = answers(measured(), STAGES_OF_NONE, [world.manifest(PROFILES)])
    of_int8 = [line for line in lines if "codec int8" in line]
    assert len(of_int8) == 2
    for words in ("agreement 98.5 %", "less than all on the edge"):  # it is every codec's rival
        assert all(words in line for line in of_int8)
    assert not any("agreement" in line for line in lines if "codec" not in line)
    best = advised(Network(DELAY_S, 5e6, DELAY_S), measured(), where="codec == int8").ranking
    (third,) = (choice for choice in best.choices if choice.point == "3")
    assert third.latency_s == pytest.approx(8 * 25e3 / 5e6 / GOODPUT + 0.0962, rel=1e-3)
    assert not math.isnan(third.throughput_ips)


def test_where_a_codec_does_nothing_its_cell_neither_pays_nor_costs() -> None:
    manifests = [world.manifest(PROFILES)]
    rows = of_bytes(measured(0.01, codecs=("none", "zstd", "int8")))
    alone = rows.assign(stands_for=rows["codec"])
    said = sentences(rows, STAGES_OF_NONE, manifests)
    assert said == sentences(alone, STAGES_OF_NONE, manifests), "int8 gains nothing by none's cell"
    assert all("int8 pays" in line for line in said)
    of_int8 = [line for line in answers(rows, STAGES_OF_NONE, manifests) if "codec int8" in line]
    assert len(of_int8) == 2, "the cell at point 0 is a choice with int8, too"
    (workload,) = [each for each in workloads(rows) if each["codec"].iloc[0] == "int8"]
    assert set(workload["point"]) == {"0", "1", "2", "3", "4"}


def test_a_codec_that_comes_to_another_one_pays_where_that_does() -> None:
    rows = measured(codecs=("none", "zstd"))
    rows = rows[(rows["codec"] == "none") | (rows["point"] == "3")]
    rows.loc[rows["codec"] == "zstd", "stands_for"] = "int8+zstd"
    lines = sentences(rows.reset_index(drop=True), STAGES_OF_NONE, [world.manifest(PROFILES)])
    ends = [part.partition(" pay")[2] for part in lines[0].partition(": ")[2].split("; ")]
    assert "int8+zstd pays" in lines[0]
    assert len(ends) == 2 and ends[0] == ends[1]


@pytest.mark.deep
def test_codecs_with_the_same_answer_share_a_line() -> None:
    rows = trials(1e5, codecs=("none", "fp16", "uint4"), rounds=2)
    lines = answers(rows, STAGES_OF_NONE, [{}])
    assert [line.partition(":")[0] for line in lines] == ["small at slow, codecs none, fp16, uint4"]
    different = trials(10e6, codecs=("none", "uint4"), rounds=2)
    lines = answers(different, STAGES_OF_NONE, [{}])
    assert [line.partition(":")[0] for line in lines] == ["small at slow", "small at slow, codec uint4"]
