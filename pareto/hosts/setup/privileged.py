"""The program that shapes the link, installed on a host so that one narrow line of sudoers is enough to start it.

A line of sudoers for an interpreter, or for code that its user can change, would make that user root. So the code is
root's: in a folder of `LIBRARY` named by its digest, started by `LAUNCHER` with the system's own Python, which takes
neither its environment nor the user's packages into account. pyroute2 comes along: it is pure Python.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import shlex
from pathlib import Path

from pareto.hosts.host import TestbedError
from pareto.hosts.parcels import REPOSITORY, files, packed

LAUNCHER = "/usr/local/sbin/pareto-link"
LIBRARY = "/usr/local/lib/pareto-link"
SUDOERS = "/etc/sudoers.d/pareto"
COMMAND = f"sudo -n {LAUNCHER}"
"""How a driver starts it. As root it starts `pareto.remote.link` in the shipped code, and nothing is installed."""
_OURS = (
    *("pareto/__init__.py", "pareto/remote/__init__.py", "pareto/remote/link"),
    *(
        f"pareto/protocol/{name}.py"
        for name in ("__init__", "constants", "errors", "jsonlines", "messages", "own", "validation")
    ),
)

# What sudoers takes for a user as it is; all capitals would be an alias there, `%` a group, `#` a number.
_USER = re.compile(r"(?![A-Z0-9_]+$)[A-Za-z_][A-Za-z0-9_.-]*")

# -I: no environment, no folder of the user's; -S: no packages but ours; -B: root writes no bytecode while it runs.
_START = """-I -S -B -c 'import sys; sys.path.insert(0, "@FOLDER@"); import runpy
runpy.run_module("pareto.remote.link", run_name="__main__", alter_sys=True)'"""
_LAUNCHER_TEXT = f"""#!/bin/sh
# Shapes network interfaces for pareto, as root. Put here by its `hosts setup`; {SUDOERS} says who may start it.
[ "${{1-}}" != --digest ] || exec /bin/cat @FOLDER@/digest
exec @PYTHON@ {_START} "$@"
"""

_INSTALL = """\
# As root: sh THIS ARCHIVE. Puts the program that shapes the link in place, complete or not at all.
set -eu
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
fail() { echo "$*" >&2; exit 1; }
[ -n @PREFIX@ ] || [ "$(id -u)" = 0 ] || fail "run this as root"
library=@PREFIX@@LIBRARY@ launcher=@PREFIX@@LAUNCHER@ sudoers=@PREFIX@@SUDOERS@ line=@LINE@ digest=@DIGEST@
command -v visudo >/dev/null || fail "there is no sudo here: install it (on Debian or Ubuntu: apt-get install sudo)"

# Only an interpreter that nobody but root can change.
python=
for each in /usr/bin/python3 /usr/bin/python3.1[0-9] /usr/local/bin/python3; do
    [ -n "$(find -L "$each" -maxdepth 0 -type f -user 0 ! -perm -020 ! -perm -002 2>/dev/null)" ] || continue
    "$each" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
    python=$each
    break
done
[ -n "$python" ] || fail "no python3 of the system's that is 3.10 or later (looked in /usr/bin and /usr/local/bin)"

mkdir -p "$library" "${launcher%/*}" "${sudoers%/*}"
work=$(mktemp -d "$library/.new.XXXXXX")
trap 'rm -rf "$work" "$launcher.new" "$sudoers.new"' EXIT
trap 'exit 1' HUP INT TERM

# A copy of root's own is checked and unpacked: the archive lies where its user can change it.
cat "$1" >"$work/archive"
[ "$(sha256sum <"$work/archive" | cut -d ' ' -f 1)" = @SUM@ ] || fail "$1 is not what was sent: run hosts setup again"
folder=$library/$digest
new=$work/folder
mkdir "$new"
tar -xf "$work/archive" -C "$new"
"$python" -I -S -m compileall -q -s "$new" -p "$folder" "$new"
echo "$digest" >"$new/digest"
said=$("$python" @START@ --help 2>&1) || fail "the program does not start: $(echo "$said" | tail -n 1)"

{ grep -vxF "$line" "$sudoers" 2>/dev/null || :; echo "$line"; } >"$work/sudoers"
chmod 0440 "$work/sudoers"
said=$(visudo -cf "$work/sudoers" 2>&1) || fail "visudo does not take $sudoers: $(echo "$said" | head -n 1)"
cat >"$work/launcher" <<'END OF LAUNCHER'
@LAUNCHER_TEXT@END OF LAUNCHER
sed "s|@PYTHON@|$python|" "$work/launcher" >"$launcher.new"
chmod 0755 "$launcher.new"

# From here on only renames, each of something complete; sudo reads no file of sudoers.d with a dot in its name.
[ ! -e "$folder" ] || mv "$folder" "$work/before"
mv "$new" "$folder"
mv -f "$launcher.new" "$launcher"
cp -p "$work/sudoers" "$sudoers.new"
mv -f "$sudoers.new" "$sudoers"
for each in "$library"/* "$library"/.new.*; do
    [ "$each" = "$folder" ] || rm -rf "$each"
done
"""


def archive(repository: Path = REPOSITORY) -> bytes:
    """The program's folder as a tar, the same bytes for the same files. Raises TestbedError."""
    pyroute2 = importlib.util.find_spec("pyroute2")
    if pyroute2 is None or not pyroute2.submodule_search_locations:
        raise TestbedError("pyroute2 is missing here: start this by ./pareto.sh")
    package = Path(pyroute2.submodule_search_locations[0])
    return packed(files(repository, _OURS) | files(package.parent, [package.name]))


@functools.cache
def digest(repository: Path = REPOSITORY) -> str:
    """The digest that `LAUNCHER --digest` prints where what `install_script` installs now is installed."""
    return hashlib.sha256(archive(repository) + _LAUNCHER_TEXT.encode()).hexdigest()[:32]


def sudoers_line(user: str) -> str:
    """Raises TestbedError for a name that sudoers would take for something else."""
    if not _USER.fullmatch(user):
        raise TestbedError(f"{user!r} cannot stand in a line of sudoers: log in as another user")
    return f"{user} ALL=(root) NOPASSWD: {LAUNCHER}"


def install_script(user: str, *, prefix: str = "") -> str:
    """A program for `sh`, to be run as root with the path of `archive`'s file as its argument.

    It installs, or installs again, and ends with a status other than 0 and one line on stderr where it cannot; what
    was there is then still there. `prefix` comes before every path that it writes to. Raises TestbedError.
    """
    folder = f"{prefix}{LIBRARY}/{digest()}"
    values = {
        "@LAUNCHER_TEXT@": _LAUNCHER_TEXT,
        "@START@": _START.replace("@FOLDER@", "'\"$new\"'"),
        "@FOLDER@": folder,
        "@PREFIX@": shlex.quote(prefix),
        "@LIBRARY@": LIBRARY,
        "@LAUNCHER@": LAUNCHER,
        "@SUDOERS@": SUDOERS,
        "@LINE@": shlex.quote(sudoers_line(user)),
        "@DIGEST@": digest(),
        "@SUM@": hashlib.sha256(archive()).hexdigest(),
    }
    script = _INSTALL
    for mark, value in values.items():
        script = script.replace(mark, value)
    return script
