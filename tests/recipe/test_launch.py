"""How many processes a training gets, the command that starts them, and what is refused before."""

import sys

import pytest
import torch
from linformer_fairseq.recipe.launch import PORT, WORKER, Machines, machines_from, train_command, update_freq

from linformer_fairseq.cli.errors import UserError


@pytest.fixture
def gpus(monkeypatch):
    """Sets how many GPUs there seem to be."""
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


FOUR = {"NNODES": "4", "NODE_RANK": "3", "MASTER_ADDR": "node0"}


@pytest.mark.parametrize(
    ("visible", "environment", "processes", "batches", "cpu", "machines"),
    [
        (4, {}, None, 32, False, Machines(4)),
        (4, {}, 3, 32, False, Machines(3)),
        (4, {}, None, 32, True, Machines(1)),
        (4, {}, 6, 32, True, Machines(6)),
        (3, {}, None, 8, False, Machines(2)),  # as many GPUs as share the batches
        (8, {}, None, 1, False, Machines(1)),
        (8, FOUR, None, 32, False, Machines(8, 4, 3, "node0", PORT)),
        (8, FOUR, None, 16, False, Machines(4, 4, 3, "node0", PORT)),
        (8, {**FOUR, "MASTER_PORT": "1234"}, 2, 32, True, Machines(2, 4, 3, "node0", 1234)),
    ],
)
def test_what_a_machine_runs(gpus, visible, environment, processes, batches, cpu, machines):
    gpus(visible)
    assert machines_from(environment, processes, batches, cpu) == machines


@pytest.mark.parametrize(
    ("environment", "processes", "said"),
    [
        ({}, 3, "3 processes need a GPU each, but 2 are visible"),
        ({"NNODES": "2"}, None, "NNODES=2, but MASTER_ADDR is not set"),
        ({"MASTER_ADDR": "node0"}, None, "MASTER_ADDR=node0, but NNODES is not set"),
        ({"NODE_RANK": "1"}, None, "NODE_RANK=1, but it must be 0, with NNODES=1."),
        ({**FOUR, "NODE_RANK": "4"}, None, "NODE_RANK=4, but it must be a whole number from 0 to 3, with NNODES=4."),
        ({"NNODES": "0"}, None, "NNODES=0, but it must be a whole number from 1"),
        ({"MASTER_PORT": "70000"}, None, "MASTER_PORT=70000, but"),
        ({"WORLD_SIZE": "2"}, None, "WORLD_SIZE=2 says that something like torchrun"),
    ],
)
def test_refusals(gpus, environment, processes, said):
    gpus(2)
    with pytest.raises(UserError) as refusal:
        machines_from(environment, processes, 32, cpu=False)
    assert said in str(refusal.value)
    gpus(0)
    with pytest.raises(UserError, match="No GPU is visible here"):
        machines_from({}, None, 32, cpu=False)


def test_one_process_is_its_own_launcher():
    command = train_command(Machines(), "amp", ["DATA", "--lr", "1"])
    worker = ["-m", WORKER, "--world-size", "1", "--precision", "amp", "--", "DATA", "--lr", "1"]
    assert command == [sys.executable, *worker]


def test_torchrun_gets_every_process_told_how_many_there_are():
    machines = Machines(processes=4, nodes=2, node_rank=1, master_addr="node0", master_port=1234)
    command = train_command(machines, "fp16", ["DATA"])
    assert command == [
        *(sys.executable, "-m", "linformer_fairseq.recipe.launch", "--nnodes", "2", "--nproc-per-node", "4"),
        *("--node-rank", "1", "--master-addr", "node0", "--master-port", "1234"),
        *("-m", WORKER, "--world-size", "8", "--precision", "fp16", "--", "DATA"),
    ]
    assert "--standalone" in train_command(Machines(4), "fp16", ["DATA"])


def test_an_update_sees_the_same_number_of_batches():
    assert [update_freq(8, world_size) for world_size in (1, 2, 4, 8)] == [8, 4, 2, 1]
    with pytest.raises(UserError, match=r"by 3 processes: train with 1, 2, 4 or 8\.$"):
        update_freq(8, 3)
    with pytest.raises(UserError, match=r"by 2 processes: train with 1\.$"):
        update_freq(1, 2)
