#!/usr/bin/env bash
# Trains on several devices, of one or several servers: starts all ranks of this server and waits for them.
set -euo pipefail

usage="usage: bash $0 [OPTIONS] RANK_TABLE CONFIG [--key value ...]
  RANK_TABLE     hccl JSON as hccl_tools writes it, of one or several servers: which devices, and which rank on each;
                 or a number: so many processes on this server, on the devices from 0 up
  CONFIG         YAML file of config/
  --key value    anything that train.py takes (python train.py --help); wins over CONFIG
options, before RANK_TABLE:
  --server_id ID      which server of the table this is; by default the one whose server_id is an address of it
  --master_port PORT  of msrun's scheduler, the same on all servers; by default a free one, with several servers 8118
  --grace SECONDS     how long ranks may take to save and end after Ctrl-C or SIGTERM before they are killed,
                      60 by default; 15 at most when one has failed
  --script FILE       run this instead of train.py

Ascend       A table: the ranks meet through RANK_TABLE_FILE. A number: through MindSpore's msrun.
CPU, GPU     Through MindSpore's msrun: by a number, by --device_target CPU (or GPU) with any table, or by a table of
             workers: the same JSON with \"device_target\": \"CPU\" (or \"GPU\") at the top and no device_ip:
               {\"device_target\": \"CPU\", \"server_list\": [{\"server_id\": \"127.0.0.1\", \"device\": [
                 {\"device_id\": \"0\", \"rank_id\": \"0\"}, {\"device_id\": \"1\", \"rank_id\": \"1\"}]}]}
             A table without any device_ip counts as one of CPU workers. With Open MPI on GPU,
             'mpirun -n N python train.py --config_path CONFIG' does without this script.
Servers      Start this script with the same table on each. Through msrun the scheduler runs on the server of rank 0,
             which the others reach by its server_id; each server must have equally many ranks.

Each run has its own folder train_parallel/<time> in the current folder: rank_N/log is the output of rank N, msrun/ and
scheduler/ are MindSpore's own. The log of this server's first rank is shown. When a rank fails the others are
stopped, its last lines are shown, and its exit code is the one of this script. Ctrl-C reaches all ranks. The cores are
shared out among the ranks, if there are enough."
# shellcheck source=scripts/start.sh
source "${BASH_SOURCE[0]%run_*}./start.sh"
start distribute "$usage" "$@"
