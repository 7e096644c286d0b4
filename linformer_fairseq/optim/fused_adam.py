"""Adam in few kernels: `--optimizer fused_adam`."""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw


class ManyTensorAdam(Adam):
    """Adam that updates all tensors in a few kernels, where fairseq's launches a dozen for each.

    Updates equal those of fairseq's `Adam` to rounding, and so does the state that checkpoints hold. Weights in half
    precision, which `--memory-efficient-fp16` has, are left to that class.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads state, laid out in memory as its weights are, since torch's kernels walk through both alike.

        Args:
            state_dict: what `state_dict` of this class or fairseq's has returned.
        """
        super().load_state_dict(state_dict)
        for weight, state in self.state.items():
            for name in ("exp_avg", "exp_avg_sq"):
                if name in state and state[name].stride() != weight.stride():
                    state[name] = torch.empty_like(weight, dtype=state[name].dtype).copy_(state[name])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the weights that have gradients.

        Args:
            closure: computes the loss again and returns it.

        Returns:
            What the closure returns, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not all(map(_is_plain, self._weights())) or any(group.get("amsgrad") for group in self.param_groups):
            super().step()
            return loss
        for group in self.param_groups:
            alike: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    state = self.state[weight]
                    if not state:
                        state.update(exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
                    # apex counts by group
                    state["step"] = int(state.get("step", group.get("step", 0))) + 1
                    alike[weight.device, weight.dtype, state["step"]].append(weight)
            for (device, _, step), weights in alike.items():
                self._update(group, weights, step, fused=_has_fused(device.type))
        return loss

    def _weights(self) -> list[Tensor]:
        """All weights that have gradients."""
        return [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]

    def _update(self, group: dict[str, Any], weights: list[Tensor], step: int, fused: bool) -> None:
        """Makes update number `step` of weights on one device."""
        beta1, beta2 = group["betas"]
        steps = torch.full((len(weights),), step - 1.0, device=weights[0].device if fused else "cpu")
        adamw(
            weights,
            [weight.grad for weight in weights],  # type: ignore[misc]  # all have one
            [self.state[weight]["exp_avg"] for weight in weights],
            [self.state[weight]["exp_avg_sq"] for weight in weights],
            [],
            list(steps.unbind()),
            foreach=not fused,
            fused=fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            # fairseq adds epsilon before it corrects the bias of the root, torch afterwards
            eps=group["eps"] / math.sqrt(1 - beta2**step),
            maximize=False,
        )


def _is_plain(weight: Tensor) -> bool:
    """Whether torch's kernels update a weight by its gradient as fairseq does: they walk through the memory of both."""
    grad: Tensor = weight.grad  # type: ignore[assignment]  # which it has
    return _is_dense(weight) and _is_dense(grad) and weight.stride() == grad.stride()


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is neither sparse nor in half precision."""
    return tensor.layout == torch.strided and tensor.dtype in (torch.float32, torch.float64)


@functools.cache
def _has_fused(device: str) -> bool:
    """Whether torch has one kernel for whole updates on devices of a type: on CUDA, and from 2.4 on a processor."""
    try:
        torch.optim.AdamW([torch.zeros(1, device=device)], fused=True)
    except RuntimeError:
        return False
    return True


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Flags of `--optimizer fused_adam`."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    lr: list[float] = II("optimization.lr")  # noqa: RUF009  # as in all of fairseq's dataclasses


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FusedAdam(FairseqAdam):
    """Adam with decoupled weight decay, in few kernels.

    It trains as `--optimizer adam` does, to rounding, and each goes on from checkpoints of the other. fairseq's own has
    fused kernels where apex is installed only.
    """

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[Tensor]) -> None:
        FairseqOptimizer.__init__(self, cfg)  # not that of FairseqAdam, which chooses between apex and `Adam`
        self._optimizer = ManyTensorAdam(params, **self.optimizer_config)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Scales gradients so that their common norm is at most `max_norm`, as fairseq does, in few kernels.

        Args:
            max_norm: with 0 the norm is computed alone.
            aggregate_norm_fn: makes the norm of all processes from that of this one.

        Returns:
            The norm before scaling.
        """
        weights = [weight for weight in self.params if weight.grad is not None]
        grads = [weight.grad for weight in weights]
        together = len({grad.device for grad in grads}) == 1 and all(map(_is_dense, grads))
        if not together or any(hasattr(weight, "expert") for weight in weights):  # which are not part of the norm
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp_(max=1))
        return norm


# by which fairseq's trainer knows whether a checkpoint's optimizer is its own
FusedAdam.__name__ = FairseqAdam.__name__
