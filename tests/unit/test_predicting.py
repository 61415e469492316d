"""What forecasts count with on a link: its mean, and its best."""

from __future__ import annotations

from math import inf

import pytest

from analysis.prediction.network import Network
from pareto.link.probe import Tolerance
from pareto.link.profile import Bucket, Direction, Profile
from pareto.link.trace import Step, Trace
from pareto.predicting import networks, slack

BACK = Direction(delay_s=0.02)
TRACE = Trace("drive", 4.0, (Step(0.0, 0.25, 1e6), Step(2.0, 0.75, 9e6)))


@pytest.mark.parametrize(
    ("profile", "usual", "best"),
    [
        (Profile("still", Direction(0.01, 5e6), BACK), (0.01, 5e6, 0.02, inf), (0.01, 5e6, 0.02, inf)),
        (Profile("jittery", Direction(0.01, 5e6, jitter_s=0.004)), (0.01, 5e6, 0, inf), (0.006, 5e6, 0, inf)),
        (Profile("bucket", Direction(0.01, 5e6), bucket=Bucket()), (0.01, 5e6, 0, inf), (0.01, inf, 0, inf)),
        (Profile("overtaken", Direction(0.01, 5e6, reorder=0.1)), (0.01, 5e6, 0, inf), (0.01, inf, 0, inf)),
        (Profile("drive", Direction(trace=TRACE)), (0.5, 5e6, 0, inf), (0.25, 9e6, 0, inf)),
    ],
)  # fmt: skip
def test_a_link_is_as_in_the_mean_and_at_its_best(
    profile: Profile, usual: tuple[float, ...], best: tuple[float, ...]
) -> None:
    as_is, at_best = networks([profile, profile])
    assert as_is == (Network(*usual),) * 2
    assert at_best == (Network(*best),) * 2


def test_links_may_be_off_by_what_probes_allow() -> None:
    assert vars(slack(Tolerance(0.1, 0.002, 0.3))) == {"rate": 0.3, "rtt": 0.1, "rtt_floor_s": 0.002}
