"""What healthy hosts tell of themselves, as `pareto.remote.worker.checkup` prints it."""

from __future__ import annotations

from typing import Any

from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import finding

DIGEST = "d1ge57"

PI = HostEntry("pi", "edge", "pi@pi.local", "192.168.7.2")
GPU = HostEntry("gpu", "server", "gpu.lab", "192.168.7.1", device="cuda:0")


def interface(name: str, *addresses: str, **changed: Any) -> dict[str, Any]:
    plain = {"up": True, "carrier": True, "speed_mbps": 1000, "wireless": False}
    return {"name": name, "addresses": list(addresses), **plain, **changed}


def pi(**changed: Any) -> dict[str, Any]:
    """A Raspberry Pi 5, joined to the server by a cable and to the rest of the world by Wi-Fi."""
    return {
        "python": "3.11.2", "executable": "/home/pi/.pareto/venv/bin/python",
        "packages": {
            "torch": "2.13.0+cpu", "torchvision": "0.28.0", "safetensors": "0.8.0", "psutil": "7.2.2",
            "numpy": "2.4.6", "pyroute2": "0.9.7", "nvidia-ml-py": None,
        },
        "torch_cuda": None, "requirements": finding.digest(finding.REQUIREMENTS.read_bytes()),
        "user": "pi", "uid": 1000, "machine": "aarch64", "kernel": "6.12.25+rpt-rpi-2712", "system": "debian",
        "board": "Raspberry Pi 5 Model B Rev 1.0", "netem": "module", "netem_supported": True,
        "privileged": {"sudo": True, "installed": True, "allowed": True, "digest": DIGEST, "words": ""},
        "left_shaped": [],
        "interfaces": [
            interface("lo", "127.0.0.1/8", speed_mbps=None),
            interface("eth0", "192.168.7.2/24"),
            interface("wlan0", "10.0.0.17/24", wireless=True, speed_mbps=None),
        ],
        "routes": {"192.168.7.1": {"source": "192.168.7.2", "interface": "eth0"}},
        "listens": True, "disk_free_bytes": 21_000_000_000, "memory_bytes": 8 << 30,
        "memory_available_bytes": 7 << 30, "governors": ["performance"], "vcgencmd": "readable",
        "throttled": 0, "rapl": "absent", "gpus": None, "cuda": None, "congestion_control": "cubic",
        "slow_start_after_idle": 0, "clock_off_s": 0.4,
        **changed,
    }  # fmt: skip


def gpu(**changed: Any) -> dict[str, Any]:
    """A server with one GPU, on which the user is not root."""
    return pi(
        executable="/home/ada/.pareto/venv/bin/python",
        packages={**pi()["packages"], "torch": "2.13.0+cu126", "nvidia-ml-py": "13.615.71"},
        torch_cuda="12.6", user="ada", machine="x86_64", kernel="6.8.0-60-generic", system="ubuntu", board=None,
        interfaces=[
            interface("lo", "127.0.0.1/8", speed_mbps=None),
            interface("eno1", "10.0.0.5/24"),
            interface("enp3s0", "192.168.7.1/24"),
        ],
        routes={"192.168.7.2": {"source": "192.168.7.1", "interface": "enp3s0"}},
        vcgencmd="absent", throttled=None, rapl="readable",
        gpus=[{"name": "NVIDIA RTX A4000", "driver": "550.54", "memory": "16376 MiB"}],
        cuda={"devices": 1, "version": "12.4"},
        **changed,
    )  # fmt: skip
