#!/usr/bin/env bash
# From an exported MindIR to the accuracy of the C++ program, on Ascend 310 or, with DEVICE_TARGET=CPU, on a CPU.
set -euo pipefail

usage="usage: bash $0 MINDIR_PATH NET_TYPE DATASET DATA_PATH [DEVICE_ID]
  MINDIR_PATH  what export.py wrote, with its .json beside it
  NET_TYPE     vit or bit
  DATASET      imagenet (a folder of class folders), cifar10 or cifar100 (binary version)
  DATA_PATH    the evaluation images
  DEVICE_ID    number of the Ascend 310, 0 by default
environment:
  MINDSPORE_LITE_HOME  the runtime: MindSpore Lite of the Ascend machine, or what scripts/get_lite_cpu.sh unpacks
  DEVICE_TARGET        Ascend310 (default), Ascend or CPU
  THREADS              threads on a CPU, by default as many as cores
Everything goes into infer_310/<time>/ of the current folder; acc.log with the last line also into that folder."
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "$usage"
    exit 0
fi
fail() {
    echo "error: $*" >&2
    exit 1
}
(($# == 4 || $# == 5)) || fail "expected four or five arguments, got $#; see bash $0 --help"

model=$1 net_type=$2 dataset=$3 data=$4 device_id=${5:-0}
device_target=${DEVICE_TARGET:-Ascend310}
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ -f $model ]] || fail "the model $model does not exist; export.py writes it"
[[ -e $data ]] || fail "the images $data do not exist"
[[ $net_type == vit || $net_type == bit ]] || fail "NET_TYPE is vit or bit, not '$net_type'"
[[ $device_id =~ ^[0-9]+$ ]] || fail "DEVICE_ID is a number from 0 up, not '$device_id'"
case $dataset in
    imagenet) layout=imagefolder ;;
    cifar10 | cifar100) layout=$dataset ;;
    *) fail "DATASET is imagenet, cifar10 or cifar100, not '$dataset'" ;;
esac
[[ $device_target =~ ^(Ascend310|Ascend|CPU)$ ]] || fail "DEVICE_TARGET is Ascend310, Ascend or CPU, not '$device_target'"
[[ -f $model.json ]] || fail "$model.json is missing; export.py writes it beside the model: export again"
grep -q "\"network\": \"${net_type}_" "$model.json" || fail "$model is no $net_type by its $model.json"

python=$project/.venv/bin/python
[[ -x $python ]] || python=$(command -v python) || fail "no python was found; activate your environment"
if [[ -z ${MINDSPORE_LITE_HOME:-} && -d $project/.lite/mindspore_lite ]]; then
    export MINDSPORE_LITE_HOME=$project/.lite/mindspore_lite
fi

mkdir -p infer_310 2>/dev/null || fail "cannot write into $PWD; run this in another folder"
time=$(date +%Y%m%d-%H%M%S)
run=$PWD/infer_310/$time
for ((number = 2; ; number++)); do
    mkdir "$run" 2>/dev/null && break
    [[ -e $run ]] || fail "cannot make the folder $run"
    run=$PWD/infer_310/$time-$number
done
echo "building ascend310_infer"
bash "$project/ascend310_infer/build.sh" >"$run/build.log" 2>&1 || {
    tail -n 5 "$run/build.log" >&2
    fail "ascend310_infer could not be built; see $run/build.log"
}
"$python" "$project/preprocess.py" --model_path "$model" --dataset "$layout" --eval_path "$data" \
    --preprocess_path "$run/preprocess_Result"
"$project/ascend310_infer/out/infer" --model "$model" --input_dir "$run/preprocess_Result/images" \
    --output_dir "$run/result_Files" --time_dir "$run/time_Result" --device "$device_target" \
    --device_id "$device_id" --threads "${THREADS:-$(nproc)}"
"$python" "$project/postprocess.py" --model_path "$model" --preprocess_path "$run/preprocess_Result" \
    --result_path "$run/result_Files" | tee "$run/acc.log"
cp "$run/acc.log" acc.log
