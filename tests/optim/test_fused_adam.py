"""Fused Adam makes fairseq's updates, in few operations, in every mode of fairseq's trainer."""

import copy
import re
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from fairseq.trainer import Trainer
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from torch import Tensor, nn

from linformer_fairseq import FusedAdam
from linformer_fairseq.optim import fused_adam
from linformer_fairseq.optim.fused_adam import FusedAdamConfig
from tests.fairseq_commands import ROOT, hydra_arguments, run, train, train_arguments, valid_losses
from tests.operations import computing_operations

CONFIGURATION = ROOT / "linformer_fairseq/config/optimizer/fused_adam.yaml"
SETTINGS = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-6, "weight_decay": 0.1}
MODES = {
    "float32": [],
    "amp": ["--amp"],
    "fp16": ["--fp16"],
    "fp16, several weights": ["--fp16", "--fp16-no-flatten-grads"],
    "memory-efficient-fp16": ["--memory-efficient-fp16"],
}
COUNTS = {  # of what a training step dispatches with torch 2.13, with `adam` and with `fused_adam`
    "float32": (2864, 841),
    "amp": (3421, 1398),
    "fp16": (1360, 1355),
    "fp16, several weights": (3630, 1607),
    "memory-efficient-fp16": (3624, 3624),
}
LAYERS = [f"--{side}-layers=6" for side in ("encoder", "decoder")]


def optimizer(kind: type[FairseqAdam], weights: list[Tensor], **settings: Any) -> FairseqAdam:
    values = {**SETTINGS, **settings}
    config = FairseqAdamConfig(tpu=False, **values) if kind is FairseqAdam else FusedAdamConfig(**values)
    return kind(OmegaConf.structured(config), weights)


def weights_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


def give_gradients(*those: list[Tensor], scale: float = 1.0, leave_out: int | None = None) -> None:
    """Gives lists of weights equal gradients, none to that of a number."""
    for i, copies in enumerate(zip(*those, strict=True)):
        gradient = scale * torch.randn_like(copies[0])
        for weight in copies:
            weight.grad = None if i == leave_out else gradient.clone()


@given(
    seed=st.integers(0, 99),
    eps=st.sampled_from([1e-8, 1e-3]),
    betas=st.sampled_from(["(0.9, 0.98)", "(0.5, 0.999)"]),
    decay=st.sampled_from([0.0, 0.1]),
    has_kernel=st.booleans(),
)
def test_updates_are_those_of_fairseq(seed: int, eps: float, betas: str, decay: float, has_kernel: bool) -> None:
    """Over 100 steps, with a rate that changes, and weights that have gradients at times only."""
    torch.manual_seed(seed)
    ours = weights_of((3, 4), (5,), (), (2, 1, 3))
    theirs = copy.deepcopy(ours)
    settings = {"adam_eps": eps, "adam_betas": betas, "weight_decay": decay}
    a, b = optimizer(FusedAdam, ours, **settings), optimizer(FairseqAdam, theirs, **settings)
    with pytest.MonkeyPatch.context() as patch:
        if not has_kernel:  # as on a device, or with a torch, that has no fused kernel
            patch.setattr(fused_adam, "_has_fused", lambda device: False)
        for step in range(100):
            give_gradients(ours, theirs, scale=10.0 ** -(step % 7), leave_out=step % 5)
            for each in (a, b):
                each.set_lr(0.01 / (1 + step))
                each.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("transposed", ["gradient", "state"])
