"""A model with what fairseq-train gives it."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import BaseFairseqModel
from fairseq.optim import AMPOptimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.tasks import FairseqTask
from torch import Tensor

from linformer_fairseq.benchmark.memory import limited_memory
from linformer_fairseq.benchmark.timing import Measured, interleaved, with_peaks

from .batches import Sample

WARM_UP = 1
"""Steps of each model that do not count."""

LABEL_SMOOTHING = 0.1
BETAS = "(0.9, 0.98)"
LEARNING_RATE = 1e-4
"""Constant, as no time depends on it."""


class Trainer:
    """Makes the steps of fairseq-train, with Adam.

    Args:
        model: on its device, in float32.
        precision: float32, or the type to compute in by `torch.autocast`; float16 scales the loss, as fairseq's --amp.
        loss: label-smoothed cross-entropy unless given.
    """

    def __init__(
        self,
        model: BaseFairseqModel,
        task: FairseqTask,
        precision: torch.dtype,
        loss: FairseqCriterion | None = None,
    ) -> None:
        self.model = model
        self._task = task
        self._precision = precision
        self._loss = loss or LabelSmoothedCrossEntropyCriterion(
            task, sentence_avg=False, label_smoothing=LABEL_SMOOTHING
        )
        parameters = [x for x in model.parameters() if x.requires_grad]
        self._device = parameters[0].device
        config = FairseqAdamConfig(adam_betas=BETAS, tpu=False, lr=[LEARNING_RATE])
        self._optimizer = FairseqAdam(config, parameters)
        if precision == torch.float16:
            self._optimizer = AMPOptimizer(FairseqConfig(), parameters, self._optimizer)
        self._updates = 0

    def step(self, sample: Sample) -> Tensor:
        """Runs forward and backward and updates the weights, in the order of fairseq's trainer.

        Returns:
            The loss, summed over tokens.
        """
        self.zero_grad()
        loss, sample_size, _ = self._task.train_step(
            sample, self.model, self._criterion, self._optimizer, self._updates
        )
        self._optimizer.multiply_grads(1 / sample_size)
        norm = self._optimizer.clip_grad_norm(0.0)  # fairseq's default: it measures, and clips nothing
        if self._precision != torch.float16 and not torch.isfinite(norm):
            raise FloatingPointError("gradients are not finite")
        self._task.optimizer_step(self._optimizer, self.model, self._updates)
        self._updates += 1
        return loss.detach()

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def _criterion(self, model: BaseFairseqModel, sample: Sample) -> tuple[Tensor, int, dict]:
        if self._precision == torch.float32:
            return self._loss(model, sample)
        with torch.autocast(self._device.type, dtype=self._precision):
            return self._loss(model, sample)


def measure_steps(
    trainers: Mapping[str, Trainer], samples: Sequence[Sample], repeats: int, device: torch.device
) -> dict[str, Measured]:
    """Returns time and peak memory of a training step of every model, the models in turn and the samples in turn."""

    def step(trainer: Trainer, run: int) -> Tensor:
        return trainer.step(samples[run % len(samples)])

    calls = {name: partial(step, trainer) for name, trainer in trainers.items()}
    with limited_memory(device):
        return with_peaks(interleaved(calls, repeats, WARM_UP, device), calls, device)
