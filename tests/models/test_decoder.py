"""Models whose decoder attends causally to projected keys and values."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules import MultiheadAttention
from fairseq.search import DiverseBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks.translation import TranslationTask

from linformer_fairseq.modules import KINDS, CausalLinformerAttention
from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.models.toy import batch, each_hypothesis, previous_tokens, sentence, toy_model, toy_task, translate

every_sharing = pytest.mark.parametrize("sharing", SHARINGS)
every_place = pytest.mark.parametrize("places", ["decoder", "encoder,decoder", "encoder,cross,decoder"])


def causal_model(task: TranslationTask | None = None, **flags: object) -> TransformerModelBase:
    flags = {"linformer_attention": "encoder,cross,decoder", "linformer_k": "4", **flags}
    return toy_model(task=task, **flags)


def scored(
    task: TranslationTask, models: list[TransformerModelBase], source: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Scores of a translation by one parallel pass."""
    sample = batch(task, [source], left_pad=True)
    sample["target"] = tokens[None]
    sample["net_input"]["prev_output_tokens"] = previous_tokens(task, tokens[None])
    return SequenceScorer(task.target_dictionary).generate(models, sample)[0][0]["positional_scores"]


def check_scores(
    task: TranslationTask,
    models: list[TransformerModelBase],
    lengths: list[int],
    tolerance: float = 1e-5,
    **options: object,
) -> None:
    """What a search says of its hypotheses is what a parallel pass says of them."""
    sources = [sentence(task, length, seed) for seed, length in enumerate(lengths)]
    generator = SequenceGenerator(models, task.target_dictionary, **options)
    hypotheses = generator.generate(models, batch(task, sources, left_pad=True))
    assert len(hypotheses) == len(sources)
    for index, hypothesis in each_hypothesis(hypotheses):
        torch.testing.assert_close(
            hypothesis["positional_scores"],
            scored(task, models, sources[index], hypothesis["tokens"]),
            rtol=1e-5,
            atol=tolerance,
            check_dtype=False,
        )


@every_sharing
@every_place
@pytest.mark.parametrize("window", [0, 3])
def test_beam_search_gives_the_scores_of_a_parallel_pass(sharing: str, places: str, window: int) -> None:
    task = toy_task()
    model = causal_model(task, linformer_attention=places, linformer_sharing=sharing, linformer_window=window)
    check_scores(task, [model], [12, 5, 30], beam_size=4, max_len_b=20)


def test_a_window_over_the_whole_target_is_full_attention() -> None:
    """And two levels of slots over the whole source are, too: the model is `transformer`."""
    task = toy_task()
    flags = {"linformer_attention": "encoder,cross,decoder", "linformer_projection": "two-level", "linformer_k": "8"}
    model = toy_model(task=task, linformer_decoder_k="13", linformer_window=12, linformer_open_slots=8, **flags)
    transformer = toy_model("transformer", task)
    own = {name: w for name, w in model.state_dict().items() if name not in transformer.state_dict()}
    model.load_state_dict({**transformer.state_dict(), **own})
    source, target = batch(task, [sentence(task, 30), sentence(task, 3)], left_pad=True), sentence(task, 12, 1)[None]
    previous = previous_tokens(task, target.expand(2, -1))
    with torch.no_grad():
        out, expected = (m(**source["net_input"], prev_output_tokens=previous)[0] for m in (model, transformer))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_ensembles() -> None:
    task = toy_task()
    models = [causal_model(task), toy_model("transformer", task), causal_model(task, linformer_k="7")]
    check_scores(task, models, [12, 5], beam_size=4, max_len_b=20)


@pytest.mark.parametrize("projection", ["linear", "two-level"])
def test_the_search_keeps_a_source_once_for_all_its_hypotheses(projection: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_projection=projection)
    kept = []

    def look(attention: torch.nn.Module, args: tuple, options: dict) -> None:
        state = attention._get_input_buffer(options["incremental_state"])
        kept.append((len(state["keys"]) if state else None, options["query"].size(1)))

    model.decoder.layers[0].encoder_attn.register_forward_pre_hook(look, with_kwargs=True)
    check_scores(task, [model], [12, 5, 30], beam_size=4, max_len_b=20)
    searching = [(rows, queries) for rows, queries in kept if rows]
    assert searching
    assert all(queries == 4 * rows for rows, queries in searching)


