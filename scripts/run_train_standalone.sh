#!/usr/bin/env bash
# Trains on one device.
set -euo pipefail

usage="usage: bash $0 [--grace SECONDS] [--script FILE] CONFIG [--key value ...]
  CONFIG        YAML file of config/
  --key value   anything that train.py takes (python train.py --help); wins over CONFIG
  --grace       seconds to end after Ctrl-C before it is killed, 60 by default
  --script      run this instead of train.py
environment:
  DEVICE_ID     number of the device, 0 by default
The output is shown and goes into train_parallel/<time>/rank_0/log of the current folder. The exit code is that of
train.py."
# shellcheck source=scripts/start.sh
source "${BASH_SOURCE[0]%run_*}./start.sh"
start standalone "$usage" "$@"
