#!/usr/bin/env bash
# Fetches MindSpore Lite 2.0.0 for the CPU from PyPI once. The wheel is made for Python 3.7, but it also holds the C++
# headers and libraries, which need no Python: ascend310_infer is built against them.
set -euo pipefail

usage="usage: bash $0 [FOLDER]

Puts mindspore_lite/ (0.5 GB) into FOLDER, by default .lite/ of the project, unless it is there, and prints the
line that sets MINDSPORE_LITE_HOME. For Linux on x86-64; needs pip of a Python, which PYTHON may name."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "$usage"
    exit 0
fi
if [[ $# -gt 1 || ${1:-} == -* ]]; then
    echo "error: expected at most one folder; see bash $0 --help" >&2
    exit 1
fi

fail() {
    echo "error: $1" >&2
    exit 1
}

wheel=mindspore_lite-2.0.0-cp37-cp37m-manylinux1_x86_64.whl
sha256=199cd0605cc985b88eddb273db9dfe9000a585ba10ca2292b6b36ebfff07b3ec

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(realpath -m "${1:-$scripts/../.lite}")
home=$folder/mindspore_lite

if [[ ! -d $home ]]; then
    [[ $(uname -sm) == "Linux x86_64" ]] ||
        fail "the library on PyPI is for Linux x86_64 and this is $(uname -sm); set MINDSPORE_LITE_HOME to a package for it"
    # shellcheck source=scripts/setup_env.sh
    source "$scripts/setup_env.sh"
    python=$(PATH=$project/.venv/bin:$PATH find_python)

    mkdir -p "$folder" || fail "cannot make the folder $folder"
    part=$(mktemp -d "$folder/part.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    echo "fetching $wheel (140 MB)" >&2
    "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --dest "$part" --no-deps \
        --only-binary=:all: --python-version 37 --implementation cp --abi cp37m --platform manylinux1_x86_64 \
        mindspore-lite==2.0.0 >&2 || fail "pip of $python could not download $wheel; see its messages above"
    echo "$sha256  $part/$wheel" | sha256sum --check --quiet >&2 ||
        fail "$wheel is not the file that was expected (sha256 $sha256); try again, or look at the index that pip uses"
    "$python" -m zipfile -e "$part/$wheel" "$part" || fail "cannot unpack $wheel into $folder; is the disk full?"
    mv -T "$part/mindspore_lite" "$home"
fi
echo "export MINDSPORE_LITE_HOME='$home'"
