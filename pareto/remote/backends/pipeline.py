"""A host's work on requests: compute, pass on to the next host, answer. For different requests these overlap.

    put -> [compute] -> [leave: send on, or answer where the chain ends] -> [come back: the next host's reply, answer]

Each [step] is a thread, takes requests in the order of `put` and does one at a time. But waking a thread costs more
than a small piece of work, which so stays with the thread that has it: a small message leaves in the computing thread,
and a stage that is quick computes in the thread that received the request. The socket's buffer has room for what comes.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Client, Stage, Tensors, check_order, nbytes

SMALL_BYTES = 64 << 10
"""A message up to this size fits into what a socket buffers, however slow the link."""
QUICK_S = 1e-3
"""A stage up to this long is quick: at 1 Gbit/s 125 kB come meanwhile, about what a socket buffers from the start."""


class Work:
    """The way of a payload: `stage`, then the hosts behind by `onward`, if there are any, then `answer`: the number of
    its request, the result, the seconds of each stage from this one on, and those spent serialising. Or `fail`: what
    went wrong. reused: whether the next payload comes into one's memory when that is free again."""

    reused = False

    def __init__(self, stage: Stage, onward: Client | None) -> None:
        self.stage, self.onward = stage, onward

    def answer(self, number: int, result: Tensors, stages_s: tuple[float, ...], serialize_s: float) -> None:
        raise NotImplementedError

    def fail(self, text: str) -> None:
        raise NotImplementedError

    def left(self, memory: Any) -> None:
        """Called once for each payload, when its memory is free again. memory: as it came with the payload."""


_Item = tuple[Work, int, Tensors, Any]
"""A payload: its way, its request's number, its tensors and their memory."""


class Pipeline:
    """The steps of one host. `answer` and `fail` of a request are called in one of its threads."""

    def __init__(self, name: str) -> None:
        self._known: Stage | None = None
        """The stage that was done last: its outputs are `_small`; if it was quick, it is `_quick`."""
        self._small = False
        self._quick: Stage | None = None
        # With more, each thread that computes has some of its own, and they spin against each other.
        self._stays = torch.get_num_threads() == 1
        self._working = threading.Lock()
        self._counting = threading.Lock()
        self._begun = 0
        """Requests that wait for the thread that computes, or are in it."""
        self._came: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._computed: queue.SimpleQueue[tuple[_Item, Tensors, float] | None] = queue.SimpleQueue()
        self._away: queue.SimpleQueue[tuple[Work, Client, int, float, float] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=step, name=f"{name}-{step.__name__.strip('_')}", daemon=True)
            for step in (self._compute, self._leave, self._come_back)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, work: Work, number: int, tensors: Tensors, memory: Any = None) -> None:
        """Begin with a payload. The receiver decides how many may wait: nothing is held back here. memory: where the
        tensors lie, for `work.left`."""
        stays = work.stage is self._quick and not self._begun
        if stays and self._working.acquire(blocking=False):
            try:
                self._run((work, number, tensors, memory))
            finally:
                self._working.release()
            return
        with self._counting:
            self._begun += 1
        self._came.put((work, number, tensors, memory))

    @property
    def computes(self) -> bool:
        """Whether a request is computed, or waits for that."""
        return self._begun > 0

    def close(self) -> None:
        """Wait until everything that was put is answered or has failed."""
        self._came.put(None)
        for thread in self._threads:
            thread.join()
        with self._working:  # whoever brought a quick one may still be at it
            pass

    def _compute(self) -> None:
        while (item := self._came.get()) is not None:
            with self._working:
                self._run(item)
            with self._counting:
                self._begun -= 1
        self._computed.put(None)

    def _run(self, item: _Item) -> None:
        work, _, tensors, memory = item
        stage = work.stage
        try:
            outputs, own_s = stage.run(tensors)
        except Exception as error:  # the stage's own fault: the edge must hear of it, or it waits for ever
            work.fail(fault_text(error))
            work.left(memory)
            return
        if stage is not self._known:  # its outputs are all of one size: none passes a greater one by
            self._known, self._small = stage, nbytes(outputs) <= SMALL_BYTES
        self._quick = stage if self._stays and own_s <= QUICK_S else None
        if self._small:
            self._pass_on(item, outputs, own_s)
        else:
            self._computed.put((item, outputs, own_s))

    def _leave(self) -> None:
        while (done := self._computed.get()) is not None:
            self._pass_on(*done)
        self._away.put(None)

    def _pass_on(self, item: _Item, outputs: Tensors, own_s: float) -> None:
        work, number, tensors, memory = item
        try:
            if work.onward is None:
                work.answer(number, outputs, (own_s,), 0.0)
            else:
                if work.reused and not work.onward.copies:
                    outputs = _apart(outputs, tensors)
                serialize_s = work.onward.send(number, outputs)
                self._away.put((work, work.onward, number, own_s, serialize_s))
        except Exception as error:
            work.fail(fault_text(error))
        finally:
            work.left(memory)  # only now: an identity stage's output is its input

    def _come_back(self) -> None:
        while (sent := self._away.get()) is not None:
            work, onward, number, own_s, serialize_s = sent
            try:
                reply = onward.receive()
                check_order(reply, number)
                stages_s = own_s, *reply.stages_s
                work.answer(number, reply.tensors, stages_s, serialize_s + reply.serialize_s)
            except Exception as error:
                work.fail(fault_text(error))


def _apart(outputs: Tensors, inputs: Tensors) -> Tensors:
    """The outputs, those in the memory of an input copied: that receives the next request."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return tuple([each.clone() if each.untyped_storage().data_ptr() in taken else each for each in outputs])


def fault_text(error: Exception) -> str:
    """A fault in words, for the edge."""
    return str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
