# Sourced by run_train_*.sh and run_eval.sh: prints the usage when asked, else hands over to launch.py.
# shellcheck shell=bash

start() {
    local mode=$1 usage=$2 project python
    shift 2
    if [[ ${1:-} == -h || ${1:-} == --help ]]; then
        echo "$usage"
        exit 0
    fi
    project=$(cd "${BASH_SOURCE[0]%start.sh}./.." && pwd)
    python=$project/.venv/bin/python
    [[ -x $python ]] || python=$(command -v python) || {
        echo "error: no python was found; activate your environment, or run bash $project/scripts/quickstart.sh" >&2
        exit 1
    }
    exec "$python" "$project/scripts/launch.py" "$mode" "$@"
}
