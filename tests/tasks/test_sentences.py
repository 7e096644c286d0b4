"""A document's text is divided, encoded and decoded sentence by sentence."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.data import encoders
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from linformer_fairseq.tasks.document_translation import DocumentTranslationConfig, DocumentTranslationTask
from linformer_fairseq.tasks.sentences import DocumentDictionary, each_sentence, join_sentences, split_sentences
from tests.models.toy import toy_args
from tests.tasks.toy_documents import document_task

SENTENCES = st.lists(st.lists(st.sampled_from(["a", "b<sep>", "<sep>c", "<", "sep"])).map(" ".join), min_size=1)


@given(SENTENCES)
def test_split_undoes_join(sentences: list[str]) -> None:
    text = join_sentences(sentences, "<sep>")
    assert split_sentences(text, "<sep>") == sentences
    assert "  " not in text
    assert text == text.strip()


@given(SENTENCES)
def test_each_sentence_is_seen_alone(sentences: list[str]) -> None:
    seen = []
    each_sentence(lambda text: seen.append(text) or text.upper(), join_sentences(sentences, "<sep>"), "<sep>")
    assert seen == sentences


def test_the_tokeniser_keeps_separators_whole() -> None:
    """Moses would make `&lt; sep &gt;` of a separator, and starts a sentence anew after each."""
    tokenizer = document_task().build_tokenizer(Namespace(tokenizer="moses", source_lang="en", target_lang="en"))
    text = 'He said: "Go!" <sep> I don\'t.'
    encoded = tokenizer.encode(text)
    assert encoded == "He said : &quot; Go ! &quot; <sep> I don &apos;t ."
    assert tokenizer.decode(encoded) == text
    assert tokenizer.decode('" a <sep> " b') == '"a <sep> "b'


def test_subwords_keep_separators_whole(tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    with codes.open("w") as file:
        learn_bpe(["sep sep low lower"] * 3, file, 3)
    args = Namespace(bpe="subword_nmt", bpe_codes=str(codes), bpe_separator="@@")
    assert "<sep>" not in encoders.build_bpe(args).encode("lower <sep> low")
    bpe = document_task().build_bpe(args)
    encoded = bpe.encode("lower <sep> low")
    assert encoded.split().count("<sep>") == 1
    assert "@@" in encoded
    assert bpe.decode(encoded) == "lower <sep> low"
    assert bpe.decode("lo@@ <sep> w") == "lo <sep> w"


def test_bleu_in_training_is_that_of_detokenised_sentences() -> None:
    """fairseq builds the detokeniser of `--eval-bleu-detok` in another way than that of `--tokenizer`. Separators would
    be scored as words, which are always right where their number is forced."""
    task = document_task(eval_bleu=True, eval_bleu_detok="moses", eval_bleu_args='{"beam": 1}')
    task.build_model(toy_args("transformer"))
    assert task.tokenizer.decode('" a <sep> " b') == '"a "b'


def test_no_encoder_is_none() -> None:
    task = document_task()
    assert task.build_tokenizer(Namespace(tokenizer=None)) is None
    assert task.build_bpe(Namespace(bpe=None)) is None


@pytest.mark.parametrize(
    ("symbol", "words", "text"),
    [
        (None, "▁He llo ▁you <sep> ▁And", "▁He llo ▁you <sep> ▁And"),
        ("sentencepiece", "▁He llo ▁you <sep> ▁And", "Hello you <sep> And"),
        ("@@ ", "He@@ llo you <sep> And", "Hello you <sep> And"),
    ],
)
def test_words_are_joined_in_each_sentence(symbol: str | None, words: str, text: str) -> None:
    dictionary = DocumentDictionary()
    tokens = dictionary.encode_line(words)
    DocumentTranslationTask(DocumentTranslationConfig(), dictionary, dictionary)
    assert dictionary.string(tokens, symbol) == text
    assert dictionary.string(torch.stack([tokens, tokens]), symbol) == f"{text}\n{text}"
