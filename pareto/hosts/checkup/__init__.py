"""What a host of a testbed file has and lacks: asked there by `pareto.worker.checkup`, judged here.

The doctor prints the findings, a sweep starts only where none is fatal: they agree because they ask the same.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pareto.hosts import privileged, shipping
from pareto.hosts.checkup import machine, network, shaping, software
from pareto.hosts.checkup.case import Case
from pareto.hosts.checkup.network import interface_of
from pareto.hosts.checkup.software import differences
from pareto.hosts.finding import Finding
from pareto.hosts.inventory import Member, Side
from pareto.hosts.way import Way

__all__ = ("ask", "differences", "findings", "interface_of")

SHAPING = ("netem", "rights")
"""What findings are called that matter to sweeps of an emulated link alone."""
ASK_TIMEOUT_S = 120.0
"""A GPU driver that nobody uses needs seconds to answer, and some of them many."""

# The same interpreters as `hosts setup` looks at, in its order; the first of all if none is new enough.
_PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_ASK = """
found=
for each in @PYTHONS@; do
    command -v "$each" >/dev/null || continue
    : "${found:=$each}"
    if "$each" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then found=$each; break; fi
done
[ -n "$found" ] || exit 127
"$found" -c 'import sys; sys.version_info < (3, 7) and sys.exit("{\\"python\\": \\"%d.%d\\"}" % sys.version_info[:2])' \
    2>&1 || exit 0
case $found in */*) found=$(cd "${found%/*}" && pwd)/${found##*/} ;; esac
cd @CODE@ && PYTHONDONTWRITEBYTECODE=1 exec "$found" -m pareto.worker.checkup
"""


def ask(way: Way, member: Member, sides: Sequence[Side]) -> dict[str, Any]:
    """The host's facts, the ways to its neighbours among them, as `pareto.worker.checkup` tells. Raises Unreachable.

    Of a host without Python: `python` None. Of one whose Python does not work, also `fault`, its last words. Of a
    Python that is older than the checkup itself takes: `python`, its version, and nothing else.
    """
    folder = shipping.absolute(way, member.folder)
    code = shipping.ship_code(way, folder)
    pythons = (member.python,) if member.python else (f"{folder}/venv/bin/python", *_PYTHONS)
    question = {
        "data_address": member.data_address,
        "peers": [side.peer for side in sides],
        "device": member.device,
        "folder": folder,
        "launcher": privileged.LAUNCHER,
    }
    script = _ASK.replace("@PYTHONS@", shlex.join(pythons)).replace("@CODE@", shlex.quote(code))
    outcome = way.run(script, io.BytesIO(json.dumps(question).encode()), timeout_s=ASK_TIMEOUT_S)
    if outcome.status == 127:
        return {"python": None, "fault": ""}
    try:
        # The last line: a shell's start-up files may have said something before.
        told = json.loads(outcome.out.strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        told = None
    return told if isinstance(told, dict) else {"python": None, "fault": outcome.words}


def findings(
    member: Member,
    sides: tuple[Side, ...],
    facts: Mapping[str, Any],
    *,
    shaped: bool,
    helper_digest: str,
    now_s: float,
    testbed: str = "lab.yaml",
) -> list[Finding]:
    """What the facts mean for a sweep, what is fine included.

    shaped: the host will have to shape a link. helper_digest: of the privileged program as it is here. now_s: this
    machine's wall clock when the facts came. testbed: the file, for the commands that name it.
    """
    case = Case(member, sides, facts, testbed)
    if facts["python"] is None:
        return [software.no_python(case)]
    if len(facts) == 1:
        return list(software.python(case))
    return [
        *software.python(case),
        *shaping.netem(case, shaped),
        *shaping.privileges(case, shaped, helper_digest),
        *shaping.left_behind(case, shaped),
        *network.link(case),
        *machine.storage(case),
        *machine.processor(case),
        *machine.sensors(case),
        *machine.clock(case, now_s),
        *software.gpu(case),
        *network.tcp(case),
    ]
