import torch

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
