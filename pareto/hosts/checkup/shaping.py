"""Whether the host can be made to shape the link: the kernel's netem, and root's rights for one program."""

from __future__ import annotations

from collections.abc import Iterator

from pareto.hosts import privileged
from pareto.hosts.checkup.case import Case
from pareto.hosts.finding import Finding
from pareto.hosts.host import TestbedError

_DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armmp"}


def netem(case: Case, shaped: bool) -> Iterator[Finding]:
    """What the privileged program found by trying goes before what the kernel's files say."""
    by_files, tried = case["netem"], case["netem_supported"]
    kernel = f"the kernel {case['kernel']}"
    if tried or (tried is None and by_files not in (None, "absent")):
        how = f" ({by_files})" if by_files not in (None, "absent") else ""
        yield Finding("netem", f"{kernel} has sch_netem{how}")
    elif tried is None and by_files is None:
        yield Finding("netem", f"whether {kernel} has sch_netem cannot be seen", "sudo modprobe sch_netem")
    elif by_files == "module":
        words = f"{kernel} has sch_netem as a module that it does not load"
        yield Finding("netem", words, "sudo modprobe sch_netem", fatal=shaped)
    elif by_files is None:
        words = f"sch_netem cannot be loaded: the modules of {kernel} are not there, as after an update of it"
        yield Finding("netem", words, "sudo reboot", fatal=shaped)
    else:
        yield Finding(
            "netem", f"{kernel} has no sch_netem to shape the link with", _kernel(case), fatal=shaped
        )


def privileges(case: Case, shaped: bool, digest: str) -> Iterator[Finding]:
    if case["uid"] == 0:
        yield Finding("rights", "logged in as root: nothing to permit")
        return
    told = case["privileged"] or {}
    try:
        line = privileged.sudoers_line(str(case["user"]))
    except TestbedError as error:
        yield Finding(
            "rights", str(error), f"say user: for {case.member.name} in {case.testbed}", fatal=shaped
        )
        return
    if told.get("digest") == digest:
        yield Finding("rights", f"sudo lets {case['user']} start {privileged.LAUNCHER}")
        return
    permit = f"echo '{line}' | sudo tee -a {privileged.SUDOERS}"
    if not told.get("sudo"):
        words, mend = f"no sudo, with which to start {privileged.LAUNCHER}", "su -c 'apt-get install -y sudo'"
    elif not told.get("installed"):
        words, mend = f"{privileged.LAUNCHER}, which shapes the link, is not installed", case.set_up
    elif told.get("digest"):
        words, mend = f"an older version of {privileged.LAUNCHER} is installed", case.set_up
    elif "password" in told.get("words", "") or not told.get("allowed"):
        words, mend = f"sudo does not let {case['user']} start {privileged.LAUNCHER} unasked", permit
    else:
        words, mend = f"{privileged.LAUNCHER} does not work: {told['words']}", case.set_up
    yield Finding("rights", words, mend, fatal=shaped)


def left_behind(case: Case, shaped: bool) -> Iterator[Finding]:
    """A host that shapes puts it back first; a sweep of the link as it is would measure it."""
    for interface in case["left_shaped"] or ():
        words = f"interface {interface} is still shaped by a run that was killed"
        mend = f"./pareto.sh doctor --testbed {case.testbed} --repair"
        yield Finding("left behind", words, mend, fatal=not shaped)


def _kernel(case: Case) -> str:
    """What brings a kernel that has it."""
    if case.system == "ubuntu":
        return f"sudo apt-get install -y linux-modules-extra-{case['kernel']}"
    if case.system in ("fedora", "rhel", "centos", "rocky", "almalinux"):
        return f"sudo dnf install -y kernel-modules-extra-{case['kernel']}"
    if str(case["board"] or "").startswith("Raspberry Pi"):
        return "sudo apt-get full-upgrade -y && sudo reboot"
    # Debian's kernels for clouds lack it.
    package = f"linux-image-{_DEBIAN_NAMES.get(str(case['machine']), 'amd64')}"
    return f"sudo apt-get install -y {package} && sudo reboot"