def test_a_gradient_or_state_may_lie_otherwise_in_memory_than_its_weight(transposed: str) -> None:
    ours = [nn.Parameter(torch.randn(6, 4, dtype=torch.float64).t()), *weights_of((5,))]
    theirs = copy.deepcopy(ours)
    a, b = optimizer(FusedAdam, ours), optimizer(FairseqAdam, theirs)
    for _ in range(3):
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, dtype=torch.float64)
            if transposed == "state":
                mine.grad = torch.empty_like(mine).copy_(mine.grad)
            other.grad = mine.grad.clone()
        a.step()
        b.step()
        other = ours[0].grad
        if transposed == "state":
            saved = a.state_dict()
            own = saved["state"][0]
            own.update({name: own[name].contiguous() for name in ("exp_avg", "exp_avg_sq")})
            a.load_state_dict(saved)
            other = own["exp_avg"]
        assert ours[0].stride() != other.stride()
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("has_kernel", [True, False])
def test_updates_on_a_gpu(has_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clipping, in float32."""
    if not has_kernel:
        monkeypatch.setattr(fused_adam, "_has_fused", lambda device: False)
    ours = [nn.Parameter(weight.detach().cuda()) for weight in weights_of((30, 40), (50,), (), dtype=torch.float32)]
    theirs = copy.deepcopy(ours)
    a, b = optimizer(FusedAdam, ours), optimizer(FairseqAdam, theirs)
    for step in range(20):
        give_gradients(ours, theirs, leave_out=step % 5)
        torch.testing.assert_close(a.clip_grad_norm(0.1), b.clip_grad_norm(0.1))
        a.step()
        b.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("first", [FusedAdam, FairseqAdam])
def test_state_is_that_of_fairseq(first: type[FairseqAdam]) -> None:
    """Each goes on from the other's state, which looks alike."""
    second = FairseqAdam if first is FusedAdam else FusedAdam
    weights = weights_of((3, 4), (5,), (2,))
    others, before = copy.deepcopy(weights), optimizer(first, weights)
    other = optimizer(second, others)
    for step in range(3):
        give_gradients(weights, others, leave_out=step)
        before.step()
        other.step()
    torch.testing.assert_close(before.state_dict(), other.state_dict(), rtol=1e-11, atol=1e-12)
    copies = copy.deepcopy(weights)
    after = optimizer(second, copies)
    after.load_state_dict(copy.deepcopy(before.state_dict()), {"lr": 0.1})
    before.set_lr(0.1)
    for _ in range(3):
        give_gradients(weights, copies)
        before.step()
        after.step()
    torch.testing.assert_close(weights, copies, rtol=1e-11, atol=1e-12)


def test_steps_that_apex_counts_by_group() -> None:
    weights = weights_of((3,), (2,))
    before = optimizer(FairseqAdam, weights)
    for _ in range(3):
        give_gradients(weights)
        before.step()
    state = copy.deepcopy(before.state_dict())
    for each in state["state"].values():
        del each["step"]
    state["param_groups"][0]["step"] = 3
    copies = copy.deepcopy(weights)
    after = optimizer(FusedAdam, copies)
    after.load_state_dict(state)
    give_gradients(weights, copies)
    before.step()
    after.step()
    torch.testing.assert_close(weights, copies, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision(dtype: torch.dtype) -> None:
    """As with fairseq's Adam to the bit, which computes in float32."""
    ours = weights_of((3, 4), (5,), dtype=dtype)
    theirs = copy.deepcopy(ours)
    a, b = optimizer(FusedAdam, ours), optimizer(FairseqAdam, theirs)
    for _ in range(5):
        give_gradients(ours, theirs)
        norms = [each.clip_grad_norm(1.0) for each in (a, b)]
        assert norms[0] == norms[1]
        a.step()
        b.step()
    assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_closure_and_sparse_gradients() -> None:
    (weight,) = weights_of((4, 2))

    def loss() -> Tensor:
        weight.grad = None
        (found := weight.square().sum()).backward()
        return found

    adam = optimizer(FusedAdam, [weight])
    first, second = adam.optimizer.step(loss), adam.optimizer.step(loss)
    assert 0 < second < first
    weight.grad = torch.sparse_coo_tensor([[0]], torch.ones(1, 2, dtype=torch.float64), (4, 2))
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        adam.step()


@given(limit=st.sampled_from([0.0, 0.5, 1e3]), has_expert=st.booleans(), aggregated=st.booleans(), n=st.integers(0, 4))
def test_gradients_are_clipped_as_fairseq_does(limit: float, has_expert: bool, aggregated: bool, n: int) -> None:
    ours = weights_of(*[(3, 4), (5,), (), (2, 1)][:n], dtype=torch.float32)
    theirs = copy.deepcopy(ours)
    give_gradients(ours, theirs, leave_out=2)
    for weights in (ours, theirs):
        if has_expert and n:
            weights[0].expert = True  # type: ignore[attr-defined]  # whose gradients do not belong to the norm
    both = (lambda norm: 2 * norm) if aggregated else None
    norm = optimizer(FusedAdam, ours or weights_of((1,))).clip_grad_norm(limit, both)
    torch.testing.assert_close(norm, utils.clip_grad_norm_(theirs or weights_of((1,)), limit, both), check_dtype=False)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def trainer(data: Path, folder: Path, *flags: object, arch: str) -> tuple[Trainer, list[dict[str, Any]]]:
    """fairseq's own trainer of a toy model, and its batches."""
    arguments = train_arguments(data, folder, "--clip-norm", 0.1, "--dropout", 0, "--seed", 1, *flags, arch=arch)
    args = options.parse_args_and_arch(options.get_training_parser(), list(map(str, arguments)))
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    task.load_dataset("train")
    built = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    built.begin_epoch(1)
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=400).next_epoch_itr(shuffle=False)
    return built, list(batches)


@pytest.mark.parametrize("mode", MODES)
def test_trainer_of_every_mode(data: Path, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and weights are those of `adam`, with accumulated gradients, and operations are fewer."""
    if mode != "float32" and torch.__version__ < "2.3":
        pytest.skip("this torch has no normalisation in half precision on a processor")
    # --fp16 asks for the number of the device, which a processor does not have, and --amp casts on a GPU alone
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda.amp, "autocast", partial(torch.autocast, "cpu", torch.float16))
    found = {}
    for name in ("adam", "fused_adam"):
        flags = [*LAYERS, *MODES[mode], "--optimizer", name]
        own, batches = trainer(data, tmp_path, *flags, arch="full_transformer_tiny")
        losses = [own.train_step(batches[i : i + 2])["loss"] for i in (0, 2)]
        operations = Counter(computing_operations(lambda own=own, batches=batches: own.train_step(batches[4:5])))
        found[name] = operations, losses, torch.cat([weight.flatten().float() for weight in own.model.parameters()])
    (before, old, old_weights), (after, new, new_weights) = found.values()
    assert new == pytest.approx(old, rel=1e-3)
    rounding = 1e-5 if mode == "float32" else 2e-3
    torch.testing.assert_close(new_weights, old_weights, rtol=rounding, atol=rounding)
    if torch.__version__.startswith("2.13."):
        assert (before.total(), after.total()) == COUNTS[mode]
    assert after.total() <= before.total()


@pytest.mark.slow
def test_trainings_go_on_with_either_adam(data: Path, tmp_path: Path) -> None:
    """A training that goes on with the other Adam ends with the loss of one that has the same all along."""
    flags = ["--weight-decay", 0.1, "--clip-norm", 0.1]
    last = set()
    for first in ("adam", "fused_adam"):
        train(data, tmp_path / first, *flags, "--optimizer", first, "--max-epoch", 1).ok()
        for second in ("adam", "fused_adam"):
            folder = shutil.copytree(tmp_path / first, tmp_path / f"{first}-{second}")
            resumed = train(data, folder, *flags, "--optimizer", second, "--max-epoch", 2).ok()
            assert "Loaded checkpoint" in resumed
            last.add(valid_losses(resumed)[-1])
    assert max(last) - min(last) <= 2e-3


@pytest.mark.slow
def test_flags_without_effect_are_refused(data: Path, tmp_path: Path) -> None:
    arguments = train_arguments(data, tmp_path, "--optimizer", "fused_adam", "--use-old-adam")
    assert "unrecognized arguments: --use-old-adam" in run("train", *arguments).sentence()


def test_documented_counts() -> None:
    page = (ROOT / "docs/flags.md").read_text(encoding="utf-8").replace("\n", " ")
    for mode in ("float32", "amp"):
        before, after = COUNTS[mode]
        assert re.search(rf"{after:,}(?: operations)? instead of {before:,}\D+{mode}", page)
    for mode in ("fp16", "memory-efficient-fp16"):
        before, after = COUNTS[mode]
        assert after > 0.99 * before
        assert re.search(rf"Nothing is gained with[^.]*`--{mode}`", page)


@pytest.mark.slow
def test_hydra(data: Path, tmp_path: Path) -> None:
    """The configuration file has the values of the flags, and others can be given."""
    file = OmegaConf.to_container(OmegaConf.load(CONFIGURATION), resolve=False)
    defaults = FusedAdamConfig()
    assert file == {**vars(defaults), "_name": "fused_adam", "adam_betas": str(defaults.adam_betas)}
    options = ["optimizer=fused_adam", "optimizer.weight_decay=0.1", "common.cpu=true"]
    said = run("hydra_train", *hydra_arguments(data, tmp_path, *options)).ok()
    assert "'_name': 'fused_adam', 'adam_betas': '(0.9,0.98)', 'adam_eps': 1e-08, 'weight_decay': 0.1" in said
    assert "done training" in said
