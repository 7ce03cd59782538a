#!/usr/bin/env bash
# From nothing to a trained and evaluated network in some minutes, on a CPU: installs into .venv, writes real
# handwritten digits as an image folder, trains the smallest BiT or ViT on them and evaluates the checkpoint.
set -euo pipefail

usage="usage: bash $0 [bit|vit] [--key value ...]    (keys of train.py, such as --seed 2; see python train.py --help)"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    echo "$usage"
    exit 0
fi
family=bit
if [[ ${1:-} == bit || ${1:-} == vit ]]; then
    family=$1
    shift
elif [[ -n ${1:-} && ${1:-} != --* ]]; then
    echo "error: expected bit, vit or --key value, got '$1'; $usage" >&2
    exit 1
fi

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/setup_env.sh
source "$scripts/setup_env.sh"
setup_env

data=$project/quickstart_data/digits
outputs=$project/outputs
run=quickstart-$family-$(date +%Y%m%d-%H%M%S)

if [[ ! -f $data/complete ]]; then
    rm -rf "$data"
    python "$project/scripts/make_digits.py" "$data"
    touch "$data/complete"
fi

python "$project/train.py" --config_path "$project/config/${family}_quickstart.yml" --dataset_path "$data" \
    --save_checkpoint_path "$outputs" --run_name "$run" "$@"

next="--backbone BiT-M-R50x1 --pretrained BiT-M-R50x1.npz"
[[ $family == vit ]] && next="--backbone ViT-B_16 --pretrained ViT-B_16.npz"
checkpoint=$outputs/$run/last.ckpt
answer=$(python "$project/eval.py" --checkpoint_path "$checkpoint" --dataset_path "$data")

cat <<END

images       $data/train, $data/val
run          $outputs/$run (curves.png, log, configuration, class map)
checkpoint   $checkpoint
$answer

next, on your own images (one folder a class):
    source "$project/.venv/bin/activate"
    python "$project/train.py" $next --dataset_path YOUR_FOLDER
END
