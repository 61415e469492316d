"""What a guest boots: Debian's own kernel and its modules, fetched once and unpacked, never installed."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import lzma
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".vm"

# The one for virtual machines: 27 MB, and it has every queueing discipline.
KERNEL_PACKAGE = "linux-image-cloud-amd64"
# What the initrd needs to reach the root; all else is loaded from there.
BOOT_MODULES = ("virtio_pci", "virtiofs", "overlay")
INSTALL_LIMIT_S = 600
# Somebody else may be installing just now.
_APT = ("apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={INSTALL_LIMIT_S // 2}")

# Debian 13 has one in Rust in a package of its own, Debian 12 one in C in qemu-system-common. The first would tell
# the guest where this machine's mounts are, and an overlay refuses to look into those.
VIRTIOFSD = {
    Path("/usr/libexec/virtiofsd"): ("--no-announce-submounts",),
    Path("/usr/lib/qemu/virtiofsd"): (),
}
# Where root's PATH has no sbin, as after `su`.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


class UnavailableError(RuntimeError):
    """No guest can be had on this machine: one line that says why."""


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel, and the programs that a guest with it needs."""

    root: Path
    release: str
    virtiofsd: tuple[str, ...]
    """It and its options."""

    @property
    def image(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """The folder that is the guest's /lib/modules."""
        return self.root / "lib" / "modules"

    def initrd(self, files: Mapping[str, bytes]) -> bytes:
        """busybox, the modules for the root file system numbered in their order, and `files`, all at the top."""
        busybox = next(self.root.glob("**/bin/busybox")).read_bytes()
        where = ("-C", "/dev/null", "-d", self.root, "-S", self.release)
        shown = _run("modprobe", *where, "-a", "--show-depends", *BOOT_MODULES).splitlines()
        # A line for each: `insmod PATH`, or `builtin NAME`. Two that need the same third both show it.
        paths = dict.fromkeys(line[7:].strip() for line in shown if line.startswith("insmod "))
        modules = {f"{i:02d}.ko": _decompressed(Path(path)) for i, path in enumerate(paths)}
        return _cpio({"busybox": busybox, **modules, **files})


def prepare() -> Kernel:
    """Installs the programs and fetches the kernel where they are missing. Raises UnavailableError."""
    if platform.machine() != "x86_64":
        raise UnavailableError(f"the guest's kernel is for x86_64, this machine is {platform.machine()}")
    if os.geteuid():
        raise UnavailableError("a guest shares this machine's root with virtiofsd, which needs root")
    if not shutil.which("apt-get", path=PATH):
        raise UnavailableError("the guest's kernel comes through apt-get, which this machine does not have")
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # Two at once would install and unpack into each other's feet.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install({"qemu-system-x86_64": "qemu-system-x86", "modprobe": "kmod", "tc": "iproute2"})
        if not any(path.exists() for path in VIRTIOFSD):
            _install({"virtiofsd": "virtiofsd"})
        virtiofsd = [(str(path), *options) for path, options in VIRTIOFSD.items() if path.exists()]
        if not virtiofsd:
            raise UnavailableError("there is no virtiofsd, not even after installing it")
        root = CACHE / "kernel"
        if not root.is_dir():
            _fetch(root)
    return Kernel(root, next((root / "lib" / "modules").iterdir()).name, virtiofsd[0])


def _install(packages: Mapping[str, str]) -> None:
    """The packages of those programs that are missing."""
    missing = [package for program, package in packages.items() if not shutil.which(program, path=PATH)]
    if missing:
        _patiently(lambda: _run(*_APT, "-y", "--no-install-recommends", "install", *missing))


def _fetch(root: Path) -> None:
    """The kernel and a static busybox (to install it would remove a busybox that is not), below `root`."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetching-") as name:
        folder, unpacked = Path(name), Path(name, "root")
        _patiently(lambda: _download(folder))
        for archive in folder.glob("*.deb"):
            _run("dpkg-deb", "--extract", archive, unpacked)
        # Modules are in /lib on Debian 12 and in /usr/lib on 13; depmod and modprobe look where they were built to.
        if not (unpacked / "lib").exists():
            (unpacked / "lib").symlink_to("usr/lib")
        if not (unpacked / "usr" / "lib").exists():
            (unpacked / "usr" / "lib").symlink_to("../lib")
        release = next((unpacked / "lib" / "modules").iterdir()).name
        _run("depmod", "-b", unpacked, "-a", release)
        # Whole or not at all, whenever this is killed.
        unpacked.rename(root)


def _download(folder: Path) -> None:
    # The package itself is empty: it depends on the current version's.
    shown = _run("apt-cache", "depends", "--important", KERNEL_PACKAGE, check=False)
    current = [line.split()[-1] for line in shown.splitlines() if "Depends: linux-image-" in line]
    if not current:
        raise UnavailableError(f"this machine's package lists have no {KERNEL_PACKAGE} (Debian's have)")
    _run(*_APT, "download", current[0], "busybox-static", folder=folder)


def _patiently(attempt: Callable[[], object]) -> None:
    """Once more with fresh package lists where it fails."""
    try:
        attempt()
    except UnavailableError:
        with contextlib.suppress(UnavailableError):
            _run(*_APT, "update")
        attempt()


def _run(*command: str | Path, folder: Path | None = None, check: bool = True) -> str:
    environment = {**os.environ, "PATH": PATH, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    name = " ".join(str(word) for word in command)
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=INSTALL_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"`{name}` did not end within {INSTALL_LIMIT_S} s") from None
    except OSError as error:
        raise UnavailableError(f"`{name}` cannot be run: {error.strerror}") from None
    if check and done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()[-1]
        raise UnavailableError(f"`{name}` failed: {last}")
    return done.stdout


def _decompressed(module: Path) -> bytes:
    """Debian 13 compresses modules, which busybox's insmod may not know."""
    data = module.read_bytes()
    if module.suffix == ".xz":
        return lzma.decompress(data)
    return gzip.decompress(data) if module.suffix == ".gz" else data


def _cpio(files: Mapping[str, bytes]) -> bytes:
    """The kernel's own format for an initrd ("newc"), with every file executable."""

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    def entry(inode: int, name: str, data: bytes) -> bytes:
        # inode, mode, uid, gid, links, mtime, size, four device numbers, the name's length, checksum
        fields: Sequence[int] = (inode, 0o100755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        header = "070701" + "".join(f"{field:08x}" for field in fields)
        return padded(f"{header}{name}\0".encode("ascii")) + padded(data)

    entries = [entry(i, name, data) for i, (name, data) in enumerate(files.items(), 1)]
    return b"".join([*entries, entry(0, "TRAILER!!!", b"")])
