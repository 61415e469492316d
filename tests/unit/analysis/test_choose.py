"""The front of all splits, against all splits tried one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from pareto.analysis.prediction.choose import Chain, even, front, greedy, pareto
from pareto.analysis.prediction.formula import Conditions
from pareto.analysis.statistics.samples import Ints
from pareto.protocol.constants import GOODPUT


def chain(hosts: int, units: int, seed: int = 0, in_flight: int = 64, batch_size: int = 1) -> Chain:
    """A chain of hosts and a model of so many units, drawn at random."""
    draws = np.random.default_rng(seed)
    units_s = draws.lognormal(-6, 1, units) * draws.lognormal(0, 1, hosts)[:, None]
    payloads = np.append(draws.integers(1, 300, units) * 1000.0, 0.0)
    links = hosts - 1
    return Chain(
        np.pad(units_s.cumsum(axis=1), ((0, 0), (1, 0))),
        once_s=draws.choice([0.0, 0.002], hosts),
        payload_bytes=payloads,
        result_bytes=4000.0 * batch_size,
        conditions=Conditions(*draws.uniform((0, 1e6, 0, 1e6), (0.03, 2e8, 0.03, 2e8), (links, 4)).T),
        overhead_s=1e-4 + 1e-9 * payloads * draws.random((links, 1)),
        batch_size=batch_size,
        in_flight=in_flight,
        near_s=draws.choice([0.0, 0.003]) + 1e-8 * payloads,
        far_s=draws.choice([0.0, 0.003], (links, 1)),
    )


def every(of: Chain) -> Ints:
    return np.array(list(itertools.combinations_with_replacement(range(of.last + 1), of.hosts - 1)))


def figures(of: Chain, splits: Ints) -> set[tuple[float, float]]:
    each = zip(of.latency_s(splits), of.throughput_ips(splits), strict=True)
    return {(float(f"{latency_s:.9e}"), float(f"{ips:.9e}")) for latency_s, ips in each}


@pytest.mark.parametrize("in_flight", [1, 2, 64])
@pytest.mark.parametrize("hosts", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_the_front_is_that_of_all_splits(hosts: int, in_flight: int, seed: int) -> None:
    of = chain(hosts, units=12, seed=seed, in_flight=in_flight, batch_size=1 + seed)
    splits = every(of)
    best = splits[pareto(of.latency_s(splits), of.throughput_ips(splits))]
    assert figures(of, front(of)) == figures(of, best)


def test_the_front_is_that_of_a_hundred_thousand_splits() -> None:
    of = chain(5, units=37, seed=3)
    splits = every(of)
    assert len(splits) > 1e5
    best = splits[pareto(of.latency_s(splits), of.throughput_ips(splits))]
    found = front(of)
    assert len(found) > 5
    assert figures(of, found) == figures(of, best)


def test_among_so_many_splits_that_nobody_can_try_each_none_of_those_tried_dominates_the_front() -> None:
    of = chain(8, units=175, seed=5)
    found = front(of)
    assert (np.diff(found, axis=1) >= 0).all()
    tried = np.sort(np.random.default_rng(1).integers(0, of.last + 1, (50_000, of.hosts - 1)), axis=1)
    latency_s, ips = of.latency_s(tried), of.throughput_ips(tried)
    for split_s, split_ips in zip(of.latency_s(found), of.throughput_ips(found), strict=True):
        assert not ((latency_s < split_s * (1 - 1e-9)) & (ips > split_ips * (1 + 1e-9))).any()


def test_latency_is_stages_links_and_what_the_backend_adds() -> None:
    of = Chain(
        np.array([[0, 0.1, 0.3], [0, 0.01, 0.02], [0, 0.001, 0.003]]),
        np.array([0.0, 0.005, 0.0]),
        np.array([1000.0, 2000.0, 0.0]),
        100.0,
        Conditions(
            np.array([0.01, 0.02]), np.array([1e6, 2e6]), np.array([0.03, 0.04]), np.array([1e5, np.inf])
        ),
        overhead_s=np.array([[0.001, 0.002, 9.0], [0.003, 0.004, 9.0]]),
        batch_size=2,
        in_flight=64,
    )
    splits = np.array([[1, 1], [0, 1], [2, 2], [1, 2], [0, 0]])
    first = {point: 0.04 + 8 / GOODPUT * (size / 1e6 + 100 / 1e5) for point, size in enumerate((1000, 2000))}
    second = {point: 0.06 + 8 / GOODPUT * size / 2e6 for point, size in enumerate((1000, 2000))}
    assert of.latency_s(splits) == pytest.approx(
        [
            0.1 + first[1] + 0.002 + second[1] + 0.004 + 0.002,
            first[0] + 0.001 + 0.01 + 0.005 + second[1] + 0.004 + 0.002,
            0.3,
            0.1 + first[1] + 0.002 + 0.01 + 0.005,
            first[0] + 0.001 + second[0] + 0.003 + 0.003,
        ]
    )
    assert of.throughput_ips(splits[:3]) == pytest.approx([2 / 0.1, 2 / 0.015, 2 / 0.3], rel=0.2)
    assert of.throughput_ips(splits[2:3]) == pytest.approx(2 / 0.3), "it never waits for the network"


def test_hosts_send_beside_their_stages() -> None:
    of = Chain(
        np.array([[0, 0.01, 0.03], [0, 0.02, 0.03], [0, 0.01, 0.03]]),
        np.zeros(3),
        np.array([1000.0, 2000.0, 0.0]),
        100.0,
        Conditions(0.001, 1e9),
        np.zeros((2, 3)),
        in_flight=64,
        near_s=np.array([[0.001, 0.002, 9.0]] * 2),
        far_s=np.array([[0.004, 0.008, 9.0], [0.005, 0.006, 9.0]]),
    )
    splits = np.array([[0, 0], [1, 1], [1, 2], [2, 2]])
    steps_s = [
        [0.001, 0.004 + 0.001, 0.03 + 0.005],
        [0.01 + 0.002, 0.008 + 0.002, 0.02 + 0.006],
        [0.01 + 0.002, 0.01 + 0.008, 0],
        [0.03, 0, 0],
    ]
    assert of.steps_s(splits).tolist() == [pytest.approx(row) for row in steps_s]
    assert of.throughput_ips(splits) == pytest.approx([1 / max(row) for row in steps_s])
    shared = replace(of, core=(0, 1, 0))
    assert shared.throughput_ips(splits[:2]) == pytest.approx([1 / 0.036, 1 / 0.038])
    assert shared.latency_s(splits).tolist() == of.latency_s(splits).tolist()


def test_one_request_in_flight_leaves_one_best_split() -> None:
    assert len(front(chain(3, 12, in_flight=1))) == 1


def test_where_one_figure_is_the_same_the_better_other_one_is_kept() -> None:
    assert pareto(np.array([2.0, 1.0, 1.0, 3.0, 1.0]), np.array([5.0, 4.0, 5.0, 5.0, 5.0])).tolist() == [2]
    assert pareto(np.empty(0), np.empty(0)).tolist() == []


def test_a_host_that_never_ends_gets_nothing() -> None:
    of = chain(3, 10)
    of.until_s[1, 1:] = 1e6
    assert (of.stages_s(front(of))[:, 1] == 0).all()


def test_the_even_split_gives_each_host_as_many_units() -> None:
    assert even(chain(4, 12)).tolist() == [[3, 6, 9]]
    assert even(chain(8, 4)).tolist() == [[0, 1, 2, 2, 2, 3, 4]], "more hosts than units: some only forward"


def test_the_greedy_rule_balances_the_stages_near_the_even_split() -> None:
    of = chain(2, 20)
    of.until_s[:] = np.arange(21) * np.array([[1.0], [0.7]])
    of.once_s[:] = 0
    # Both take the same at 8.2 units.
    assert greedy(of).tolist() == [[8]]
    of = replace(of, until_s=np.arange(21) * np.array([[1.0], [0.1]]))
    # At 2 they would: the rule comes there by steps of two.
    assert greedy(of).tolist() == [[2]]


def test_the_greedy_rule_sends_less_where_the_link_is_slow() -> None:
    of = chain(2, 20)
    of.until_s[:] = np.arange(21) * 0.001
    of.once_s[:] = 0
    of.payload_bytes[:-1] = 1e6
    of.payload_bytes[9] = 1e3
    slow = replace(of, conditions=Conditions(0.0, 1e6))
    assert greedy(slow).tolist() == [[9]]


@pytest.mark.parametrize(("hosts", "units"), [(4, 3), (4, 4), (5, 6), (8, 40)])
def test_the_greedy_rule_gives_each_host_a_unit_where_it_can(hosts: int, units: int) -> None:
    split = greedy(chain(hosts, units))[0]
    assert len(split) == hosts - 1
    assert (np.diff(split) >= 0).all()
    if units >= hosts:
        assert (np.diff([0, *split, units]) > 0).all()
