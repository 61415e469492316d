"""The machine itself: room, the processor's clock and what slows it, sensors, the wall clock."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pareto.hosts.checkup.case import Case
from pareto.hosts.finding import Finding
from pareto.worker.sensors.raspberry import SINCE_BOOT, throttled_words

LEAST_DISK_BYTES = 200e6
"""Code and the weights of a mobile network: with less, nothing runs."""
ENOUGH_DISK_BYTES = 1e9
"""The biggest models of the published comparisons have 550 MB of weights."""
ENOUGH_MEMORY_BYTES = 512 * 2**20
"""torch by itself takes about 250 MiB."""
MOST_CLOCK_OFF_S = 5.0

_LOW_VOLTAGE = 1 | 1 << SINCE_BOOT


def storage(case: Case) -> Iterator[Finding]:
    disk, memory = case["disk_free_bytes"], case["memory_available_bytes"]
    if disk is not None:
        words = f"{disk / 1e9:.1f} GB free for {case.member.folder}"
        mend = "sudo apt-get clean; du -xh ~ | sort -h | tail" if disk < ENOUGH_DISK_BYTES else ""
        if mend:
            words += f", and weights can take {ENOUGH_DISK_BYTES / 1e9:.0f} GB"
        yield Finding("disk", words, mend, fatal=disk < LEAST_DISK_BYTES)
    if memory is not None:
        words = f"{memory / 2**30:.1f} GiB available of {(case['memory_bytes'] or 0) / 2**30:.1f}"
        # What is to be ended is for its owner to say.
        mend = "ps -eo pid,rss,comm --sort=-rss | head" if memory < ENOUGH_MEMORY_BYTES else ""
        yield Finding("memory", words + (", which is little: end what takes it" if mend else ""), mend)


def processor(case: Case) -> Iterator[Finding]:
    governors = case["governors"]
    if governors and governors != ["performance"]:
        words = f"{', '.join(governors)}: the clock follows the load, and times with it"
        mend = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
        yield Finding("governor", words, mend)
    elif governors:
        yield Finding("governor", "performance")
    else:
        yield Finding("governor", "none to set")
    if case["throttled"] is not None:
        yield _throttling(case["throttled"])


def sensors(case: Case) -> Iterator[Finding]:
    user = shlex.quote(str(case["user"]))
    if case["vcgencmd"] == "denied":
        mend = f"sudo usermod -aG video {user}"
        yield Finding("sensors", f"vcgencmd does not answer {case['user']}: throttling goes unseen", mend)
    if case["rapl"] == "unreadable":
        mend = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        yield Finding("energy", "only root may read the processor's energy counters (RAPL)", mend)
    elif case["rapl"] == "readable":
        yield Finding("energy", "the processor counts it (RAPL)")


def clock(case: Case, now_s: float) -> Iterator[Finding]:
    if case["clock_s"] is None:
        return
    off_s = case["clock_s"] - now_s
    if abs(off_s) > MOST_CLOCK_OFF_S:
        side = "ahead of" if off_s > 0 else "behind"
        words = f"{abs(off_s):.0f} s {side} this machine's: times in logs will not match"
        yield Finding("clock", words, "sudo timedatectl set-ntp true")
    else:
        yield Finding("clock", "as here")


def _throttling(bits: int) -> Finding:
    now, before = throttled_words(bits), throttled_words(bits >> SINCE_BOOT)
    if bits & _LOW_VOLTAGE:
        mend = "use the power supply made for this board, and a shorter cable; then sudo reboot"
    else:
        mend = "cool it (a fan, a heat sink); then sudo reboot"
    if now:
        return Finding("throttling", f"right now: {', '.join(now)}", mend)
    if before:
        return Finding("throttling", f"not now, but since it was started: {', '.join(before)}", mend)
    return Finding("throttling", "none since it was started")
