"""The state of a host of a testbed file: facts from `pareto.remote.worker.checkup` there, judged here.

The doctor prints the findings, and a sweep starts only where none is fatal: both call `examine`.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pareto import COMMAND
from pareto.hosts import parcels
from pareto.hosts.connection import Connection
from pareto.hosts.host import TestbedError, is_virtual
from pareto.hosts.inventory import HostEntry, Inventory, Side
from pareto.hosts.setup import finding, privileged
from pareto.hosts.setup.finding import RED_HATS, Case, Finding
from pareto.remote.worker.sensors.throttled import SINCE_BOOT, throttled_words

SHAPING = ("netem", "rights")
"""The findings that only a sweep of an emulated link has."""
ASK_TIMEOUT_S = 120.0
"""A GPU driver that nobody uses needs seconds to answer, and some of them many."""
LEAST_DISK_BYTES = 200e6
"""Code and the weights of a mobile network: with less, nothing runs."""
ENOUGH_DISK_BYTES = 1e9
"""The biggest models of the published comparisons have 550 MB of weights."""
ENOUGH_MEMORY_BYTES = 512 * 2**20
"""torch by itself takes about 250 MiB."""
MOST_CLOCK_OFF_S = 5.0

_LOW_VOLTAGE = 1 | 1 << SINCE_BOOT
_DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armmp"}

_ASK = """
chosen=
for each in @PYTHONS@; do
    command -v "$each" >/dev/null || continue
    : "${chosen:=$each}"
    if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then chosen=$each; break; fi
