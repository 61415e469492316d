"""The workers of two hosts, and the testbed and the ends that they are of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from pareto.hosts.testbed import Testbed
from pareto.trial.workers import Workers
from tests.unit.far_end import HOSTS
from tests.unit.workers.ends import Ends, bed_of_hosts, workers_of


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def bed(ends: Ends) -> Testbed:
    return bed_of_hosts(ends, HOSTS)


@pytest.fixture
def workers(bed: Testbed) -> Iterator[Workers]:
    """Those of two hosts, started."""
    with closing(workers_of(bed)) as workers:
        workers.start()
        yield workers
