"""On a GPU the models wait for the device no more often than fairseq's own: what would wait is counted."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import BaseFairseqModel
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linformer_fairseq.modules.two_level import steps
from tests.models.toy import EVERYWHERE, net_input, toy_model, toy_task
from tests.variants import variants

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
}
"""Operations whose result, or whose result's shape, the processor has to know."""
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""Operations that wait for an index of bools."""
LEAVING = {Tensor.tolist, Tensor.cpu, Tensor.numpy, torch.tensor}
"""What brings numbers from the device or to it. A tensor on a processor shows it to no dispatcher."""


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "finds_copies", lambda _: False)


class Operations(TorchDispatchMode):
    """Counts the operations that would wait."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        devices = {x.device for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)}
        by_bools = func in INDEXING and any(x is not None and x.dtype is torch.bool for x in args[1])
        by_repeats = func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None
        if func in WAITING or by_bools or by_repeats or len(devices) > 1:
            self.counts[str(func)] += 1
        return out


class Functions(TorchFunctionMode):
    """Counts the calls that move numbers between processor and device."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in LEAVING:
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts what waits in the block."""
    counts: Counter[str] = Counter()
    with Operations(counts), Functions(counts):
        yield counts


TWO_LEVELS: dict[str, object] = {
    "linformer_projection": "two-level",
    "linformer_exact_below": 12,
    "linformer_open_slots": 1,
    "linformer_block_size": 4,
}
KINDS: dict[str, dict[str, object]] = {
    "slots": {},
    "masked slots and a window": {"linformer_mask_empty_slots": True, "linformer_window": 2},
    "two levels": TWO_LEVELS,
    "key clusters": {"linformer_projection": "key-clusters"},
    "windows": {
        "linformer_projection": "window",
        "linformer_attention": "encoder,decoder",
        "linformer_k": "64",
        "linformer_window_size": 8,
    },
}
every_beam = pytest.mark.parametrize("beam", variants([1, 4], default=[4]))
every_kind = pytest.mark.parametrize("kind", KINDS)
SOURCES = {"one length": (40, 40), "short": (11, 6), "several lengths": (40, 9, 30)}
every_source = pytest.mark.parametrize("source", SOURCES)


def looks(kind: str, source: str) -> int:
    """How often a model looks at padding masks: all layers share the look at that of the source, of which fairseq's
    encoder tells its layers nothing where no sentence is padded, but its decoder does."""
    return 0 if source == "one length" and kind == "windows" else 1


def waits_of_training(model: BaseFairseqModel, criterion: torch.nn.Module, sample: dict[str, Any]) -> Counter[str]:
    model.train()
    with counting() as counts:
        loss, _, _ = criterion(model, sample)
        loss.backward()
    return counts


def check(ours: Counter[str], theirs: Counter[str], looks: int = 0) -> None:
    """Asserts that ours wait no more often than theirs, but for these looks at lengths."""
    assert theirs
    assert ours - theirs == Counter(tolist=looks)


def translation_model(kind: str | None) -> BaseFairseqModel:
    """Returns fairseq's model, or one of a kind in all attention."""
    layers = {"encoder_layers": 3, "decoder_layers": 3}
    if kind is None:
        return toy_model("transformer", **layers)
    return toy_model(**{"linformer_attention": EVERYWHERE, "linformer_k": "4", **layers, **KINDS[kind]})


@every_kind
@every_source
def test_training_of_a_translation_model(kind: str, source: str) -> None:
    task = toy_task()
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    inputs = net_input(task, SOURCES[source], target=33)
    inputs["prev_output_tokens"][0, 20:] = task.target_dictionary.pad()
    target = inputs["prev_output_tokens"].roll(-1, 1)
    sample = {"net_input": inputs, "target": target, "ntokens": target.numel()}
    ours, theirs = (waits_of_training(translation_model(x), criterion, sample) for x in (kind, None))
    check(ours, theirs, looks(kind, source) + 1)  # and at the padding of the targets


def waits_of_search(model: BaseFairseqModel, sample: dict[str, Any], beam: int, steps: int) -> Counter[str]:
    """All hypotheses have the same length, so that every model takes as many steps."""
    words = toy_task().target_dictionary
    generator = SequenceGenerator([model], words, beam_size=beam, max_len_a=0, max_len_b=steps, min_len=steps)
    with counting() as counts:
        generator.generate([model], sample)
    return counts


@cache
def waits_of_translation(kind: str | None, source: str, beam: int, steps: int) -> Counter[str]:
    inputs = net_input(toy_task(), SOURCES[source])
    del inputs["prev_output_tokens"]
    return waits_of_search(translation_model(kind), {"net_input": inputs}, beam, steps)


@every_kind
@every_source
@every_beam
def test_search_with_a_translation_model(kind: str, source: str, beam: int) -> None:
    """No step looks at anything."""
    for length in (1, 20):
        ours, theirs = (waits_of_translation(x, source, beam, length) for x in (kind, None))
        check(ours, theirs, looks(kind, source))
