"""When runs are advised on by the model profile that they keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pareto.analysis.advice.by_profile import Kept, kept
from pareto.analysis.naming import USUAL
from pareto.analysis.prediction.compared import FOLDER
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.load import Joined, Run
from pareto.analysis.runs.points import CONDITION
from tests.unit.analysis.test_model_profile import profile

FAR = Network(0.1, 5e6)
WAYS = {
    "edge_to_server": {"delay_s": FAR.delay_s, "rate_bps": FAR.rate_bps},
    "server_to_edge": {"delay_s": 0.0, "rate_bps": None},
}
CELL = {
    "model": "small",
    "netem": "far",
    "batch_size": 1,
    **USUAL,
    "setup": "",
}
MEASURED = {**CELL, "backend": "tcp", "point": "2", "status": "ok", "latency_s": 0.3}
STRUCK = {**CELL, "backend": "tcp", "point": "1", "how": "physics"}


def joined(folder: Path, *trials: dict[str, Any], struck: tuple[dict[str, Any], ...] = (STRUCK,)) -> Joined:
    """A search's run that keeps two model profiles."""
    for made_at in ("2026-01-01", "2026-02-02"):
        own = folder / FOLDER / made_at
        own.mkdir(parents=True)
        replace(profile(), made_at=made_at).write(own)
    manifest = {
        "models": {"small": {"graph_digest": profile().graph_digest}},
        "sweep": {"edge_cpu": 0.25},
        "profiles": {"far": WAYS},
    }
    columns = [*CONDITION, "backend", "point", "how"]
    frame = pd.DataFrame([MEASURED, *trials])
    return Joined([Run(folder, manifest)], frame, frame, [], pd.DataFrame(struck, columns=columns))


def test_the_latest_profile_that_fits_is_taken(tmp_path: Path) -> None:
    runs = joined(tmp_path)
    near = Network(0.02, 30e6)
    assert kept(runs, near) == Kept(tmp_path / FOLDER / "2026-02-02", 1, "auto", 1)
    assert kept(runs, near, "Small", "payload_bytes > 0 and latency_s < 1") is not None
    assert kept(runs, near, where="edge_s < 1") is None, "no profile knows it"
    assert kept(runs, FAR) is None, "the search is of this very network"
    runs.runs[0].manifest["models"]["small"]["graph_digest"] = "cd" * 32
    assert kept(runs, near) is None


@pytest.mark.parametrize(
    ("rows", "same", "struck"),
    [
        ([{**MEASURED, "batch_size": 8}], {}, STRUCK),
        ([{**MEASURED, "point": "1"}], {}, STRUCK),
        ([{**MEASURED, "setup": "slower"}], {}, STRUCK),
        ([], {"engine": "onnx"}, STRUCK),
        ([], {"codec": "int8"}, STRUCK),
        ([], {}, {**STRUCK, "how": "rounds"}),
        ([], {"engine": "eager"}, STRUCK),
    ],
    ids=[
        "two workloads",
        "another run measured it",
        "two setups",
        "an engine",
        "a codec",
        "by rounds",
        "none of these",
    ],
)
def test_trials_that_leave_nothing_out_or_that_no_profile_is_of_decide(
    tmp_path: Path, rows: list[dict[str, Any]], same: dict[str, str], struck: dict[str, Any]
) -> None:
    runs = joined(tmp_path, *rows, struck=(struck,))
    runs.trials[[*same]], runs.struck[[*same]] = [*same.values()], [*same.values()]
    assert (kept(runs, Network(0.02, 30e6)) is None) == (same != {"engine": "eager"})


def test_a_chain_is_foreseen_whether_it_was_searched_or_not(tmp_path: Path) -> None:
    runs = joined(tmp_path, struck=())
    runs.trials["point"] = "1+2"
    chosen = kept(runs, FAR)
    assert chosen is not None
    assert chosen.unmeasured == 0
