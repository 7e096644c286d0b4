#!/usr/bin/env bash
#SBATCH --job-name=linformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
# Trains one model on several machines under Slurm; adapt the lines above to your cluster. Prepare the text first
# (prepare.sh); BIN and RUN are on a disk that all machines share. Submitted again, it resumes from where it stopped.
# usage: UPDATE_FREQ=1 sbatch examples/wmt14_en_de/slurm.sh BIN RUN ARCH [FLAGS OF fairseq-train]
set -euo pipefail
# Slurm runs a copy of this script, so train.sh is found from where the job was submitted; GPUS is per machine
export TRAIN=$SLURM_SUBMIT_DIR/examples/wmt14_en_de/train.sh GPUS=${SLURM_GPUS_ON_NODE:-1}
if [ ! -x "$TRAIN" ]; then
  echo "error: $TRAIN is missing: submit the job from the project's folder." >&2
  exit 2
fi
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# a port of its own, as two jobs may share a machine
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 20000))} SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# shellcheck disable=SC2016  # each machine fills in its own number
srun --kill-on-bad-exit=1 bash -c '"$TRAIN" "$@" --distributed-world-size $((SLURM_JOB_NUM_NODES * GPUS)) \
  --distributed-rank $((SLURM_NODEID * GPUS)) --distributed-init-method env://' slurm.sh "$@"
