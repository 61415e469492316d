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
from tests.unit.backends.builders import connected

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
"""What was sent: the line sends from where it lies."""


def given(near: gloo.GlooLine, like: wire.Likeness, number: int) -> None:
    body = torch.full((like.form.nbytes,), number, dtype=torch.uint8)
    KEPT.append(body)
    near.send(like.numbered(number), wire.views((body,)))


def request(nbytes: int) -> wire.Likeness:
    return wire.Likeness(wire.Kind.REQUEST, wire.form((("uint8", (nbytes,)),)), b"8 bytes.")


@pytest.mark.parametrize("is_near", [True, False], ids=["near", "far"])
def test_as_many_requests_as_may_be_under_way_leave_before_the_first_is_taken(
    ends: Ends, is_near: bool
) -> None:
    """After one by which the form is known. Over a short round trip large ones wait: there it costs no time."""
    near, far = ends
    far._is_near = is_near
    small, large = request(8), request(gloo.COPIED_BYTES + 1)
    for like in (small, large):
        ahead = 1 if is_near and like is large else min(MOST_IN_FLIGHT, gloo.AHEAD_BYTES // like.form.nbytes)
        (taken,) = wire.empty(like.form)
        for number in range(2):
            given(near, like, number)
            assert far.message(like, wire.views((taken,))) is not None
        near._given.clear()
        for number in range(ahead - 1):
            given(near, like, number)
        for work in near._given:
            work.wait(SOON)
        for number in range(ahead - 1):
            assert far.message(like, wire.views((taken,))) is not None
            assert set(taken.tolist()) == {number}


def test_what_was_asked_for_and_did_not_come_is_taken_when_that_form_comes_again(ends: Ends) -> None:
    near, far = ends
    for number, nbytes in enumerate((8, 8, 16, 8, 16, 8, 8)):
        like = request(nbytes)
        (taken,) = wire.empty(like.form)
        given(near, like, number)
        assert far.message(like, wire.views((taken,))) is not None
        assert set(taken.tolist()) == {number}
    assert len(far._asked) == len(near._tags) == 2
