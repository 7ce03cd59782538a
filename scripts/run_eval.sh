#!/usr/bin/env bash
# Evaluates saved weights on one device or on several.
set -euo pipefail

usage="usage: bash $0 [OPTIONS] [RANK_TABLE] CONFIG [--key value ...]
  RANK_TABLE    hccl JSON or number of processes, as for run_train_distribute.sh; without it one device evaluates,
                DEVICE_ID of the environment or 0
  CONFIG        YAML file of config/
  --key value   anything that eval.py takes (python eval.py --help), such as --checkpoint_path; wins over CONFIG
options, before RANK_TABLE or CONFIG: see bash scripts/run_train_distribute.sh --help

Each run has its own folder eval_parallel/<time> in the current folder: rank_N/log is the output of rank N. The log of
the first rank, with the accuracy over all images, is shown."
# shellcheck source=scripts/start.sh
source "${BASH_SOURCE[0]%run_*}./start.sh"
start eval "$usage" "$@"
