"""`python -m pareto.remote.worker`: one device, unprivileged. It answers the requests of `pareto.protocol.messages`."""

from __future__ import annotations

import argparse
import gc
import sys

if __name__ == "__main__":
    gc.disable()  # what is imported stays: to look through it again and again takes a tenth of the start

import torch

from pareto.partitions import allocator
from pareto.protocol import messages
from pareto.protocol.jsonlines import Refused, serve
from pareto.remote.worker import connections, device
from pareto.remote.worker.device import refused_out_of_memory
from pareto.remote.worker.worker import Worker, answers


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.remote.worker")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    parser.add_argument("--allocator", default=allocator.TUNED, choices=(allocator.TUNED, allocator.DEFAULT))
    parser.add_argument("--congestion", help="the congestion control of every connection")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.allocator == allocator.TUNED:
        allocator.keep_freed()
    else:
        allocator.untouched()
    gc.collect()
    gc.freeze()  # nor need it be looked through before each trial
    gc.disable()
    try:
        if arguments.congestion is not None:
            connections.require_congestion(arguments.congestion)
        worker = Worker(device.named(arguments.device), arguments.congestion)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
    guarded = {request: refused_out_of_memory()(answer) for request, answer in answers(worker).items()}
    serve(messages.handlers(guarded), at_end=worker.forget_engines)


if __name__ == "__main__":
    main()