def test_a_beam_is_for_projected_attention_alone() -> None:
    """Fairseq's own, where it has been told of a beam, would take a batch in training for one."""
    model = toy_model(linformer_attention="encoder")
    model.set_beam_size(4)
    assert {layer.encoder_attn.beam_size for layer in model.decoder.layers} == {1}


def test_diverse_beam_search() -> None:
    task = toy_task()
    strategy = DiverseBeamSearch(task.target_dictionary, num_groups=2, diversity_strength=0.0)
    check_scores(task, [causal_model(task)], [12, 5], beam_size=4, max_len_b=20, search_strategy=strategy)


def test_sampling() -> None:
    task = toy_task()
    torch.manual_seed(0)
    strategy = Sampling(task.target_dictionary, sampling_topp=0.9)
    model = causal_model(task)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=20, search_strategy=strategy)
    source = sentence(task, 9)
    hypotheses = generator.generate([model], batch(task, [source], left_pad=True))[0]
    assert len({tuple(hypothesis["tokens"].tolist()) for hypothesis in hypotheses}) > 1
    # fairseq gives the scores of the words among which it drew, so what it drew is asked for: likely words
    drawn = torch.cat([scored(task, [model], source, hypothesis["tokens"]) for hypothesis in hypotheses])
    assert drawn.exp().min() > 1e-3


@pytest.mark.parametrize("projection", ["linear", "two-level"])
def test_sampling_several_of_a_sentence_after_a_beam(projection: str) -> None:
    """Copies of a sentence in a row look like the beam of the search before, but end one by one."""
    task = toy_task()
    torch.manual_seed(0)
    model = toy_model(task=task, linformer_k="4", linformer_projection=projection)
    sources = [sentence(task, 12, 1)] * 4 + [sentence(task, 9, 2)] * 4
    translate(task, model, batch(task, sources[::4], left_pad=True), beam=4)
    strategy = Sampling(task.target_dictionary)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=1, max_len_b=20, search_strategy=strategy)
    for _ in range(3):
        hypotheses = generator.generate([model], batch(task, sources, left_pad=True))
        for index, hypothesis in each_hypothesis(hypotheses):
            expected = scored(task, [model], sources[index], hypothesis["tokens"])
            torch.testing.assert_close(hypothesis["positional_scores"], expected, rtol=1e-5, atol=1e-4)


def test_prefixes() -> None:
    task = toy_task()
    model = causal_model(task)
    source = sentence(task, 12)
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=4, max_len_b=20)
    prefix = sentence(task, 6, 3)[None, :5]
    hypotheses = generator.generate([model], batch(task, [source], left_pad=True), prefix_tokens=prefix)[0]
    for hypothesis in hypotheses:
        assert torch.equal(hypothesis["tokens"][:5], prefix[0])
        expected = scored(task, [model], source, hypothesis["tokens"])
        # of a prefix fairseq takes the scores as they are, but for the first of its tokens those of the whole beam
        torch.testing.assert_close(hypothesis["positional_scores"][5:], expected[5:], rtol=1e-5, atol=1e-4)


@every_sharing
def test_long_targets(sharing: str) -> None:
    """A thousand tokens by beam search, against a parallel pass. In float64, as the weights of toys are large; fairseq
    gives scores as differences of their sum so far in float32, which comes to some thousands."""
    task = toy_task()
    model = causal_model(task, linformer_sharing=sharing, max_target_positions=1100).double()
    options = {"beam_size": 4, "max_len_a": 0, "max_len_b": 1000, "min_len": 1000}
    check_scores(task, [model], [12], tolerance=5e-4, **options)


