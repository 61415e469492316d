"""Gloo sends what the other end has asked for: both ends ask ahead, or each message would wait for the link's delay."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest
import torch

from pareto.protocol.constants import MOST_IN_FLIGHT
from pareto.remote.backends import gloo, wire
from tests.unit.backends.builders import connected, refusal

LARGE = gloo.SMALL_BYTES + 1
HELD = 255
SOON = timedelta(seconds=30)
Ends = tuple[gloo.GlooLine, gloo.GlooLine]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The end that sends requests, and the other."""
    ours, theirs = connected()
    with ThreadPoolExecutor() as pool:
        far = pool.submit(gloo.GlooLine, theirs, near=False)
        near = gloo.GlooLine(ours, near=True)
        with closing(near), closing(far.result()):
            yield near, far.result()


KEPT: list[torch.Tensor] = []
"""The bodies that were sent: a line sends from where they lie."""


def given(near: gloo.GlooLine, like: wire.Likeness, number: int) -> None:
    body = torch.full((like.form.nbytes,), number, dtype=torch.uint8)
    KEPT.append(body)
    near.send(like.numbered(number), wire.views((body,)))


def request(nbytes: int) -> wire.Likeness:
    return wire.Likeness(wire.Kind.REQUEST, wire.form((("uint8", (nbytes,)),)), b"8 bytes.")


@pytest.mark.parametrize("nbytes", [8, LARGE])
def test_as_many_requests_as_may_be_under_way_leave_before_the_first_is_taken(
    ends: Ends, nbytes: int
) -> None:
    near, far = ends
    near._is_short = far._is_short = False
    like = request(nbytes)
    (taken,) = wire.empty(like.form)
    ahead = min(MOST_IN_FLIGHT, gloo.AHEAD_BYTES // nbytes)
    far.expect(like)
    for number in range(ahead):
        given(near, like, number)
    for work in near._given:
        work.wait(SOON)
    for number in range(ahead):
        assert far.message(like, wire.views((taken,))) is not None
        assert set(taken.tolist()) == {number}


@pytest.mark.parametrize("is_short", [True, False], ids=["short", "long"])
def test_what_was_asked_for_and_did_not_come_is_written_only_where_its_memory_stays(
    ends: Ends, is_short: bool
) -> None:
    """A form that comes again takes what was asked for; but where that was another's memory, which may be gone."""
    near, far = ends
    near._is_short = far._is_short = is_short
    held, before = list[torch.Tensor](), request(8)
    for number, nbytes in enumerate((8, 8, LARGE, LARGE, 8, 16, LARGE, LARGE, 8)):
        like = request(nbytes)
        given(near, like, number)
        if before.key != like.key:  # as where another stage is served
            held += wire.empty(before.form)
            held[-1].fill_(HELD)
            assert far.message(before, wire.views((held[-1],))) is None
        (taken,) = wire.empty(like.form)
        assert far.message(like, wire.views((taken,))) is not None
        assert set(taken.tolist()) == {number}
        before = like
    assert len(held) == 5
    assert all(set(each.tolist()) == {HELD} for each in held)


def test_a_far_end_that_says_in_place_what_was_asked_for_ahead_is_refused_in_words(ends: Ends) -> None:
    near, far = ends
    near._is_short, far._is_short = True, False
    like = request(LARGE)
    given(near, like, 1)
    said = refusal(far.message, like, wire.views(wire.empty(like.form)))
    assert said == "a message comes under another tag than both ends know"
