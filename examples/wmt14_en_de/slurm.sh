#!/usr/bin/env bash
#SBATCH --job-name=linformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
# Trains one model on several machines under Slurm; adapt the lines above to your cluster. The text is prepared before
# (prepare.sh), and DATA_DIR lies on a disk that all machines see. Submitted again, it goes on from where it stopped.
# usage: sbatch examples/wmt14_en_de/slurm.sh linformer_transformer_wmt_en_de --k 32
set -euo pipefail

MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
# a port of its own, as two jobs may share a machine
export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))}" NNODES="$SLURM_JOB_NUM_NODES"
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # srun does not take it from the job by itself
# Slurm runs a copy of this script, so the recipe is found from where the job was submitted
# shellcheck disable=SC2016  # each machine fills in its own number
srun --kill-on-bad-exit=1 bash -c 'NODE_RANK="$SLURM_NODEID" exec "$SLURM_SUBMIT_DIR/examples/wmt14_en_de/train.sh" "$@"' \
  train.sh "$@"
