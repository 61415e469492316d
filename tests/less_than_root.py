"""Programs as those start them who are not root of this machine: argv prefixes.

What a container's root may do is what Docker leaves it, by the list in its documentation of `--cap-add`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pareto.hosts.local import cpu, rights
from pareto.hosts.testbed import Testbed
from tests import REPOSITORY

OF_DOCKER = (
    "chown dac_override fsetid fowner mknod net_raw setgid setuid setfcap setpcap net_bind_service sys_chroot kill "
    "audit_write"
)
USER = 54321
"""An ordinary user's number, without an account. 65534 would be whom a user namespace shows as the owner of /."""
ASK = """\
from contextlib import closing
from pareto.hosts.local.testbed import open_local
from tests.less_than_root import quota
with closing(open_local(edge_cpu=0.25)) as bed:
    print(quota(bed, "edge"))
"""


def _makes_networks() -> bool:
    try:
        return rights.find().kind == rights.ROOT and rights.sshd() is not None
    except rights.Forbidden:
        return False


MAKES_NETWORKS = os.geteuid() == 0 and _makes_networks()
"""Whether tests may make namespaces on this machine as root."""
needs_networks = pytest.mark.skipif(
    not MAKES_NETWORKS,
    reason="makes network namespaces: needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN, and openssh-server",
)


def container(*, user_namespaces: bool = True, more: tuple[str, ...] = ()) -> list[str]:
    """Root with a container's capabilities and no more. Anybody may start it who may make user namespaces."""
    bounds = ",".join(["-all", *(f"+{name}" for name in (*OF_DOCKER.split(), *more))])
    as_root = ["setpriv", "--bounding-set", bounds]
    if user_namespaces:
        return as_root
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", forbid, "sh", *as_root]


def user() -> list[str]:
    """An ordinary user without a home, a name, or a right to anything. Root alone may start it."""
    ids = f"--reuid {USER} --regid {USER} --clear-groups --bounding-set=-all --inh-caps=-all"
    be = ["env", "-u", "USER", "-u", "LOGNAME", "HOME=/nonexistent", "setpriv", *ids.split()]
    closed = _closed(Path(sys.base_prefix))
    if closed is None:
        return be
    # The interpreter is root's own: it is shown to everybody, where nobody else sees it.
    place = shlex.quote(sys.base_prefix)
    script = (
        f"cd / && exec 3<{place} && mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(closed))} && mkdir -p {place} && "
        f'mount --no-canonicalize --bind /proc/self/fd/3 {place} && exec 3<&- && cd "$0" && exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", script, str(Path.cwd()), *be]


def _closed(path: Path) -> Path | None:
    """The outermost folder on the way there that is not everybody's to enter."""
    return next((it for it in reversed(path.parents) if not it.stat().st_mode & 0o001), None)


@contextmanager
def delegated_cgroup() -> Iterator[list[str]]:
    """A cgroup that is USER's: the argv prefix that enters it. Nothing may be left in it but the group entered."""
    parent, version = cpu._controller()
    delegated = parent / "pareto-test-delegated"
    inner = delegated / "of-the-user"
    delegated.mkdir()
    try:
        if version == 2:
            for group in (parent, delegated):
                (group / "cgroup.subtree_control").write_text("+cpu")
        inner.mkdir()
        for group in (delegated, inner):
            for path in (group, group / "cgroup.procs"):
                os.chown(path, USER, USER)
        yield ["sh", "-c", f'echo $$ > {inner}/cgroup.procs && exec "$@"', "sh"]
        assert [path.name for path in delegated.iterdir() if path.is_dir()] == ["of-the-user"]
    finally:
        for group in (*delegated.glob("*/"), delegated):
            group.rmdir()


def quota(bed: Testbed, role: str) -> float:
    """The share of a core that the cgroup of a host's programs leaves them."""
    root, top, version = cpu._hierarchy("cpu", Path("/proc"))
    lines = bed.remotes[role].connection.run("cat /proc/self/cgroup").out.splitlines()
    groups = {
        name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")
    }
    of = top / os.path.relpath(groups["cpu" if version == 1 else ""], root)
    files = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quota_us, period_us = " ".join((of / name).read_text() for name in files).split()
    return int(quota_us) / int(period_us)


def share_of_a_quarter(who: list[str]) -> float:
    """What the cgroup of an edge with `--edge-cpu 0.25` leaves it of a core, on a testbed that `who` builds."""
    argv = [*who, sys.executable, "-B", "-c", ASK]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)
