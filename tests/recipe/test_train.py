"""The arguments of fairseq-train."""

from pathlib import Path

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import lr_scheduler

from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.train import training_arguments


@pytest.mark.parametrize(
    ("given", "rates"),
    [([], [1.0, 0.5**0.5, 0.25**0.5]), (["--linear-decay"], [1.0, 2 / 3, 0.0])],
    ids=["inverse square root", "linear"],
)
def test_the_learning_rate_after_its_warm_up(given, rates):
    run = parse(["--epochs", "0", "--updates", "40", "--warmup-updates", "10", "--lr", "0.5", *given])
    arguments = training_arguments(run.models[0], run.settings, Path("out"), Path("models"), freq=1)
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    config = convert_namespace_to_omegaconf(args)
    optimizer = optim.build_optimizer(config.optimizer, [torch.nn.Parameter(torch.zeros(1))])
    scheduler = lr_scheduler.build_lr_scheduler(config.lr_scheduler, optimizer)
    found = {number: scheduler.step_update(number) for number in range(41)}
    assert [found[number] / 0.5 for number in (10, 20, 40)] == pytest.approx(rates)