done
[ -n "$chosen" ] || exit 127
too_old='import sys; sys.version_info < (3, 7) and sys.exit("{\\"python\\": \\"%d.%d\\"}" % sys.version_info[:2])'
"$chosen" -c "$too_old" 2>&1 || exit 0
case $chosen in */*) chosen=$(cd "${chosen%/*}" && pwd)/${chosen##*/} ;; esac
cd @CODE@ && PYTHONDONTWRITEBYTECODE=1 exec "$chosen" -m pareto.remote.worker.checkup
"""


def ask(connection: Connection, entry: HostEntry, sides: Sequence[Side]) -> dict[str, Any]:
    """The host's facts, with its routes to its neighbours, by `pareto.remote.worker.checkup`. Raises Unreachable.

    `clock_off_s` is how far its clock is ahead of this machine's. A host without Python has `python` None; one whose
    Python does not work has `fault` too, its last words; an older one than the checkup takes has its version alone.
    """
    folder = parcels.absolute(connection, entry.folder)
    code = parcels.ship_code(connection, folder)
    pythons = (entry.python,) if entry.python else (f"{folder}/venv/bin/python", *finding.PYTHONS)
    request = {
        "data_address": entry.data_address,
        "peers": [side.peer for side in sides],
        "device": entry.device,
        "folder": folder,
        "launcher": privileged.LAUNCHER,
    }
    script = _ASK.replace("@PYTHONS@", shlex.join(pythons)).replace("@CODE@", shlex.quote(code))
    outcome = connection.run(script, [json.dumps(request).encode()], timeout_s=ASK_TIMEOUT_S)
    if outcome.status == 127:
        return {"python": None, "fault": ""}
    try:
        # The last line: a shell's start-up files may have printed something before.
        report = json.loads(outcome.out.strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict):
        return {"python": None, "fault": outcome.words}
    if report.get("clock_s") is not None:
        report["clock_off_s"] = report["clock_s"] - time.time()
    return report


def examine(
    connection: Connection, file: Inventory, role: str, *, shaped: bool, alone: bool = False
) -> tuple[Case, list[Finding]]:
    """The host in a role, and what its facts mean. shaped: it has to shape a link. alone: without a link and other
    hosts. Raises Unreachable."""
    entry, sides = (file.one(role), ()) if alone else (file.roles[role], file.sides[role])
    case = Case(entry, sides, ask(connection, entry, sides), str(file.path))
    return case, [*findings(case, shaped=shaped)]


def findings(case: Case, *, shaped: bool) -> Iterator[Finding]:
    """The findings for a sweep that follow from the facts; what is fine is included."""
    yield from finding.of_python(case)
    if "kernel" not in case.facts:  # no Python that the checkup runs on
        return
    if shaped:
        yield from (_netem(case), _rights(case))
    for interface in case["left_shaped"] or ():
        words = f"interface {interface} is still shaped by a run that was killed"
        # A host that shapes puts it back first; a sweep of the link as it is would measure it.
        fix = f"{COMMAND} doctor --testbed {case.testbed} --repair"
        yield Finding("left behind", words, fix, fatal=not shaped)
    # Where a host in the middle has all its neighbours in one network, both of its sides are one.
    yield from dict.fromkeys(one for side in case.sides for one in _side(case, side))
    for side in (one for one in case.sides[:1] if case.owners(one.address)):
        if case["listens"] is not True:
            words = f"cannot listen on {side.address}: {case['listens']}"
            yield Finding("listening", words, f"ip address show dev {case.interface(side)}", fatal=True)
        else:
            yield Finding("listening", f"can listen on {side.address}")
    yield from _machine(case)
    yield from finding.of_gpu(case)
    control = f"{case['congestion_control'] or 'unknown'} congestion control"
    if case["slow_start_after_idle"]:
        words = f"{control}; after each pause a connection starts slowly again, at the cost of round trips"
        yield Finding("tcp", words, "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0")
    else:
        yield Finding("tcp", control)


def _netem(case: Case) -> Finding:
    """The privileged program's own trial of netem counts more than what the kernel's files say."""
    by_files, tried, kernel = case["netem"], case["netem_supported"], f"the kernel {case['kernel']}"
    is_there = by_files not in (None, "absent")
    if tried or (tried is None and is_there):
        return Finding("netem", f"{kernel} has sch_netem" + (f" ({by_files})" if is_there else ""))
    if tried is None and by_files is None:
        words = f"whether {kernel} has sch_netem cannot be seen"
        return Finding("netem", words, "sudo modprobe sch_netem")
    words = f"{kernel} has no sch_netem to shape the link with"
    if by_files == "module":
        words, fix = f"{kernel} has sch_netem as a module that it does not load", "sudo modprobe sch_netem"
    elif by_files is None:
        words = f"sch_netem cannot be loaded: the modules of {kernel} are not there, as after an update of it"
        fix = "sudo reboot"
    elif case["system"] == "ubuntu":
        fix = case.install(f"linux-modules-extra-{case['kernel']}")
    elif case["system"] in RED_HATS:
        fix = case.install(f"kernel-modules-extra-{case['kernel']}")
    elif str(case["board"] or "").startswith("Raspberry Pi"):
        fix = "sudo apt-get full-upgrade -y && sudo reboot"
    else:  # Debian's kernels for clouds lack it
        package = f"linux-image-{_DEBIAN_NAMES.get(str(case['machine']), 'amd64')}"
        fix = f"{case.install(package)} && sudo reboot"
    return Finding("netem", words, fix, fatal=True)


def _rights(case: Case) -> Finding:
    helper, user, program = case["privileged"] or {}, str(case["user"]), privileged.LAUNCHER
    if case["uid"] == 0:
        return Finding("rights", "logged in as root: nothing to permit")
    try:
        line = privileged.sudoers_line(user)
    except TestbedError as error:
        return Finding("rights", str(error), f"say user: for {case.entry.name} in {case.testbed}", fatal=True)
    if helper.get("digest") == privileged.digest():
        return Finding("rights", f"sudo lets {user} start {program}")
    fix = case.set_up
    if not helper.get("sudo"):
        words, fix = f"no sudo, with which to start {program}", "su -c 'apt-get install -y sudo'"
    elif not helper.get("installed"):
        words = f"{program}, which shapes the link, is not installed"
    elif helper.get("digest"):
        words = f"an older version of {program} is installed"
    elif "password" in helper.get("words", "") or not helper.get("allowed"):
        words = f"sudo does not let {user} start {program} unasked"
        fix = f"echo '{line}' | sudo tee -a {privileged.SUDOERS}"
    else:
        words = f"{program} does not work: {helper['words']}"
    return Finding("rights", words, fix, fatal=True)


def _side(case: Case, side: Side) -> Iterator[Finding]:
    """The data interface on that side, and by which the neighbour's packets leave."""
    address, named, peer, testbed = side.address, side.interface, side.peer, case.testbed
    key = "data" if address == case.entry.data_address else "next"
    interfaces = {each["name"]: each for each in case["interfaces"] or ()}
    owners, fix = case.owners(address), ""
    name = named or next(iter(owners), "")
    if not owners:
        others = [each for each in interfaces.values() if each["name"] != "lo"]
        there = ", ".join(f"{own} on {each['name']}" for each in others for own in each["addresses"])
        has = f"which has {there or 'none'}"
        fault = f"the {key} address {address} is not on this host, {has}; correct that or {testbed}"
        # What is meant may be a wired card, best one that has no address yet.
        cards = [each for each in others if not is_virtual(each["name"])]
        cards.sort(key=lambda each: (each["wireless"], bool(each["addresses"])))
        likely = named or next((each["name"] for each in cards), "eth0")
        fix = f"sudo ip address add {address}/24 dev {likely}"
    elif name not in owners:
        fault = f"{address} is on {owners[0]}, not on {named}"
        fix = f"say {key}_interface: {owners[0]} for {case.entry.name} in {testbed}"
    elif not interfaces[name]["up"]:
        fault, fix = f"{name} is down", f"sudo ip link set {name} up"
    elif not interfaces[name]["carrier"]:
        fault, fix = f"{name} has no carrier", f"plug in the cable of {name}"
    if fix:
        yield Finding("data link", fault, fix, fatal=True)
        return
    speed = interfaces[name]["speed_mbps"]
    yield Finding("data link", f"{address} on {name}" + (f", {speed} Mbit/s" if speed else ""))
    if interfaces[name]["wireless"]:
        traffic = "other people's traffic, and the weather of the air, will be in the figures"
        fix = f"join the hosts by a cable and say its addresses in {testbed}"
        yield Finding("data link", f"{name} is wireless: {traffic}", fix)
    route = (case["routes"] or {}).get(peer)
    fix = f"sudo ip route replace {peer} dev {name} src {address}"
    if route is None:
        words = f"there is no route to {peer}"
    elif route["interface"] == "lo":
        words = f"{peer} is an address of this host itself"
        fix = f"say the other host's own data_address in {testbed}"
    elif route["interface"] == name:
        words, fix = f"packets to {peer} leave through {name}", ""
    else:
        words = (
            f"packets to {peer} leave through {route['interface']} ({route['source']}), not through {name}"
        )
    yield Finding("route", words, fix, fatal=fix != "")


