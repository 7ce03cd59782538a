#!/usr/bin/env bash
# From nothing to a trained and evaluated network in some minutes, on a CPU: installs into .venv, writes real
# handwritten digits as an image folder, trains the smallest BiT on them and evaluates the saved checkpoint.
set -euo pipefail

usage="usage: bash $0 [--key value ...]    (keys of train.py, such as --seed 2; see python train.py --help)"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "$usage"
    exit 0
fi

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/setup_env.sh
source "$scripts/setup_env.sh"
setup_env

data=$project/quickstart_data/digits
outputs=$project/outputs
run=quickstart-$(date +%Y%m%d-%H%M%S)

if [[ ! -f $data/complete ]]; then
    rm -rf "$data"
    python "$project/scripts/make_digits.py" "$data"
    touch "$data/complete"
fi

python "$project/train.py" --config_path "$project/config/bit_quickstart.yml" --dataset_path "$data" \
    --save_checkpoint_path "$outputs" --run_name "$run" "$@"

checkpoint=$outputs/$run/last.ckpt
answer=$(python "$project/eval.py" --checkpoint_path "$checkpoint" --dataset_path "$data")

cat <<END

images       $data/train, $data/val
run          $outputs/$run (log, configuration, class map)
checkpoint   $checkpoint
$answer

next, on your own images (one folder a class):
    source "$project/.venv/bin/activate"
    python "$project/train.py" --backbone bit_r50x1 --pretrained BiT-M-R50x1.npz --dataset_path YOUR_FOLDER
END
