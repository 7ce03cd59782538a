#!/usr/bin/env bash
# Builds the inference program and its tests, and runs the tests.
set -euo pipefail

usage="usage: bash $0 [--asan] [--no-model]

Builds ascend310_infer/out/infer with CMake and a C++17 compiler against the MindSpore library in
MINDSPORE_LITE_HOME (default: what scripts/get_lite_cpu.sh fetched), and runs the unit tests.

  --asan      with the address sanitizer, in out-asan/
  --no-model  only what needs no MindSpore, in out-no-model/ or out-asan-no-model/"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$here/out
asan=OFF
model=ON
for argument in "$@"; do
    case $argument in
        --asan) asan=ON ;;
        --no-model) model=OFF ;;
        -h | --help)
            echo "$usage"
            exit 0
            ;;
        *)
            echo "error: there is no option '$argument'; see bash $0 --help" >&2
            exit 1
            ;;
    esac
done
[[ $asan == ON ]] && out+=-asan
[[ $model == OFF ]] && out+=-no-model

compiler=${CXX:-c++}
for tool in cmake ctest "${compiler%% *}"; do
    if ! command -v "$tool" >/dev/null; then
        echo "error: $tool was not found on PATH; install CMake and a C++17 compiler (on Debian and Ubuntu: cmake make g++)" >&2
        exit 1
    fi
done

home=${MINDSPORE_LITE_HOME:-$(realpath -m "$here/../.lite/mindspore_lite")}
if [[ $model == ON && ! -d $home ]]; then
    echo "error: there is no folder $home; set MINDSPORE_LITE_HOME to the unpacked MindSpore Lite package of this machine, or run scripts/get_lite_cpu.sh to get one for the CPU" >&2
    exit 1
fi

cmake -S "$here" -B "$out" -UMINDSPORE_INCLUDE -UMINDSPORE_LIBRARY -UMINDSPORE_CORE \
    -DMINDSPORE_LITE_HOME="$(realpath -m "$home")" -DASAN=$asan -DWITH_MODEL=$model
cmake --build "$out" --parallel "$(nproc)"
(cd "$out" && ctest --output-on-failure)
