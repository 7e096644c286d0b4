"""The decoder searches, is causal, and returns attention weights."""

import copy
import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.data import LanguagePairDataset
from fairseq.models.transformer import TransformerModelBase
from fairseq.search import DiverseBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.models.swap import NO_WEIGHTS
from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.fairseq_commands import SHORT
from tests.models.toy import (
    EVERYWHERE,
    batch,
    check_scores,
    net_input,
    previous_tokens,
    scored,
    sentence,
    small,
    toy_model,
    toy_task,
    translate,
)
from tests.variants import variants

PLACES = ("decoder", "encoder,decoder", EVERYWHERE)
sharings_and_places = pytest.mark.parametrize(
    ("sharing", "places"),
    variants(
        [(sharing, places) for sharing in SHARINGS for places in PLACES],
        default=[("headwise", "decoder"), ("layerwise", EVERYWHERE)],
    ),
)
one_sharing = pytest.mark.parametrize("sharing", variants(SHARINGS, default=["headwise"]))


def causal_model(task: TranslationTask | None = None, **flags: object) -> TransformerModelBase:
    return toy_model(task=task, **{"linformer_attention": EVERYWHERE, "linformer_k": "4", **flags})


def test_diverse_beam_search() -> None:
    task = toy_task()
    model, sources = causal_model(task).double(), [sentence(task, 12), sentence(task, 5, 1)]
    strategy = DiverseBeamSearch(task.target_dictionary, num_groups=2, diversity_strength=0.0)
    hypotheses = translate(task, model, batch(task, sources, left_pad=True), search_strategy=strategy)
    check_scores(task, [model], sources, hypotheses)


@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_sampling_several_of_a_sentence_after_a_beam(kind: str) -> None:
    """Copies of a sentence in a row look like the beam of the search before, but end one by one."""
    task = toy_task()
    model = causal_model(task, linformer_projection=kind)
    sources = [sentence(task, 12, 1)] * 4 + [sentence(task, 9, 2)] * 4
    translate(task, model, batch(task, sources[::4], left_pad=True))
    strategy = Sampling(task.target_dictionary)
    for _ in range(3):
        sample = batch(task, sources, left_pad=True)
        hypotheses = translate(task, model, sample, beam=1, max_len_b=20, search_strategy=strategy)
        check_scores(task, [model], sources, hypotheses, tolerance=1e-4)


def test_prefixes() -> None:
    task = toy_task()
    model, source = causal_model(task), sentence(task, 12)
    prefix = sentence(task, 6, 3)[None, :5]
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=20)
    (hypotheses,) = generator.generate([model], batch(task, [source], left_pad=True), prefix_tokens=prefix)
    for hypothesis in hypotheses:
        assert torch.equal(hypothesis["tokens"][:5], prefix[0])
        expected = scored(task, [model], source, hypothesis["tokens"])
        # of a prefix fairseq takes the scores as they are, but for the first of its tokens those of the whole beam
        torch.testing.assert_close(hypothesis["positional_scores"][5:], expected[5:], rtol=1e-5, atol=1e-4)


@torch.no_grad()
@sharings_and_places
def test_future_targets_do_not_matter(sharing: str, places: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_attention=places, linformer_sharing=sharing)
    source = net_input(task, (12,), 40)
    tokens = source.pop("prev_output_tokens")
    changed = torch.cat([tokens[:, :21], tokens[:, 21:].flip(1)], 1)
    out, other = (model(**source, prev_output_tokens=t)[0] for t in (tokens, changed))
    torch.testing.assert_close(other[:, :21], out[:, :21], rtol=0, atol=1e-6)
    assert not torch.allclose(other[:, 21:], out[:, 21:])


