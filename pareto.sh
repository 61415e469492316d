#!/usr/bin/env bash
# The one entry: makes .venv on first use, then runs the module `pareto`. See README.md, or ./pareto.sh --help.
set -euo pipefail

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
venv=$root/.venv
stamp=$venv/.requirements

fail() {
    echo "error: $*" >&2
    exit 2
}

# apt_install PACKAGE WHY: install it where that is possible, else say what to install.
apt_install() {
    local as_root=()
    local advice="$2: install it (on Debian or Ubuntu: apt-get install $1)"
    command -v apt-get >/dev/null || fail "$advice"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "$advice"
        as_root=(sudo)
        [ -t 0 ] || as_root=(sudo -n)
    fi
    echo "pareto: installing $1" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1 ||
        { "${as_root[@]}" apt-get update -qq >/dev/null &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null; } ||
        fail "$advice"
}

# for_tests PACKAGE PROGRAM: install it, or go on without.
for_tests() {
    (apt_install "$1" "no $2 on this machine") || echo "pareto: no $2 to be had: the tests that need it are skipped" >&2
}

# extras_for_tests ARGUMENTS: install them by pip, or go on without.
extras_for_tests() {
    by_pip "$@" || echo "pareto: pip cannot install $*: the tests that need it are skipped" >&2
}

find_python() {
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || {
        [ -z "${PYTHON:-}" ] || fail "no $PYTHON on this machine: set PYTHON to the path of Python 3.10 or later"
        apt_install python3 "no python3 on this machine"
    }
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$python" --version) is too old: Python 3.10 or later is needed (set PYTHON to its path)"
}

# What is never imported need not be compiled: that is half of pip's time with torch.
by_pip() {
    PIP_RETRIES=${PIP_RETRIES:-2} "$venv/bin/python" -I -m pip --disable-pip-version-check install -qq --no-compile "$@" >&2
}

# Install the Python packages by uv, which chooses the build of torch that suits this machine: without an NVIDIA GPU
# that saves gigabytes of CUDA. It fails within seconds where there is no uv, or where its indexes do not answer.
by_uv() {
    local uv
    uv=$(command -v uv) || {
        timeout 60 "$venv/bin/python" -I -m pip install -qq --disable-pip-version-check --timeout 5 --retries 0 uv \
            >/dev/null 2>&1 && uv=$venv/bin/uv
    } || {
        echo "pareto: installing Python packages into .venv by pip (once, a few minutes)" >&2
        return 1
    }
    echo "pareto: installing Python packages into .venv by uv (once, a few minutes)" >&2
    # From a folder of its own: uv reads uv.toml and pyproject.toml of the current one.
    (cd "$venv" && UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_TIMEOUT=8 UV_HTTP_RETRIES=1 \
        exec "$uv" pip install -q --python "$venv/bin/python" --torch-backend=auto -r "$root/requirements.txt") \
        >/dev/null 2>&1 || {
        echo "pareto: uv cannot install them here, for instance because PyTorch's index does not answer; pip does" >&2
        return 1
    }
}

# What requirements are now; .venv is made again when it was made from something else.
wanted() {
    cat "$root"/requirements-{digits,onnx,worker,yolo}.txt "$root/requirements.txt" | sha256sum
}

make_venv() {
    find_python
    # One at a time: two first starts would install into each other's feet.
    exec 9>"$root/.venv.lock"
    flock 9
    if ! has_venv || ! "$venv/bin/python" -c '' 2>/dev/null; then
        "$python" -I -c 'import ensurepip' 2>/dev/null || apt_install python3-venv "Python's venv module is missing"
        "$venv/bin/python" -c '' 2>/dev/null || "$python" -I -m venv --clear "$venv"
        by_uv || by_pip -r "$root/requirements.txt" ||
            fail "installing the Python packages failed: see above; the next start tries again"
        wanted >"$stamp"
    fi
    flock -u 9
    exec 9>&-
    rm -f "$root/.venv.lock"
}

has_sshd() {
    PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd >/dev/null
}

has_venv() {
    [ "$(cat "$stamp" 2>/dev/null)" = "$(wanted)" ] && [ -x "$venv/bin/python" ]
}

