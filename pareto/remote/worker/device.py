"""Where a worker computes: host tensors in, host tensors out, on the CPU or on an NVIDIA GPU; and the facts of that."""

from __future__ import annotations

import gc
import os
import platform
import re
import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch

from pareto.partitions import allocator
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import EngineError
from pareto.partitions.stage import Stage
from pareto.protocol import messages
from pareto.protocol.errors import lack_of_memory
from pareto.protocol.jsonlines import Refused
from pareto.remote.backends.base import Tensors
from pareto.remote.worker import host
from pareto.remote.worker.checkup import found
from pareto.remote.worker.sensors.energy import text

KEPT_RUNS = 10_000
"""GPU times kept for the median: more than a trial has requests."""


class Device:
    """A processor, where stages run. name: as torch knows it. warm_ups: runs until kernels and memory are fixed."""

    name = "cpu"
    warm_ups = 1

    def __init__(self) -> None:
        self._peak = host.PeakMemory()

    def run(self, stage: Stage, tensors: Tensors) -> Tensors:
        """The outputs of `stage`, whose weights are on this device, for a payload. Raises Refused without memory.

        Both are in host memory; results are contiguous and in memory of their own, but for a stage without units, which
        returns its inputs. They are there when the call returns: a clock around it covers copies as well.
        """
        with refused_out_of_memory(), torch.inference_mode():
            outputs: Tensors = stage(tensors)
        return outputs

    def current(self) -> AbstractContextManager[object]:
        """Within it this device is the one of what names none."""
        return nullcontext()

    def capability(self) -> str:
        """The compute capability of a GPU, as in '9.0'; empty for a processor."""
        return ""

    def forget(self) -> None:
        """Forget the runs that `gpu_s` is the median of."""

    def gpu_s(self) -> float | None:
        """Median seconds on the GPU a run, copies both ways included; None where no GPU worked."""
        return None

    def gpu(self) -> messages.Cuda | None:
        """The facts about the GPU that a reader of the results needs; None if it is none."""
        return None

    def stamp(self) -> Any:
        """This point of the work, for `between_s`: a time, or on a GPU an event behind all that was begun."""
        return time.perf_counter()

    def between_s(self, first: Any, second: Any) -> float:
        """Seconds from one stamp to another; waits until the work before the second is done."""
        return float(second - first)

    def peak_bytes(self) -> int | None:
        """The most memory in use since the last call: of this process, or of the GPU's allocator; None: not known."""
        peak = self._peak.nbytes()
        self._peak.begin()
        return peak


