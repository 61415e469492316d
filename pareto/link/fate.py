"""What becomes of a packet besides waiting: it is doubled, lost, damaged, or overtakes the others.

Drawn in netem's order. No sockets, no clock; all chance comes from the generator that is handed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random

from pareto.link.profile import Direction, Gilbert


def seed_of(*what: object) -> int:
    """A number of 48 bits that these decide: where chance begins."""
    text = "/".join(map(str, what)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")


class Fate:
    """One direction's impairments. Each method draws for one packet."""

    def __init__(self, direction: Direction, random: Random) -> None:
        self._random = random
        self._duplicate = direction.duplicate
        self._corrupt = direction.corrupt
        self._reorder = direction.reorder
        self._loses = _loss(direction.loss, random)

    def copies(self) -> tuple[int, int]:
        """How often the packet is sent, 0 to 2, and how many of it and its copy were lost.

        As in netem a loss cancels a copy, and a copy that is made is a packet of its own and can be lost too.
        """
        copies = 1 + self._chance(self._duplicate)
        lost = int(self._loses())
        if copies - lost == 2:
            lost = int(self._loses())
        return copies - lost, lost

    def damages(self) -> bool:
        return self._chance(self._corrupt)

    def overtakes(self) -> bool:
        return self._chance(self._reorder)

    def bit(self, of_bytes: int) -> int:
        """Which bit of so many bytes is damaged."""
        return self._random.randrange(8 * of_bytes)

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability


def _loss(loss: float | Gilbert, random: Random) -> Callable[[], bool]:
    if isinstance(loss, Gilbert):
        return GilbertLoss(loss, random)
    return lambda: loss > 0 and random.random() < loss


class GilbertLoss:
    """Loss in bursts. It begins in the good state; a packet's state is the one before its own transition."""

    def __init__(self, model: Gilbert, random: Random) -> None:
        self._model = model
        self._random = random
        self._bad = False

    def __call__(self) -> bool:
        model, bad = self._model, self._bad
        if self._random.random() < (model.bad_to_good if bad else model.good_to_bad):
            self._bad = not bad
        return self._random.random() < (model.in_bad if bad else model.in_good)
