# Sourced by the other scripts: makes .venv in the project's folder when it is missing or out of date, and puts its
# `python` first on PATH. Needs Python 3.9 to 3.12 with venv and pip; PYTHON names one if it is not found.
# shellcheck shell=bash

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.12 python3.11 python3.10 python3.9 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    echo "error: no Python from 3.9 to 3.12 was found, which MindSpore 2.8 needs; install one, or set PYTHON=/path/to/python" >&2
    return 1
}

setup_env() {
    local venv=$project/.venv stamp python
    stamp=$(cat "$project"/requirements*.txt)
    if [[ -x $venv/bin/python && -f $venv/installed.txt && $(cat "$venv/installed.txt") == "$stamp" ]] &&
        "$venv/bin/python" -c 'import sys; sys.exit(sys.prefix != sys.argv[1])' "$venv" 2>/dev/null; then
        echo "using the environment $venv"
    else
        python=$(find_python) || return 1
        echo "installing into $venv (MindSpore is large: this takes some minutes the first time)"
        if ! "$python" -m venv --clear "$venv"; then
            echo "error: $python cannot make a virtual environment; on Debian and Ubuntu install python3-venv" >&2
            return 1
        fi
        if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$project/requirements-dev.txt"; then
            echo "error: pip could not install $project/requirements-dev.txt; see its messages above" >&2
            return 1
        fi
        printf '%s\n' "$stamp" >"$venv/installed.txt"
    fi
    export PATH="$venv/bin:$PATH"
}