@sharings_and_places
def test_padded_batches_train_as_their_sentences_do(sharing: str, places: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_attention=places, linformer_sharing=sharing).double().train()
    sources = [sentence(task, 12, 1), sentence(task, 5, 2), sentence(task, 20, 3)]
    targets = [sentence(task, 9, 4), sentence(task, 30, 5), sentence(task, 1, 6)]
    pad = task.target_dictionary.pad()

    def gradients(chosen: list[int]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        sample = batch(task, [sources[i] for i in chosen], left_pad=True)["net_input"]
        target = batch(task, [targets[i] for i in chosen], left_pad=False)["net_input"]["src_tokens"]
        moved = previous_tokens(task, target).masked_fill(target.eq(pad), pad)
        out = model(**sample, prev_output_tokens=moved)[0].log_softmax(-1)
        (-out.gather(2, target[:, :, None])[target.ne(pad)].sum()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    together, alone = gradients([0, 1, 2]), [gradients([i]) for i in range(3)]
    assert any("decoder.layers.0.self_attn.key_projection" in name for name in together)
    tolerance = 1e-9 if "cross" in places else 1e-4  # fairseq's own cross-attention has its softmax in float32
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, sum(g[name] for g in alone), rtol=tolerance, atol=tolerance)


def test_what_causal_attention_cannot_do_is_refused() -> None:
    task = toy_task()
    model = causal_model(task)
    encoded = model.encoder(**batch(task, [sentence(task, 12, 1)] * 2, left_pad=True)["net_input"])
    target = batch(task, [sentence(task, 9, 2), sentence(task, 5, 3)], left_pad=True)["net_input"]["src_tokens"]
    with pytest.raises(ValueError, match="supports padding on the right only"):
        model.decoder(target, encoded)
    with pytest.raises(ValueError, match="full_context_alignment needs a decoder with full self-attention"):
        model.decoder(target[:1], encoded, full_context_alignment=True)


def test_no_mask_of_the_future_is_made() -> None:
    """A mask of the future would grow with the square of the length."""
    x = torch.zeros(50, 1, 16)
    model = causal_model()
    assert model.decoder.buffered_future_mask(x) is None
    assert model.decoder._future_mask.numel() == 0
    assert toy_model().decoder.buffered_future_mask(x).shape == (50, 50)


def test_attention_weights_follow_the_padding_of_the_task() -> None:
    task = toy_task()
    model = toy_model(linformer_k="4")
    target = previous_tokens(task, sentence(task, 6, 3)[None].expand(2, -1))
    sources = [sentence(task, 20, 2), sentence(task, 9, 1)]
    left, right = (
        model(**batch(task, sources, left_pad)["net_input"], prev_output_tokens=target)[1]["attn"][0]
        for left_pad in (True, False)
    )
    assert left.shape == (2, 6, 20)
    assert (left[1, :, :11] == 0).all()
    torch.testing.assert_close(left[1, :, 11:], right[1, :, :9])
    torch.testing.assert_close(left[0], right[0])


def test_only_the_layer_whose_weights_are_read_computes_them() -> None:
    """That is the last one by default, and none in training or in a search whose weights nobody reads."""
    task = toy_task()
    model = toy_model(task=task, linformer_k="4")
    source = net_input(task, (12,), target=1)
    asked: list[bool] = []
    for layer in model.decoder.layers:
        layer.encoder_attn.register_forward_pre_hook(
            lambda attention, args, options: asked.append(options["need_weights"]), with_kwargs=True
        )

    def layers_asked(**options: object) -> list[bool]:
        asked.clear()
        out, extra = model.decoder(tokens, encoded, **options)
        torch.testing.assert_close(out, expected)
        assert (extra["attn"][0] is not None) == any(asked)
        return asked

    tokens = source.pop("prev_output_tokens")
    encoded = model.encoder(**source)
    expected, extra = model.decoder(tokens, encoded)
    assert extra["attn"][0].shape == (1, 1, 12)
    assert layers_asked() == [False, True]
    assert layers_asked(alignment_layer=0) == [True, False]
    model.train()
    assert layers_asked() == [False, False]
    model.eval()
    assert layers_asked(incremental_state={}) == [False, True]
    assert layers_asked(incremental_state={NO_WEIGHTS: {}}) == [False, False]
    pristine = model
    for need_attn in ("hard", False):  # as fairseq-generate does where it prints alignments, and where it does not
        model = copy.deepcopy(pristine)
        model.make_generation_fast_(need_attn=need_attn)
        assert layers_asked() == [False, True]
        assert layers_asked(incremental_state={}) == [False, bool(need_attn)]


CROSS_ATTENTION: dict[str, dict[str, object]] = {
    "fairseq's": {"linformer_attention": "encoder", "linformer_k": "2"},
    "two-level, short": {
        "linformer_projection": "two-level",
        "linformer_k": "2",
        **{f"linformer_{name}": n for name, n in SHORT.items()},
    },
    **{f"linear, {sharing}": {"linformer_k": "2", "linformer_sharing": sharing} for sharing in SHARINGS},
    "conv": {"linformer_projection": "conv", "linformer_k": "32"},  # kernels of two tokens
    **{
        name: {"linformer_projection": name, **small(name, "2")}
        for name in KINDS
        if name not in ("linear", "conv", "window")
    },
}


@pytest.mark.parametrize("flags", CROSS_ATTENTION.values(), ids=CROSS_ATTENTION)
def test_training_on_alignments(flags: dict[str, object]) -> None:
    """Weights are probabilities of source tokens, of whose logarithm the criterion makes a loss, which falls."""
    task = toy_task()
    task.cfg.load_alignments = True
    model = toy_model(task=task, random=False, **flags).train()
    words = task.source_dictionary
    lines = [words.encode_line(line, add_if_not_exist=False).long() for line in ("w1 w2 w3 w4", "w5 w6", "w7 w8 w9")]
    sizes, links = list(map(len, lines)), [torch.arange(len(line) - 1).repeat_interleave(2) for line in lines]
    dataset = LanguagePairDataset(lines, sizes, words, lines, sizes, words, align_dataset=links)
    sample = dataset.collater([dataset[i] for i in range(3)])
    criterion = LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.1, alignment_lambda=1.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss, _, log = criterion(model, sample)
        loss.backward()
        optimizer.step()
        losses.append(float(log["alignment_loss"]))
    assert all(map(math.isfinite, losses))
    assert losses[-1] < 0.9 * losses[0]
    weights = model.eval()(**sample["net_input"])[1]["attn"][0]
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(2), torch.ones(weights.shape[:2]))