@every_sharing
def test_long_targets_with_reordering_at_every_step(sharing: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_sharing=sharing, max_target_positions=1100).double()
    sources = [sentence(task, 12, 1)] * 3
    target = torch.stack([sentence(task, 1000, seed) for seed in range(3)])
    tokens = previous_tokens(task, target)
    with torch.no_grad():
        encoded = model.encoder(**batch(task, sources, left_pad=True)["net_input"])
        parallel = model.get_normalized_probs(model.decoder(tokens, encoded), log_probs=True)
        state: dict = {}
        rows = torch.arange(3)  # the target that each row follows
        for i in range(1000):
            out = model.decoder(tokens[rows, : i + 1], encoded, incremental_state=state)
            scores = model.get_normalized_probs(out, log_probs=True)[:, -1]
            torch.testing.assert_close(scores, parallel[rows, i], rtol=1e-7, atol=1e-7)
            order = torch.randperm(3)
            model.decoder.reorder_incremental_state_scripting(state, order)
            rows = rows[order]


@every_sharing
@every_place
def test_future_targets_do_not_matter(sharing: str, places: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_attention=places, linformer_sharing=sharing)
    sample = batch(task, [sentence(task, 12, 1)], left_pad=True)["net_input"]
    tokens = previous_tokens(task, sentence(task, 40, 2)[None])
    changed = tokens.clone()
    changed[:, 21:] = previous_tokens(task, sentence(task, 40, 5)[None])[:, 21:]
    with torch.no_grad():
        out, other = (model(**sample, prev_output_tokens=t)[0] for t in (tokens, changed))
    torch.testing.assert_close(other[:, :21], out[:, :21], rtol=0, atol=1e-6)
    assert not torch.allclose(other[:, 21:], out[:, 21:])


@every_sharing
@every_place
def test_padded_batches_train_as_their_sentences_do(sharing: str, places: str) -> None:
    task = toy_task()
    model = causal_model(task, linformer_attention=places, linformer_sharing=sharing).double().train()
    sources = [sentence(task, 12, 1), sentence(task, 5, 2), sentence(task, 20, 3)]
    targets = [sentence(task, 9, 4), sentence(task, 30, 5), sentence(task, 1, 6)]

    def gradients(chosen: list[int]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        sample = batch(task, [sources[i] for i in chosen], left_pad=True)["net_input"]
        target = batch(task, [targets[i] for i in chosen], left_pad=False)["net_input"]["src_tokens"]
        moved = previous_tokens(task, target).masked_fill(target.eq(task.target_dictionary.pad()), 1)
        out = model(**sample, prev_output_tokens=moved)[0].log_softmax(-1)
        kept = target.ne(task.target_dictionary.pad())
        (-out.gather(2, target[:, :, None])[kept].sum()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    together = gradients([0, 1, 2])
    alone = [gradients([i]) for i in range(3)]
    assert any("decoder.layers.0.self_attn.key_projection" in name for name in together)
    tolerance = 1e-9 if "cross" in places else 1e-4  # fairseq's own cross-attention has its softmax in float32
    for name, gradient in together.items():
        torch.testing.assert_close(gradient, sum(g[name] for g in alone), rtol=tolerance, atol=tolerance)


def test_places_and_k_of_every_layer() -> None:
    model = causal_model(linformer_k="8,4", linformer_decoder_k="3,2", linformer_cross_k="5")
    assert [layer.self_attn.key_projection.projected_dim for layer in model.decoder.layers] == [3, 2]
    assert [layer.encoder_attn.key_projection.projected_dim for layer in model.decoder.layers] == [5, 5]
    assert [layer.self_attn.key_projection.projected_dim for layer in model.encoder.layers] == [8, 4]
    assert all(layer.self_attn.causal and not layer.encoder_attn.causal for layer in model.decoder.layers)
    lone = causal_model(linformer_attention="decoder", max_target_positions=32)
    assert lone.decoder.layers[0].self_attn.key_projection.weight.shape == (4, 32)
    assert all(type(layer.encoder_attn) is MultiheadAttention for layer in lone.decoder.layers)
    assert all(type(layer.self_attn) is MultiheadAttention for layer in lone.encoder.layers)


def test_layerwise_sharing_is_one_matrix_a_place() -> None:
    model = causal_model(linformer_sharing="layerwise")
    weights = {name: p for name, p in model.named_parameters() if "_projection.weight" in name and "layers" in name}
    assert len(weights) == 3
    assert isinstance(model.decoder.layers[1].self_attn, CausalLinformerAttention)
    assert model.decoder.layers[0].self_attn.key_projection is model.decoder.layers[1].self_attn.value_projection


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "linear"])
def test_other_kinds_leave_the_decoder_linear(kind: str) -> None:
    model = causal_model(linformer_projection=kind, linformer_init="identity")
    assert type(model.encoder.layers[0].self_attn) is KINDS[kind].attention
    assert type(model.decoder.layers[0].encoder_attn) is KINDS[kind].attention
    assert type(model.decoder.layers[0].self_attn) is CausalLinformerAttention
    projection = model.decoder.layers[0].self_attn.key_projection
    assert projection.init == "identity"


