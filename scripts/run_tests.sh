#!/usr/bin/env bash
# The checks of the project: ruff, shellcheck and pytest, in the environment of setup_env.sh.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "usage: bash $0 [pytest arguments]"
    exit 0
fi

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/setup_env.sh
source "$scripts/setup_env.sh"
setup_env

cd "$project"
ruff check .
shellcheck -x scripts/*.sh ascend310_infer/build.sh .ci/run
python -m pytest "$@"
