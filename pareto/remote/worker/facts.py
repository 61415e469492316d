"""The facts of this host and of where it computes, as the manifest records them."""

from __future__ import annotations

import gc
import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil
import torch

from pareto.partitions import allocator
from pareto.partitions.engines import registry as engines
from pareto.protocol.messages import Facts
from pareto.remote.worker.device import Device
from pareto.remote.worker.sensors.energy import text


def facts(device: Device, congestion: str | None = None) -> Facts:
    """This host and where it computes; `congestion`: the congestion control that its connections are made to use."""
    lacking = engines.missing_here(device.name, device.capability())
    return Facts(
        hostname=platform.node(),
        pid=os.getpid(),
        machine=platform.machine(),
        cpu=_cpu_model(),
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


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor()
