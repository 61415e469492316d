"""torch.compile with its default backend, Inductor, which writes C++ for the stage and has it compiled.

Weights are frozen: what follows from them alone, such as a batch norm that goes into its convolution, is computed once.
Without that MobileNetV2 takes 11.0 ms here and not 6.8, and a half of ResNet18 is slower than eager.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import ExitStack

import torch

from partitions import scratch
from partitions.engines.base import EngineError, Run, one_example, reason
from partitions.stage import Payload, Stage

OPTIONS = {"freezing": True, "compile_threads": 1}
"""One thread compiles, in this process: others would stay, and take the cores that a trial is measured on."""


class Compiler:
    """Compiled code lies in a scratch folder, and is used again for a stage that comes back."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def build(self, stage: Stage, example: Payload, key: Hashable) -> Run:
        """As `base.Builder` has it."""
        if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
            folder = self._held.enter_context(scratch.folder())
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
            self._held.callback(os.environ.pop, "TORCHINDUCTOR_CACHE_DIR", None)
        self.release()  # of another stage's code it would first ask whether it fits
        body = stage.body
        assert body is not None  # noqa: S101
        try:
            compiled = torch.compile(body, fullgraph=True, dynamic=False, options=dict(OPTIONS))
            with torch.inference_mode():
                compiled(*one_example(example))  # it is compiled now, before anything is timed
        except Exception as error:  # the compiler's own errors have no common type
            raise EngineError(f"torch.compile does not take the stage: {reason(error)}") from error

        def run(tensors: Payload) -> Payload:
            results: Payload = compiled(*tensors)
            return results

        return run

    def release(self) -> None:
        torch.compiler.reset()

    def close(self) -> None:
        self.release()
        self._held.close()


def builder(threads: int) -> Compiler:
    """A compiler for as many threads as torch has here."""
    return Compiler()