class Cuda(Device):
    """One NVIDIA GPU. Raises Refused, in one line, where there is none to be had.

    Float32 is computed as such: TensorFloat-32 keeps 10 bits of the mantissa, and a split could not be proven equal.
    cuDNN times its algorithms in the warm-up, since a stage's shapes never change.
    """

    warm_ups = 3

    def __init__(self, name: str, index: int) -> None:
        super().__init__()
        self.name = name
        self._index = index
        self._device = _usable(name, index)
        self._gpu_s: deque[float] = deque(maxlen=KEPT_RUNS)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False

    def run(self, stage: Stage, tensors: Tensors) -> Tensors:
        if not stage.has_units:
            return tensors  # there and back for nothing
        with refused_out_of_memory(), torch.inference_mode(), self.current():
            began, ended = _event(), _event()
            # Only page-locked memory is copied without the driver's staging. torch keeps freed blocks of it for
            # the next run and hands none out while a copy from or to it is under way.
            pinned = [tensor if tensor.is_pinned() else tensor.pin_memory() for tensor in tensors]
            began.record()
            outputs = stage(tuple(tensor.to(self._device, non_blocking=True) for tensor in pinned))
            results = tuple(torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in outputs)
            for result, output in zip(results, outputs, strict=True):
                result.copy_(output, non_blocking=True)
            ended.record()
            ended.synchronize()
        self._gpu_s.append(began.elapsed_time(ended) / 1000)
        return results

    def current(self) -> AbstractContextManager[object]:
        return torch.cuda.device(self._device)

    def capability(self) -> str:
        return "{}.{}".format(*torch.cuda.get_device_capability(self._device))

    def forget(self) -> None:
        self._gpu_s.clear()

    def gpu_s(self) -> float | None:
        return statistics.median(self._gpu_s) if self._gpu_s else None

    def gpu(self) -> messages.Cuda | None:
        properties = torch.cuda.get_device_properties(self._device)
        return messages.Cuda(
            index=self._index,
            name=properties.name,
            uuid=str(getattr(properties, "uuid", "")) or None,  # its index may be another one for NVML
            capability=self.capability(),
            memory_bytes=properties.total_memory,
            driver=found(r"\b(\d+\.\d+(?:\.\d+)?)\b", text(Path("/proc/driver/nvidia/version")) or ""),
            runtime=torch.version.cuda,
            cudnn=torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            tf32=torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32,
        )

    def stamp(self) -> torch.cuda.Event:
        event = _event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between_s(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        second.synchronize()
        return float(first.elapsed_time(second)) / 1000

    def peak_bytes(self) -> int | None:
        peak = torch.cuda.max_memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return peak


def named(name: str) -> Device:
    """The device 'cpu' or 'cuda:N'. Raises Refused, in one line, for another name and for what is not there."""
    if name == "cpu":
        return Device()
    if match := re.fullmatch(r"cuda:(\d+)", name):
        return Cuda(name, int(match[1]))
    raise Refused(f"unknown device {name!r}: it is cpu, or cuda:0, cuda:1 and so on")


def facts(device: Device, congestion: str | None = None) -> messages.Facts:
    """This host and where it computes; `congestion`: the congestion control that its connections are made to use."""
    lacking = engines.missing_here(device.name, device.capability())
    return messages.Facts(
        hostname=platform.node(),
        pid=os.getpid(),
        machine=platform.machine(),
        cpu=found(r"^(?:model name|Model)\s*:\s*(.*\S)", text(Path("/proc/cpuinfo")) or "")
        or platform.processor(),
        cores=sorted(os.sched_getaffinity(0)),
        governor=text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        memory_bytes=psutil.virtual_memory().total,
        swap_bytes=psutil.swap_memory().total,
        kernel=platform.release(),
        python=platform.python_version(),
        torch=torch.__version__,
        torchvision=version("torchvision"),
        threads=torch.get_num_threads(),
        collects_garbage=gc.isenabled(),
        congestion_control=congestion or text(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        slow_start_after_idle=text(Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle")),
        device=device.name,
        cuda=device.gpu(),
        engines={name: engines.version(name) for name, lacks in lacking.items() if not lacks},
        without_engines={name: lacks for name, lacks in lacking.items() if lacks},
        cores_of_machine=os.cpu_count(),
        allocator=allocator.in_force,
    )


@contextmanager
def refused_out_of_memory() -> Iterator[None]:
    """Turns whatever says that memory ran out into one clear Refused, also where an engine met it; all else passes."""
    try:
        yield
    except (MemoryError, RuntimeError, EngineError) as error:
        if (cause := lack_of_memory(error, torch.OutOfMemoryError)) is None:
            raise
        words = " ".join(str(cause).split()).rpartition("DefaultCPUAllocator: ")[2]
        raise Refused(f"out of memory: {words or 'this host has none left'}") from error


def _usable(name: str, index: int) -> torch.device:
    count, or_cpu, fault = torch.cuda.device_count(), "or say device: cpu", ""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        fault = (
            f"this host's torch ({torch.__version__}) was built without CUDA: install a CUDA build, {or_cpu}"
        )
    elif not count:
        fault = f"no NVIDIA GPU or driver found (see nvidia-smi): install it, {or_cpu}"
    elif index >= count:
        fault = f"this host's GPUs are {', '.join(f'cuda:{i}' for i in range(count))}"
    if fault:
        raise Refused(f"device {name}: {fault}")
    device = torch.device("cuda", index)
    try:
        torch.zeros(1, device=device)  # a driver that is too old, a GPU that is taken: it shows only now
    except RuntimeError as error:
        raise Refused(f"device {name}: {str(error).splitlines()[0]}") from error
    return device


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
