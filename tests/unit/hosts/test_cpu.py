"""How much of a core a host of the local testbed gets, before any kernel is asked."""

from __future__ import annotations

import pytest

from pareto.hosts.local.cpu import LEAST_QUOTA_US, PERIOD_US, quota


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.25, 0.5, 0.99])
def test_the_share_is_kept_and_the_period_is_as_short_as_the_kernel_allows(share: float) -> None:
    quota_us, period_us = quota(share)
    assert quota_us / period_us == pytest.approx(share, rel=0.01)
    assert quota_us >= LEAST_QUOTA_US
    assert period_us == PERIOD_US or quota_us == LEAST_QUOTA_US
