"""`python3 -m pareto.remote.worker.checkup`: what this host has for a sweep, and what it lacks, as facts.

It reads one JSON object on stdin (`data_address`, `peers`: its neighbours' addresses, `device`, `folder`, `launcher`:
the path of the privileged program) and prints one on stdout. A fact that cannot be had is null. Sizes are in bytes,
`clock_s` is the wall clock, speeds are in Mbit/s. It needs the standard library alone, and no syntax newer than Python
3.7: a host which is not set up can tell what it lacks.
"""

from __future__ import annotations

import array
import fcntl
import getpass
import gzip
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "safetensors", "psutil", "numpy", "pyroute2", "nvidia-ml-py")
JOURNAL = "/run/pareto-link"

_SIOCGIFCONF, _SIOCGIFFLAGS, _SIOCGIFNETMASK = 0x8912, 0x8913, 0x891B
_UP, _RUNNING = 0x1, 0x40
_CPUS, _GOVERNORS = "/sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_governor"
_THROTTLED = ("vcgencmd", "get_throttled")
_ENOUGH_ADDRESSES = 256
_ASK_CUDA = """
import ctypes
cuda, count, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
cuda.cuDriverGetVersion(ctypes.byref(version))
cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
print(count.value, version.value // 1000, version.value % 1000 // 10)
"""


def facts(request: dict[str, Any]) -> dict[str, Any]:
    address, launcher, folder = (str(request.get(key)) for key in ("data_address", "launcher", "folder"))
    looks: dict[str, Callable[[], object]] = {
        "python": platform.python_version,
        "executable": lambda: sys.executable,
        "packages": _packages,
        "torch_cuda": _torch_cuda,
        "requirements": lambda: _read(folder + "/venv/.requirements"),
        "user": getpass.getuser,
        "uid": os.geteuid,
        "machine": platform.machine,
        "kernel": platform.release,
        "system": lambda: found(r"^ID=\"?([\w.-]+)", _read("/etc/os-release")),
        "board": lambda: _read("/proc/device-tree/model").rstrip("\0"),
        "netem": _netem,
        "netem_supported": lambda: _netem_supported(launcher),
        "privileged": lambda: _privileged(launcher),
        "left_shaped": _left_shaped,
        "interfaces": _interfaces,
        "routes": lambda: {str(peer): _had(partial(_route, str(peer))) for peer in request["peers"]},
        "listens": lambda: _listens(address),
        "disk_free_bytes": lambda: _disk_free(folder),
        "memory_bytes": lambda: _bytes(r"^MemTotal: *(\d+) kB"),
        "memory_available_bytes": lambda: _bytes(r"^MemAvailable: *(\d+) kB"),
        "governors": lambda: sorted({_read(str(file)) for file in Path(_CPUS).glob(_GOVERNORS)}),
        "vcgencmd": _vcgencmd,
        # The firmware's bits: see get_throttled in Raspberry Pi's documentation.
        "throttled": lambda: int(run(_THROTTLED).stdout.strip().partition("=")[2], 16),
        "rapl": _rapl,
        "gpus": _gpus,
        "cuda": lambda: _cuda() if str(request.get("device")).startswith("cuda") else None,
        "congestion_control": lambda: _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "slow_start_after_idle": lambda: int(_read("/proc/sys/net/ipv4/tcp_slow_start_after_idle")),
        "clock_s": time.time,  # last, for it is compared with the moment at which this arrives
    }
    return {name: _had(look) for name, look in looks.items()}