def test_targets_padded_on_the_left_are_refused() -> None:
    task = toy_task()
    model = causal_model(task)
    encoded = model.encoder(**batch(task, [sentence(task, 12, 1)] * 2, left_pad=True)["net_input"])
    target = batch(task, [sentence(task, 9, 2), sentence(task, 5, 3)], left_pad=True)["net_input"]["src_tokens"]
    with pytest.raises(ValueError, match="targets padded on the left are not supported"):
        model.decoder(target, encoded)


def test_state_does_not_grow() -> None:
    task = toy_task()
    model = causal_model(task)
    encoded = model.encoder(**batch(task, [sentence(task, 12, 1)], left_pad=True)["net_input"])
    tokens = previous_tokens(task, sentence(task, 50, 2)[None])
    state: dict = {}
    sizes = set()
    with torch.no_grad():
        for i in range(50):
            model.decoder(tokens[:, : i + 1], encoded, incremental_state=state)
            sizes.add(sum(x.numel() for entry in state.values() for x in entry.values() if x is not None))
    assert len(sizes) == 1


def test_no_mask_of_the_future_is_made() -> None:
    """It would grow with the square of the length."""
    model = causal_model()
    assert model.decoder.buffered_future_mask(torch.zeros(50, 1, 16)) is None
    assert model.decoder._future_mask.numel() == 0
    whole = causal_model(linformer_attention="encoder,cross")
    assert whole.decoder.buffered_future_mask(torch.zeros(50, 1, 16)).shape == (50, 50)


def test_alignment_over_the_full_context_is_refused() -> None:
    task = toy_task()
    model = causal_model(task)
    encoded = model.encoder(**batch(task, [sentence(task, 12, 1)], left_pad=True)["net_input"])
    tokens = previous_tokens(task, sentence(task, 9, 2)[None])
    with pytest.raises(ValueError, match="full_context_alignment needs a decoder whose self-attention is whole"):
        model.decoder(tokens, encoded, full_context_alignment=True)


@pytest.mark.parametrize(
    "flags",
    [
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"no_cross_attention": True},
        {"decoder_layerdrop": 0.5},
        {"activation_fn": "gelu", "share_all_embeddings": False, "decoder_embed_dim": 8, "decoder_output_dim": 8},
    ],
)
def test_flags_of_the_transformer_keep_their_meaning(flags: dict[str, object]) -> None:
    """With as many slots as positions, each for its token, the model is `transformer`."""
    task = toy_task()
    transformer = toy_model("transformer", task, **flags)
    ours = {"linformer_k": "64", "linformer_init": "identity", "linformer_mask_empty_slots": True}
    model = causal_model(task, random=False, **ours, **flags)
    model.load_state_dict(transformer.state_dict())
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)["net_input"]
    tokens = previous_tokens(task, sentence(task, 6, 3)[None].expand(2, -1))
    outputs = [m.train(False)(**sample, prev_output_tokens=tokens)[0] for m in (model, transformer)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


def test_checkpointed_activations_change_nothing() -> None:
    task = toy_task()
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)["net_input"]
    target = sentence(task, 6, 3)[None].expand(2, -1)
    gradients = []
    for checkpoint in (False, True):
        model = causal_model(task, checkpoint_activations=checkpoint).train()
        model(**sample, prev_output_tokens=previous_tokens(task, target))[0].log_softmax(-1)[..., 5].sum().backward()
        gradients.append(model.decoder.layers[0].self_attn.key_projection.weight.grad)
    torch.testing.assert_close(*gradients)