# The current folder may be anybody's: nothing in it is imported (before 3.11, Python does not know PYTHONSAFEPATH).
IFS=: read -ra absolute <<<"${PYTHONPATH:-}"
PYTHONPATH=$root
for each in "${absolute[@]:-}"; do [[ $each != /* ]] || PYTHONPATH+=:$each; done
export PYTHONPATH PYTHONSAFEPATH=1
# Before anything is installed: whether the command can run here at all, and what it needs beside .venv.
if ! has_venv || ! has_sshd; then
    if has_venv; then python=$venv/bin/python; else find_python; fi
    missing=$("$python" -S -B "$root/pareto/launcher.py" pareto.commands.needs "$@") || exit 2
    [ -z "$missing" ] || apt_install "$missing" "no sshd on this machine"
fi
has_venv || make_venv

if [ "${1:-}" = test ]; then
    shift
    cd "$root"
    unset PYTHONSAFEPATH # the clone is the current folder here, and programs that tests start import from it
    # Tests make networks, hosts and cores of their own as root, and look at the page in a browser.
    if [ "$(id -u)" -eq 0 ]; then
        command -v sudo >/dev/null || for_tests sudo sudo
        command -v ip >/dev/null || for_tests iproute2 ip
        has_sshd || for_tests openssh-server sshd
    fi
    case "${*:-page}" in
        --chaos | *page* | *integration*) command -v chromium >/dev/null || for_tests chromium chromium ;;
    esac
    # Whatever a test leaves in the folder for temporary files goes with it; after a failure it stays to be looked at.
    scratch=$(mktemp -d -t pareto-test-XXXXXX)
    export TMPDIR=$scratch
    trap 'exit 143' TERM HUP
    trap 'status=$?; [ "$status" = 1 ] && echo "kept: $scratch" >&2 || rm -rf "$scratch"' EXIT
    if [ $# -eq 0 ] || [ "$*" = --chaos ] || [ "$1" = --mutants ]; then
        extras_for_tests --no-deps -r requirements-yolo.txt -r requirements-digits.txt
        extras_for_tests -r requirements-fleet.txt -r requirements-zmq.txt
        if [ "${1:-}" = --mutants ]; then
            "$venv/bin/python" -m tests.mutants "${@:2}"
        else
            tests/gate.sh "$@"
        fi
        exit
    fi
    run=("$venv/bin/python" -m)
    [ "$1" != --chaos ] || { shift && run+=(tests.chaos -- "$venv/bin/python" -m); }
    case "$1" in
        --vm) set -- tests/vm "${@:2}" ;;
        --measure) set -- tests/measure "${@:2}" ;;
        --gpu) set -- tests/gpu tests/unit/worker/test_device.py tests/unit/worker/test_units.py \
            tests/unit/partitions/engines/test_engines.py -rs "${@:2}" ;;
    esac
    # A worker more than cores: many tests wait. None where a guest runs them, figures are printed, or somebody looks.
    workers=(-n "$(($(nproc) + 1))" --dist worksteal)
    case " $* " in
        *tests/vm* | *tests/measure* | *tests/gpu* | *' -n'* | *' -s '* | *' --pdb '* | *::*) workers=() ;;
    esac
    "${run[@]}" pytest "${workers[@]}" "$@"
    exit
fi
if [ "${1:-}" = site ]; then
    cd "$root"
    if [ "${2:-}" = --pictures ]; then
        exec "$venv/bin/python" docs/site.py "${@:2}"
    fi
    find_python
    [ -x build/mkdocs/bin/python ] || "$python" -m venv build/mkdocs
    build/mkdocs/bin/python -m pip install -qq --disable-pip-version-check -r docs/requirements.txt ||
        fail "installing the site's generator failed: see above"
    "$venv/bin/python" docs/site.py build/pages
    NO_MKDOCS_2_WARNING=1 build/mkdocs/bin/mkdocs build --strict --quiet
    echo "$root/build/site/index.html"
    exit
fi
exec "$venv/bin/python" "$root/pareto/launcher.py" pareto "$@"
