"""What a host does with requests: compute, pass on to the next host, answer. For different requests these overlap.

    put -> [compute] -> [leave: send on, or answer where the chain ends] -> [come back: the next host's reply, answer]

Each [step] is a thread, takes requests in the order of `put` and does one at a time. A small answer at the end of the
chain is given by the computing thread itself: it only goes into the socket's buffer, and another thread costs more.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pareto.backends.base import BackendError, Client, Stage, Tensors

SMALL_BYTES = 64 << 10
"""An answer up to this size fits into what a socket buffers, however slow the link."""

Answer = Callable[[Tensors, tuple[float, ...], float], None]


@dataclass(frozen=True)
class Request:
    """A payload that has come, for `stage`, and with `onward` for the hosts behind.

    answer: given the result, the seconds that each stage computed from this one on, and those spent serialising.
    fail: given what went wrong, in place of `answer`. left: called once, when the payload's memory is free again.
    """

    number: int
    tensors: Tensors
    stage: Stage
    onward: Client | None
    answer: Answer
    fail: Callable[[str], None]
    left: Callable[[], None]


class Pipeline:
    """The steps of one host. `answer` and `fail` of a request are called in one of its threads."""

    def __init__(self, name: str) -> None:
        self._came: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._computed: queue.SimpleQueue[tuple[Request, Tensors, float] | None] = queue.SimpleQueue()
        self._away: queue.SimpleQueue[tuple[Request, Client, float, float] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=step, name=f"{name}-{step.__name__.strip('_')}", daemon=True)
            for step in (self._compute, self._leave, self._come_back)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, request: Request) -> None:
        """Begin with a request. Nothing is held back here: who receives decides how many may wait."""
        self._came.put(request)

    def close(self) -> None:
        """Return when everything that was put is answered or has failed."""
        self._came.put(None)
        for thread in self._threads:
            thread.join()

    def _compute(self) -> None:
        while (request := self._came.get()) is not None:
            try:
                outputs, own_s = request.stage.run(request.tensors)
            except (
                Exception
            ) as error:  # the stage's own fault: the edge must hear of it, or it waits for ever
                request.fail(_said(error))
                request.left()
                continue
            if request.onward is None and sum(tensor.nbytes for tensor in outputs) <= SMALL_BYTES:
                self._pass_on(request, outputs, own_s)
            else:
                self._computed.put((request, outputs, own_s))
        self._computed.put(None)

    def _leave(self) -> None:
        while (item := self._computed.get()) is not None:
            self._pass_on(*item)
        self._away.put(None)

    def _pass_on(self, request: Request, outputs: Tensors, own_s: float) -> None:
        try:
            if request.onward is None:
                request.answer(outputs, (own_s,), 0.0)
            else:
                serialize_s = request.onward.send(request.number, outputs)
                self._away.put((request, request.onward, own_s, serialize_s))
        except Exception as error:
            request.fail(_said(error))
        finally:
            request.left()  # only now: an identity stage's output is its input

    def _come_back(self) -> None:
        while (item := self._away.get()) is not None:
            request, onward, own_s, serialize_s = item
            try:
                reply = onward.receive()
                if reply.request_id != request.number:
                    raise BackendError(
                        f"the reply to request {reply.request_id} came in place of {request.number}"
                    )
                request.answer(reply.tensors, (own_s, *reply.stages_s), serialize_s + reply.serialize_s)
            except Exception as error:
                request.fail(_said(error))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