def _had(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except Exception:  # whatever a strange host does, the other facts are wanted
        return None


def _read(path: str) -> str:
    return Path(path).read_text(errors="replace").strip()


def run(argv: Sequence[str], timeout_s: float = 10.0) -> subprocess.CompletedProcess[str]:
    """Run a program without input, with English output. Raises OSError where it is not there."""
    return subprocess.run(  # noqa: S603
        list(argv),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        env=dict(os.environ, LC_ALL="C"),
    )


# What is installed


def _packages() -> dict[str, str | None]:
    from importlib.metadata import version  # Python 3.7 has none

    return {name: _had(partial(version, name)) for name in PACKAGES}


def _torch_cuda() -> str | None:
    """The CUDA that torch was built for, without the seconds that importing torch takes."""
    spec = importlib.util.find_spec("torch")
    text = Path(spec.origin).with_name("version.py").read_text() if spec and spec.origin else ""
    return found(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)", text)


def found(pattern: str, text: str) -> str | None:
    """The first match of the pattern's group in a text; None without one."""
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else None


# Shaping the link


def _netem() -> str | None:
    """Where sch_netem is, by the running kernel's files: loaded, built in, module (can be loaded) or absent."""
    release = platform.release()
    modules = Path("/lib/modules", release)
    if Path("/sys/module/sch_netem").exists():
        return "loaded"
    if "/sch_netem.ko" in (_had((modules / "modules.builtin").read_text) or ""):
        return "built in"
    listed = _had((modules / "modules.dep").read_text)
    if listed is not None:
        return "module" if "/sch_netem.ko" in listed else "absent"
    config = _had(lambda: gzip.decompress(Path("/proc/config.gz").read_bytes()).decode())
    config = config or _had(Path("/boot", "config-" + release).read_text)
    if config is None or "CONFIG_NET_SCH_NETEM=m" in config:
        return None  # a module, of which nobody knows where it is
    return "built in" if "CONFIG_NET_SCH_NETEM=y" in config else "absent"


def _privileged(launcher: str) -> dict[str, Any]:
    """The privileged program. digest: its own, if it may be started. words: why it may not."""
    facts = {"sudo": shutil.which("sudo") is not None, "installed": Path(launcher).exists()}
    if all(facts.values()) and os.geteuid() != 0:
        done = run(["sudo", "-n", launcher, "--digest"])
        said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        return {
            **facts,
            "allowed": run(["sudo", "-n", "-l", launcher]).returncode == 0,
            "digest": None if done.returncode else done.stdout.strip(),
            "words": said.splitlines()[-1].strip() if done.returncode else "",
        }
    return facts


def _netem_supported(launcher: str) -> bool | None:
    """Whether netem can be used, which the privileged program finds out by trying; None: it cannot be started."""
    as_root = [sys.executable, "-B", "-m", "pareto.remote.link"]
    done = run([*(["sudo", "-n", launcher] if os.geteuid() else as_root), "--supported"], 15.0)
    return {"True": True, "False": False}.get(done.stdout.strip())


def _left_shaped() -> list[str]:
    """Interfaces that a program which was killed left shaped. Its lock went with it, unlike a living one's."""
    held = _read("/proc/locks")
    files = sorted(Path(JOURNAL).glob("[0-9]*.json"))
    return [file.stem.partition("-")[2] for file in files if f":{file.stat().st_ino} " not in held]


# The network


def _interfaces() -> list[dict[str, Any]]:
    addresses = _addresses()
    return [
        {"name": name, "addresses": [own for owner, own in addresses if owner == name], **_state(name, index)}
        for index, name in socket.if_nameindex()
    ]


def _state(name: str, index: int) -> dict[str, Any]:
    """The interface as its folder in sysfs has it. Its flags follow the carrier up to a second late."""
    folder = Path("/sys/class/net", name)
    if _had((folder / "ifindex").read_text) != f"{index}\n":
        folder = Path("/none")  # in another network namespace than its mounter's, sysfs has other interfaces
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16s24x", name.encode()))
    flags = struct.unpack_from("H", answer, 16)[0]
    carrier = _had((folder / "carrier").read_text)
    speed = _had(lambda: int((folder / "speed").read_text())) or 0
    return {
        "wireless": any((folder / entry).exists() for entry in ("wireless", "phy80211")),
        "speed_mbps": speed if speed > 0 else None,
        "up": bool(flags & _UP),
        "carrier": carrier == "1\n" if carrier else bool(flags & _RUNNING),
    }


def _addresses() -> list[tuple[str, str]]:
    """Interfaces and their IPv4 addresses as in 192.168.7.2/24."""
    size = 40 if struct.calcsize("P") == 8 else 32  # of a struct ifreq: a name, a struct sockaddr, padding
    buffer, addresses = array.array("B", bytes(size * _ENOUGH_ADDRESSES)), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        where = struct.pack("iP", len(buffer), buffer.buffer_info()[0])
        filled = struct.unpack("iP", fcntl.ioctl(any_socket, _SIOCGIFCONF, where))[0]
        for start in range(0, filled, size):
            entry = bytes(buffer[start : start + size])
            name = entry[:16].partition(b"\0")[0].decode().partition(":")[0]  # eth0:1 is a label
            mask = fcntl.ioctl(any_socket, _SIOCGIFNETMASK, entry)[20:24]
            prefix = bin(int.from_bytes(mask, "big")).count("1")
            addresses.append((name, f"{socket.inet_ntoa(entry[20:24])}/{prefix}"))
    return addresses


def _route(peer: str) -> dict[str, str | None]:
    """How packets to another host would leave; none is sent. Raises OSError where there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        source = probe.getsockname()[0]
    owners = [name for name, address in _addresses() if address.partition("/")[0] == source]
    # That this host has the address itself is the one case in which packets do not leave by the source's interface.
    return {"source": source, "interface": "lo" if source == peer else owners[0] if owners else None}


def _listens(address: str) -> bool | str:
    """True if a program can listen on the address, or else why not."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind((address, 0))
            listener.listen(1)
        return True
    except OSError as error:
        return error.strerror or str(error)


# The machine


def _disk_free(folder: str) -> int:
    path = Path(folder)
    return shutil.disk_usage(str(next(each for each in (path, *path.parents) if each.exists()))).free


def _bytes(pattern: str) -> int:
    return int(found(pattern, _read("/proc/meminfo")) or "") * 1024


def _vcgencmd() -> str:
    """Whether vcgencmd works: readable, denied (as to a user who may not open the firmware's mailbox) or absent."""
    try:
        return "readable" if "throttled=" in run(_THROTTLED).stdout else "denied"
    except OSError:
        return "absent"


def _rapl() -> str:
    try:
        _read("/sys/class/powercap/intel-rapl:0/energy_uj")
        return "readable"
    except OSError as error:
        return "unreadable" if isinstance(error, PermissionError) else "absent"


def _gpus() -> list[dict[str, str]]:
    """The GPUs; None where there is no nvidia-smi, empty where it finds none or does not work."""
    done = run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], 30.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(("name", "driver", "memory"), row)) for row in rows if len(row) == 3]  # noqa: B905


def _cuda() -> dict[str, Any]:
    """The devices and the CUDA version that the driver reports, asked in a process that may hang or crash."""
    done = run([sys.executable, "-c", _ASK_CUDA], 30.0)
    devices, major, minor = (int(word) for word in done.stdout.split())
    return {"devices": devices, "version": f"{major}.{minor}"}


def main() -> None:
    print(json.dumps(facts(json.loads(sys.stdin.read()))))


if __name__ == "__main__":
    main()