def _machine(case: Case) -> Iterator[Finding]:
    """Findings on its disk, memory, processor, sensors and clock."""
    disk, memory, off_s = case["disk_free_bytes"], case["memory_available_bytes"], case["clock_off_s"]
    governors, bits = case["governors"], case["throttled"]
    if disk is not None:
        words, fix = f"{disk / 1e9:.1f} GB free for {case.entry.folder}", ""
        if disk < ENOUGH_DISK_BYTES:
            words += f", and weights can take {ENOUGH_DISK_BYTES / 1e9:.0f} GB"
            fix = "sudo apt-get clean; du -xh ~ | sort -h | tail"
        yield Finding("disk", words, fix, fatal=disk < LEAST_DISK_BYTES)
    if memory is not None:
        words, fix = f"{memory / 2**30:.1f} GiB available of {(case['memory_bytes'] or 0) / 2**30:.1f}", ""
        if memory < ENOUGH_MEMORY_BYTES:
            words += ", which is little: end what takes it"
            fix = "ps -eo pid,rss,comm --sort=-rss | head"  # what to end is for its owner to say
        yield Finding("memory", words, fix)
    words, fix = "performance" if governors else "none to set", ""
    if governors and governors != ["performance"]:
        words = f"{', '.join(governors)}: the clock follows the load, and times with it"
        fix = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    yield Finding("governor", words, fix)
    if bits is not None:
        now, before = (", ".join(throttled_words(each)) for each in (bits, bits >> SINCE_BOOT))
        words = f"right now: {now}" if now else f"not now, but since it was started: {before}"
        fix = "cool it (a fan, a heat sink); then sudo reboot"
        if bits & _LOW_VOLTAGE:
            fix = "use the power supply made for this board, and a shorter cable; then sudo reboot"
        if not now and not before:
            words, fix = "none since it was started", ""
        yield Finding("throttling", words, fix)
    if case["vcgencmd"] == "denied":
        fix = f"sudo usermod -aG video {shlex.quote(str(case['user']))}"
        yield Finding("sensors", f"vcgencmd does not answer {case['user']}: throttling goes unseen", fix)
    if case["rapl"] == "unreadable":
        fix = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
        yield Finding("energy", "only root may read the processor's energy counters (RAPL)", fix)
    elif case["rapl"] == "readable":
        yield Finding("energy", "the processor counts it (RAPL)")
    if off_s is not None:
        words, fix = "as here", ""
        if abs(off_s) > MOST_CLOCK_OFF_S:
            side = "ahead of" if off_s > 0 else "behind"
            words = f"{abs(off_s):.0f} s {side} this machine's: times in logs will not match"
            fix = "sudo timedatectl set-ntp true"
        yield Finding("clock", words, fix)
