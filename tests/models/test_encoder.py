from collections.abc import Callable

import pytest
import torch
from fairseq.models.transformer import TransformerEncoder

from linformer_fairseq.modules.forward_cache import ForwardCache
from tests.models.toy import net_input, toy_model, toy_task


def test_given_embeddings_are_moved_with_their_tokens() -> None:
    model = toy_model(linformer_k="4")
    source = net_input(toy_task(), (20, 9))
    del source["prev_output_tokens"]
    embeddings = model.encoder.embed_tokens(source["src_tokens"])
    expected, found = (model.encoder(**source, token_embeddings=x) for x in (None, embeddings))
    torch.testing.assert_close(found["encoder_out"][0], expected["encoder_out"][0])
    assert torch.equal(expected["src_tokens"][0], source["src_tokens"])
    assert expected["encoder_padding_mask"][0].sum(1).tolist() == [0, 11]
    assert expected["encoder_padding_mask"][0][1, 9:].all()


def test_a_search_is_told_which_hypotheses_share_a_sentence() -> None:
    task = toy_task()
    model = toy_model(linformer_k="4")
    source = net_input(task, (20, 9))
    del source["prev_output_tokens"]
    encoded = model.encoder(**source)
    repeated = model.encoder.reorder_encoder_out(encoded, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert repeated["beams"][0].tolist() == [[0, 0, 0], [1, 1, 1]]
    last = model.encoder.reorder_encoder_out(repeated, torch.tensor([3, 4, 4]))
    assert last["beams"][0].tolist() == [[1, 1, 1]]
    for order in ([1, 0], [1]):  # no more than there were
        assert "beams" not in model.encoder.reorder_encoder_out(encoded, torch.tensor(order))
    mixed = model.encoder.reorder_encoder_out(encoded, torch.tensor([0, 1, 0, 1]))
    tokens = source["src_tokens"].new_full((4, 1), task.target_dictionary.eos())
    with pytest.raises(RuntimeError, match="the hypotheses of a sentence must stand side by side"):
        model.decoder(tokens, mixed, incremental_state={})


def test_outputs_are_moved_only_where_a_sentence_comes_or_goes() -> None:
    model = toy_model(linformer_k="4")
    source = net_input(toy_task(), (20, 9, 12))
    del source["prev_output_tokens"]
    found = expected = model.encoder(**source)
    for order, moves in (
        ([0, 0, 1, 1, 2, 2], True),
        ([1, 0, 2, 3, 5, 5], False),
        ([0, 1, 4, 5], True),
        ([1, 1, 3, 2], False),
        ([2, 3], True),
    ):
        before, found = found, model.encoder.reorder_encoder_out(found, torch.tensor(order))
        assert (found is not before) == moves
        expected = TransformerEncoder.reorder_encoder_out(model.encoder, expected, torch.tensor(order))
        for name in ("encoder_out", "encoder_padding_mask", "encoder_embedding"):
            assert torch.equal(found[name][0], expected[name][0])


def test_hypotheses_of_a_search_stay_with_their_sentence() -> None:
    model = toy_model(linformer_k="4")
    source = net_input(toy_task(), (20, 9))
    del source["prev_output_tokens"]
    encoded = model.encoder(**source)
    repeated = model.encoder.reorder_encoder_out(encoded, torch.tensor([0, 0, 1, 1]))
    with pytest.raises(RuntimeError, match="hypotheses must keep the places of their sentence"):
        model.encoder.reorder_encoder_out(repeated, torch.tensor([2, 3, 0, 1]))
    swapped = model.encoder.reorder_encoder_out(encoded, torch.tensor([1, 0]))  # no search
    again = model.encoder.reorder_encoder_out(swapped, torch.tensor([1, 0]))
    assert torch.equal(again["encoder_out"][0], encoded["encoder_out"][0])


@pytest.mark.parametrize("kind", ["mean-pool", "conv", "two-level"])
def test_what_depends_on_lengths_alone_is_computed_once_for_all_layers(kind: str) -> None:
    """The outputs are those of layers that compute it for themselves."""
    own = {"linformer_exact_below": 8} if kind == "two-level" else {}
    places = {"linformer_attention": "encoder", "linformer_projection": kind}
    model = toy_model(encoder_layers=3, linformer_k="4", **places, **own).double()
    source = net_input(toy_task(), (30, 9, 20))
    del source["prev_output_tokens"]
    computed: list[str] = []
    get = model.encoder.length_cache.get

    def recording(name: str, x: object, compute: Callable[[object], object]) -> object:
        return get(name, x, lambda y: (computed.append(name), compute(y))[1])

    model.encoder.length_cache.get = recording
    shared = model.encoder(**source)["encoder_out"][0]
    assert len(computed) > 1
    assert len(computed) == len(set(computed))
    for layer in model.encoder.layers:
        layer.self_attn.share_lengths(ForwardCache())
    torch.testing.assert_close(model.encoder(**source)["encoder_out"][0], shared)
