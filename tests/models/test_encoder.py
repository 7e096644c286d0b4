"""What becomes of the encoders and decoders of models whose attention is replaced."""

import copy
import pickle

import pytest
import torch
from fairseq.models.transformer import TransformerEncoder

from linformer_fairseq.models.swap import SingleRows
from linformer_fairseq.modules import KINDS
from tests.models.toy import batch, net_input, sentence, small, toy_model, toy_task, translate


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [True, False])
def test_outputs_are_in_the_order_of_the_tokens(kind: str, left: bool) -> None:
    """Every sentence has the states that it has alone, wherever its padding is, in all that fairseq returns."""
    task = toy_task()
    encoder = toy_model(task=task, linformer_attention="encoder", linformer_projection=kind, **small(kind)).encoder
    sentences = [sentence(task, length, length) for length in (20, 9)]
    together = encoder(**batch(task, sentences, left)["net_input"], return_all_hiddens=True)
    for number, tokens in enumerate(sentences):
        alone = encoder(**batch(task, [tokens], left)["net_input"], return_all_hiddens=True)
        own = slice(20 - len(tokens), None) if left else slice(len(tokens))
        assert (~together["encoder_padding_mask"][0][number]).nonzero().flatten().tolist() == [*range(20)][own]
        for name in ("encoder_out", "encoder_states"):
            for found, expected in zip(together[name], alone[name], strict=True):
                torch.testing.assert_close(found[own, number], expected[:, 0], rtol=1e-4, atol=1e-5)
        assert torch.equal(together["encoder_embedding"][0][number, own], alone["encoder_embedding"][0][0])


@pytest.mark.parametrize(
    ("places", "stays"), [("encoder,cross", True), ("cross", True), ("encoder", False), ("decoder", False)]
)
def test_rows_are_repeated_for_full_cross_attention_alone(places: str, stays: bool) -> None:
    encoder = toy_model(linformer_k="4", linformer_attention=places).encoder
    source = net_input(toy_task(), (20, 9))
    del source["prev_output_tokens"]
    encoded, order = encoder(**source), torch.tensor([0, 0, 1, 1])
    found = encoder.reorder_encoder_out(encoded, order)
    expected = encoded if stays else TransformerEncoder.reorder_encoder_out(encoder, encoded, order)
    for name in ("encoder_out", "encoder_padding_mask"):
        assert torch.equal(found[name][0], expected[name][0])


def test_a_decoder_that_attends_to_itself_and_the_source_at_once_has_its_rows() -> None:
    assert not isinstance(toy_model(linformer_k="4", cross_self_attention=True).encoder, SingleRows)


def test_a_model_can_be_copied_and_pickled() -> None:
    """Whichever classes its encoder and decoder have become."""
    task = toy_task()
    model = toy_model("two_level_transformer", task)
    sample = batch(task, [sentence(task, 9, 1)], left_pad=True)
    expected = translate(task, model, sample)[0]
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.decoder is not model.decoder
        for found, wanted in zip(translate(task, other, sample)[0], expected, strict=True):
            assert torch.equal(found["tokens"], wanted["tokens"])