def test_a_checkpoint_without_the_decoders_projections_is_refused() -> None:
    state = toy_model(linformer_k="4").state_dict()
    with pytest.raises(
        SystemExit, match=r"^error: \S+self_attn\S+ is in the model only: give the --linformer-attention"
    ):
        causal_model().load_state_dict(state)


@pytest.mark.parametrize(("sharing", "projected"), [("layerwise", 1), ("key-value", 3), ("headwise", 3)])
@pytest.mark.parametrize("training", [False, True])
def test_layerwise_sharing_projects_the_source_once_for_all_layers(
    sharing: str, projected: int, training: bool
) -> None:
    task = toy_task()
    flags = {"decoder_layers": 3, "linformer_k": "4", "linformer_attention": "cross", "linformer_sharing": sharing}
    model = toy_model(task=task, **flags).double().train(training)
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)["net_input"]
    sample["prev_output_tokens"] = previous_tokens(task, sentence(task, 6, 3)[None].expand(2, -1))
    products = []
    projections = {layer.encoder_attn.key_projection for layer in model.decoder.layers}
    for projection in projections:
        original = projection.with_values
        projection.with_values = lambda *args, original=original: products.append(1) or original(*args)
    out, _ = model(**sample)
    assert len(products) == projected
    # as if every layer projected for itself
    for layer in model.decoder.layers:
        layer.encoder_attn.source_cache = layer.encoder_attn.slot_cache = ForwardCache()
    alone, _ = model(**sample)
    assert len(products) == projected + 3
    parameters = list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), parameters) for y in (out, alone)), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(out, alone)


def test_training_leaves_out_the_weights_that_nobody_asks_for() -> None:
    task = toy_task()
    model = toy_model(task=task, linformer_k="4")
    sample = batch(task, [sentence(task, 12, 1)], left_pad=True)["net_input"]
    sample["prev_output_tokens"] = previous_tokens(task, sentence(task, 6, 3)[None])
    expected, extra = model(**sample)
    assert extra["attn"][0].shape == (1, 6, 12)
    model.train()
    out, extra = model(**sample)
    assert extra["attn"] == [None]
    torch.testing.assert_close(out, expected)
    encoded = model.encoder(sample["src_tokens"], sample["src_lengths"])
    asked = [
        model.decoder(sample["prev_output_tokens"], encoded, alignment_layer=layer)[1]["attn"][0] for layer in (0, 1)
    ]
    assert not torch.equal(*asked)
    torch.testing.assert_close(asked[1], model.eval()(**sample)[1]["attn"][0])


@pytest.mark.parametrize("places", ["encoder", "encoder,cross"])
def test_training_on_alignments_has_the_weights(places: str) -> None:
    task = toy_task()
    task.cfg.load_alignments = True
    model = toy_model(task=task, linformer_attention=places, linformer_projection="mean-pool", linformer_k="4").train()
    sample = batch(task, [sentence(task, 12, 1)], left_pad=True)
    target = sentence(task, 6, 3)[None]
    sample["net_input"]["prev_output_tokens"] = previous_tokens(task, target)
    sample |= {"target": target, "ntokens": target.numel()}
    sample |= {"alignments": torch.tensor([[3, 0], [5, 1]]), "align_weights": torch.tensor([1.0, 0.5])}
    criterion = LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.1, alignment_lambda=0.5)
    loss, _, log = criterion(model, sample)
    assert log["alignment_loss"] > 0
    loss.backward()
    assert model.decoder.layers[-1].encoder_attn.q_proj.weight.grad.any()


def test_only_the_layer_whose_weights_are_returned_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    task = toy_task()
    model = toy_model(task=task, linformer_k="4")
    sample = batch(task, [sentence(task, 12, 1)], left_pad=True)["net_input"]
    asked = []
    for layer in model.decoder.layers:
        original = layer.encoder_attn.forward
        monkeypatch.setattr(
            layer.encoder_attn,
            "forward",
            lambda *args, original=original, **options: (
                asked.append(options["need_weights"]) or original(*args, **options)
            ),
        )
    model(**sample, prev_output_tokens=previous_tokens(task, sentence(task, 6, 3)[None]))
    assert asked == [False, True]
