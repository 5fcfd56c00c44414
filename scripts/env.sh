# Sourced by the other scripts: finds a Python and gives them the environment they run in.
#
#   environment NAME REQUIREMENTS [PYTHON]    makes .venv* if need be; sets $py to its Python
#
# The environments live in the project's folder. They hold exactly what requirements/*.txt pins,
# checked by hash, and Holdfast itself, editable; scripts/lock renews the pins. HOLDFAST_PYTHON
# names another Python to use.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The real interpreter behind a command, if it runs and is new enough: a shim that refuses to run
# gives nothing, and inside an active environment it is the Python that made it.
interpreter() {
    "$1" -c 'import sys
if sys.version_info < (3, 11): sys.exit(1)
print(sys._base_executable)' 2>/dev/null
}

main_python() {
    local name
    for name in ${HOLDFAST_PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        interpreter "$name" && return
    done
    echo "Holdfast needs Python 3.11 or later: found none as ${HOLDFAST_PYTHON:-python3}." >&2
    return 1
}

# The installed Python of one minor version, on the PATH or kept by pyenv.
python_of() {
    local place
    for place in "python$1" "${HOME:-}/.pyenv/versions/$1".*/bin/python; do
        interpreter "$place" && return
    done
    return 1
}

environment() {
    local base
    base=${3:-$(main_python)}
    "$base" "$root/scripts/environment.py" "$root/$1" "$root/requirements/$2"
    py="$root/$1/bin/python"
}
