"""python -m tests.lab [--jump] [--middle]: a lab to try things in by hand, until Ctrl-C or end of file."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.lab.disk import USER
from tests.lab.lab import Lab, open_lab


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--jump", action="store_true", help="gpu is reached through a third host only")
    parser.add_argument(
        "--middle", action="store_true", help="a host between the two, with a network to each"
    )
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("makes network namespaces: needs root", file=sys.stderr)
        return 2
    owner = os.getpid()

    def end(*_: object) -> None:
        # pyroute2 forks for some of its work, and ends those children by this very signal.
        sys.exit(143) if os.getpid() == owner else os._exit(143)

    signal.signal(signal.SIGTERM, end)
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        open_lab(Path(folder), **vars(arguments)) as lab,
    ):
        print(_how_to(lab), flush=True)
        with suppress(KeyboardInterrupt):
            sys.stdin.read()
    return 0


def _how_to(lab: Lab) -> str:
    text = f"""\
The hosts are up. In another terminal:

    HOME={lab.home} ./pareto.sh doctor --testbed {lab.testbed()}
    ssh -F {lab.ssh_config} pi

Inside, without SSH:
"""
    for host in lab.hosts.values():
        root, user = (shlex.join(host.argv("exec bash -i", user)) for user in ("root", USER))
        text += f"\n  {host.name} ({host.address}), as root, then as {USER}:\n    {root}\n    {user}\n"
    return f"{text}\nCtrl-C or Ctrl-D takes all of it away."


if __name__ == "__main__":
    sys.exit(main())
