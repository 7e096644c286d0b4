"""Documents of small random models are translated whole, in parts, or refused."""

import logging
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.tasks.document_translation import DocumentTranslationConfig, DocumentTranslationTask
from linformer_fairseq.tasks.parts import cut, even_parts, halves, sentence_lengths
from linformer_fairseq.tasks.sentence_search import SentenceLimits
from tests.models.test_language_model import toy_lm
from tests.models.toy import batch, check_scores, previous_tokens
from tests.tasks.test_sentence_search import naive_allowed
from tests.tasks.toy_documents import counts, document, document_model, document_task, generator, translate_documents

ARCHITECTURES = {
    "linformer_transformer": {"linformer_k": "4", "linformer_attention": "encoder,cross,decoder"},
    "two_level_transformer": {"linformer_k": "8", "linformer_exact_below": 0},
    "transformer": {},
}
TASK = document_task()
FREE = document_task(sentence_count="free")
MODELS = {arch: document_model(TASK, arch, **flags) for arch, flags in ARCHITECTURES.items()}
MODEL = MODELS["transformer"]
LIMITS = {"max_len_a": 0.5, "max_len_b": 3}
DOCUMENTS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=4)

architectures = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


def documents(lengths: list[list[int]]) -> list[Tensor]:
    return [document(TASK, sentences, seed) for seed, sentences in enumerate(lengths)]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Asserts that the hypotheses of a document are equal."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one["tokens"].tolist() == other["tokens"].tolist()
        torch.testing.assert_close(one["positional_scores"], other["positional_scores"])
        torch.testing.assert_close(one["score"], other["score"])


@architectures
@pytest.mark.parametrize("beam", [1, 4])
@given(lengths=DOCUMENTS, min_len=st.integers(1, 3))
def test_as_many_sentences_as_the_source_has(model: Any, beam: int, lengths: list[list[int]], min_len: int) -> None:
    """All hypotheses have them, each within its own limits of length, and the scores that the model gives."""
    sources = documents(lengths)
    found = translate_documents(TASK, model, sources, beam=beam, min_len=min_len, nbest=beam, **LIMITS)
    limits = SentenceLimits(min_len, *LIMITS.values())
    for sentences, hypotheses in zip(lengths, found, strict=True):
        assert len(hypotheses) == beam
        for hypothesis in hypotheses:
            translated = sentence_lengths(hypothesis["tokens"], TASK.target_separator)
            assert len(translated) == len(sentences)
            for length, subwords in zip(translated, sentences, strict=True):
                longest = max(int(limits.max_len_a * subwords + limits.max_len_b), min_len)
                assert (min_len if subwords else 0) <= length <= longest
    check_scores(TASK, [model], sources, found)


@architectures
@pytest.mark.parametrize("beam", [1, 3])
@given(lengths=DOCUMENTS)
def test_a_document_does_not_depend_on_its_batch(model: Any, beam: int, lengths: list[list[int]]) -> None:
    sources = documents(lengths)
    together = translate_documents(TASK, model, sources, beam=beam, **LIMITS)
    for source, found in zip(sources, together, strict=True):
        same(found, translate_documents(TASK, model, [source], beam=beam, **LIMITS)[0])


@architectures
@pytest.mark.parametrize("lengths", [[4], [2, 5, 1], [1, 0, 3]])
def test_greedy_search_is_that_of_a_readable_loop(model: Any, lengths: list[int]) -> None:
    """The loop passes the whole translation through the model for every word, without a cache."""
    source = document(TASK, lengths)
    tokens, limits = [TASK.tgt_dict.eos()], SentenceLimits(1, *LIMITS.values())
    words = set(range(len(TASK.tgt_dict))) - {TASK.tgt_dict.pad()}
    with torch.no_grad():
        while len(tokens) == 1 or tokens[-1] != TASK.tgt_dict.eos():
            inputs = {**batch(TASK, [source], left_pad=True)["net_input"], "prev_output_tokens": torch.tensor([tokens])}
            scores = model.get_normalized_probs(model(**inputs), log_probs=True)[0, -1]
            allowed = sorted(naive_allowed(limits, lengths, tokens, words))
            tokens.append(allowed[int(scores[allowed].argmax())])
    ((found,),) = translate_documents(TASK, model, [source], beam=1, **LIMITS)
    assert found["tokens"].tolist() == tokens[1:]


def translation_task() -> TranslationTask:
    return TranslationTask(TranslationConfig(), TASK.src_dict, TASK.tgt_dict)


@pytest.mark.parametrize("search", [{}, {"sampling": True}, {"diverse_beam_groups": 2}, {"prefix_size": 2}])
@architectures
def test_free_is_translation(model: Any, search: dict[str, object]) -> None:
    """With one limit of length for a whole document, and the documents that the model takes whole."""
    sources, flags = documents([[4, 5], [2, 1, 1]]), {"beam": 4, "max_len_a": 1, "max_len_b": 2, **search}
    prefix = torch.tensor([[5, 6], [7, 8]]) if "prefix_size" in search else None
    sample = batch(TASK, sources, left_pad=True)
    # of [4, 5] the limit is 4 + 2 + 5 + 2 and a separator; its source has 11 tokens
    plain = generator(translation_task(), [model], **{**flags, "max_len_a": 0, "max_len_b": 14})
    torch.manual_seed(1)
    expected = translation_task().inference_step(plain, [model], sample, prefix_tokens=prefix)
    torch.manual_seed(1)
    found = FREE.inference_step(generator(FREE, [model], **flags), [model], sample, prefix_tokens=prefix)
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def short_model(arch: str = "transformer", source: int = 12, target: int = 64) -> Any:
    """Returns a model for documents of some tokens."""
    sizes = {"max_source_positions": source, "max_target_positions": target}
    return document_model(TASK, arch, **{**ARCHITECTURES[arch], **sizes})


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("task", [TASK, FREE], ids=["forced", "free"])
def test_long_documents_are_translated_in_parts(arch: str, task: DocumentTranslationTask) -> None:
    """What the parts are translated into by themselves, with separators between; other documents are as ever."""
    model = short_model(arch)
    lengths = [[3, 5, 2, 4, 6, 1], [4, 2], [5, 5, 5], [0, 0]]
    sources = documents(lengths)
    for beam in (1, 3):
        found = translate_documents(task, model, sources, beam=beam, **LIMITS)
        for sentences, source, hypotheses in zip(lengths, sources, found, strict=True):
            sizes = even_parts(sentences, 12)
            assert len(hypotheses) == (1 if len(sizes) > 1 else beam)
            parts = cut(source, TASK.source_separator, sizes)
            assert all(len(part) <= 12 for part in parts)
            if task is TASK:
                assert counts(task, hypotheses[0]["tokens"]) == len(sentences)
                alone = [translate_documents(task, model, [part], beam=beam, **LIMITS)[0][0] for part in parts]
                texts = [task.tgt_dict.string(part["tokens"]) for part in alone]
                assert task.tgt_dict.string(hypotheses[0]["tokens"]) == " <sep> ".join(texts)
                scores = torch.cat([part["positional_scores"] for part in alone])
                torch.testing.assert_close(hypotheses[0]["positional_scores"], scores)
                torch.testing.assert_close(hypotheses[0]["score"], scores.mean())


def test_the_parts_of_a_batch_are_translated_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part of every document, then the second: no search has more rows than the batch."""
    model, rows = short_model(), []
    encode = model.encoder.forward
    monkeypatch.setattr(
        model.encoder, "forward", lambda src_tokens, **rest: rows.append(src_tokens.shape) or encode(src_tokens, **rest)
    )
    translate_documents(TASK, model, documents([[5, 5, 5], [4, 2], [5] * 4]), beam=2, **LIMITS)
    assert [shape[0] for shape in rows] == [3, 2]
    assert all(shape[1] <= 12 for shape in rows)


def test_halves_where_a_translation_is_too_long(caplog: pytest.LogCaptureFixture) -> None:
    """Four sentences of seven words or more need 32 target positions; a model of 24 translates two at a time."""
    caplog.set_level(logging.INFO)
    model, flags = short_model(source=64, target=24), {"beam": 1, "min_len": 7, "max_len_b": 8}
    source = document(TASK, [3, 4, 5, 6], seed=3)
    ((found,),) = translate_documents(TASK, model, [source], **flags)
    first, second = (
        translate_documents(TASK, model, [part], **flags)[0][0]["tokens"].tolist()
        for part in cut(source, TASK.source_separator, halves([3, 4, 5, 6]))
    )
    assert first != second
    assert found["tokens"].tolist() == [*first[:-1], TASK.target_separator, *second]
    assert counts(TASK, found["tokens"]) == 4
    assert [record.levelname for record in caplog.records] == ["INFO"]  # that it was halved, and no part of it cut


def test_free_translations_are_halved_as_well() -> None:
    """Also where a document alone has a lower limit of length, as fairseq has one limit for a batch."""
    model, beam = short_model(source=64, target=24), 2
    plain = generator(translation_task(), [model], beam=beam)
    for seed in range(40):
        source = document(TASK, [1, 1], seed)
        (whole,) = translation_task().inference_step(plain, [model], batch(TASK, [source], left_pad=True))
        if all(len(hypothesis["tokens"]) == 24 for hypothesis in whole):
            break
    else:
        pytest.fail("all translations end")
    sources = [source, document(TASK, [15, 15])]
    found = translate_documents(FREE, model, sources, beam=beam, max_len_a=1, max_len_b=3)[0]
    assert len(found) == 1  # that of the halves, and not those of the whole
    assert found[0]["tokens"].tolist() != whole[0]["tokens"].tolist()
    assert counts(TASK, found[0]["tokens"]) > 1


def test_the_longest_target_may_be_given() -> None:
    """`--max-target-positions` below the model's, as documents of more than the lengths of the training suffer; that of
    a language model (`--lm-path`) holds as well."""
    task, source = document_task(max_target_positions=24), document(TASK, [3, 4, 5, 6])
    flags = {"beam": 1, "min_len": 10, "max_len_b": 10}
    ((found,),) = translate_documents(task, MODEL, [source], **flags)
    ((expected,),) = translate_documents(TASK, short_model(source=64, target=24), [source], **flags)
    assert found["tokens"].tolist() == expected["tokens"].tolist()
    assert generator(task, [MODEL]).max_len == 24
    lm = {"extra_gen_cls_kwargs": {"lm_model": toy_lm(max_target_positions=20)}}
    assert TASK.build_generator([MODEL], GenerationConfig(), **lm).max_len == 20


def test_a_search_with_fewer_words_than_hypotheses() -> None:
    """Three words may start a translation, and the beam asks for five: the others come to nothing."""
    task = document_task(words=1)
    model = document_model(task)
    found = translate_documents(task, model, [document(task, [1]), document(task, [1, 1, 1])], beam=5, max_len_b=1)
    assert [len(hypotheses) for hypotheses in found] == [3, 5]
    assert [counts(task, hypotheses[0]["tokens"]) for hypotheses in found] == [1, 3]


@pytest.mark.parametrize(("task", "warnings"), [(TASK, 2), (document_task(no_split_documents=True), 1)])
def test_what_does_not_end_is_kept_with_a_warning(
    task: DocumentTranslationTask, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A sentence that reaches the longest target, and with `--no-split-documents` a document."""
    model, source = short_model(source=64, target=24), document(TASK, [3, 1])
    with caplog.at_level(logging.WARNING):
        ((found,),) = translate_documents(task, model, [source], beam=1, min_len=23, max_len_b=40)
    assert found["tokens"].tolist()[-1] == TASK.tgt_dict.eos()
    assert len(found["tokens"]) == 24 * warnings
    assert caplog.text.count("reaches the longest target, 24 tokens, and is cut there") == warnings
    assert "the document (" in caplog.text


def test_a_translation_that_ends_at_its_limit_is_complete(caplog: pytest.LogCaptureFixture) -> None:
    """Two sentences of eleven words, a separator and an end fill a model of 24 positions, and are not cut."""
    caplog.set_level(logging.INFO)
    model = short_model(source=64, target=24)
    hypotheses = translate_documents(
        TASK, model, [document(TASK, [3, 1]), document(TASK, [1])], beam=2, min_len=11, max_len_b=11
    )
    assert [len(found) for found in hypotheses] == [2, 2]
    assert not caplog.records


def test_complete_translations_come_first() -> None:
    """Where a hypothesis that the longest target cuts has a better score than one that ends before."""
    model, lengths = short_model("linformer_transformer", source=64, target=24), [6, 6]
    limits = {"beam": 4, "max_len_b": 12}
    for seed in range(60):
        source = document(TASK, lengths, seed)
        sample = batch(TASK, [source], left_pad=True)
        search = generator(TASK, [model], **limits)
        search.max_len_a, search.max_len_b = 0, 25
        (found,) = search.generate([model], sample, constraints=torch.tensor([lengths]))
        whole = [counts(TASK, hypothesis["tokens"]) == 2 and len(hypothesis["tokens"]) < 24 for hypothesis in found]
        if any(whole) and not whole[0]:
            break
    else:
        pytest.fail("no document has both")
    (hypotheses,) = translate_documents(TASK, model, [source], **limits)
    order = [*(i for i in range(4) if whole[i]), *(i for i in range(4) if not whole[i])]
    same(hypotheses, [found[i] for i in order])


@pytest.mark.parametrize("ngram", [1, 2])
def test_other_rules_may_forbid_an_end(ngram: int) -> None:
    """With no repeated word there is one separator; a document of three sentences is translated all the same."""
    ((found, *_),) = translate_documents(
        TASK, MODEL, [document(TASK, [2, 3, 1])], beam=3, no_repeat_ngram_size=ngram, max_len_b=5
    )
    assert counts(TASK, found["tokens"]) == 3


def test_alignments() -> None:
    """fairseq's alignments of the parts, each moved to where its part is in the document."""
    model = short_model()
    source = document(TASK, [5, 5, 5])
    parts = cut(source, TASK.source_separator, even_parts([5, 5, 5], 12))
    for kind in ("hard", "soft"):
        flags = {"beam": 2, "print_alignment": kind, **LIMITS}
        ((found,),) = translate_documents(TASK, model, [source], **flags)
        alone = [translate_documents(TASK, model, [part], **flags)[0][0] for part in parts]
        if kind == "soft":
            assert [len(row) for row in found["alignment"]] == [len(source)] * len(found["tokens"])
            assert found["alignment"][0][: len(parts[0])] == alone[0]["alignment"][0]
            assert found["alignment"][-1] == ["0.000000"] * len(parts[0]) + alone[1]["alignment"][-1]
        else:
            moved = [(s + len(parts[0]), t + len(alone[0]["tokens"])) for s, t in alone[1]["alignment"]]
            assert found["alignment"] == [*alone[0]["alignment"], *moved]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_keeps_no_attention(beam: int) -> None:
    """A matrix for every hypothesis, as large as the document times its translation, would be copied at every step, of
    weights that models of this package do not even compute."""
    asked: list[bool] = []
    model, source = short_model("linformer_transformer", source=64), document(TASK, [5, 5])
    for layer in model.decoder.layers:
        layer.encoder_attn.register_forward_pre_hook(
            lambda attention, args, options: asked.append(options["need_weights"]), with_kwargs=True
        )
    for made in (model, short_model(source=64)):
        ((found, *_),) = translate_documents(TASK, made, [source], beam=beam, **LIMITS)
        assert not found["attention"].numel()
    assert asked
    assert not any(asked)


def test_documents_are_cut_shorter_than_the_model() -> None:
    model, source = short_model(source=64), document(TASK, [5, 5, 5])
    shorter = document_task(part_tokens=12)
    ((found,),) = translate_documents(shorter, model, [source], beam=2, **LIMITS)
    ((in_parts,),) = translate_documents(TASK, short_model(source=12), [source], beam=2, **LIMITS)
    ((whole, *_),) = translate_documents(TASK, model, [source], beam=2, **LIMITS)
    assert found["tokens"].tolist() == in_parts["tokens"].tolist() != whole["tokens"].tolist()
    assert [len(batch) for batch in iterator(shorter, [source] * 2, 12, max_tokens=24)] == [2]


def iterator(task: DocumentTranslationTask, sources: list[Tensor], limit: int, **options: Any) -> list[list[int]]:
    """Returns the documents of each batch that fairseq would translate with a model of `limit` positions."""
    dataset = task.build_dataset_for_inference(sources, [len(source) for source in sources])
    batches = task.get_batch_iterator(dataset, max_positions=(limit, limit), **options).next_epoch_itr(shuffle=False)
    return [found["id"].tolist() for found in batches]


def test_no_document_is_left_out() -> None:
    """Neither one that is longer than the model or `max_tokens`, nor the last ones of an incomplete batch."""
    sources = documents([[5] * 20, [1], [5] * 4, [2, 2], [9]])
    for options in ({"max_tokens": 30}, {"max_sentences": 2}, {"max_tokens": 12, "required_batch_size_multiple": 8}):
        batches = iterator(TASK, sources, 12, **options)
        assert sorted(chain(*batches)) == list(range(5))
    # documents count as much as their longest part, 12 tokens
    assert max(len(numbers) for numbers in iterator(TASK, sources, 12, max_tokens=24)) == 2
    assert len(iterator(TASK, sources, 12, max_tokens=60)) == 1


def test_a_reference_may_be_longer_than_anything() -> None:
    """It is not translated; where it is shorter it counts, as in fairseq."""
    sources, targets = documents([[1], [2]]), documents([[50], [8]])
    dataset = LanguagePairDataset(sources, [2, 3], TASK.src_dict, targets, [51, 9], TASK.tgt_dict, shuffle=False)
    batches = TASK.get_batch_iterator(dataset, max_tokens=20, max_positions=(12, 12)).next_epoch_itr(shuffle=False)
    assert sorted(number for found in batches for number in found["id"].tolist()) == [0, 1]
    assert TASK._in_parts(dataset, 20, (12, 12), skip=False).num_tokens_vec(np.arange(2)).tolist() == [12, 9]


def test_of_a_reference_counts_what_belongs_to_the_longest_part() -> None:
    """So that documents in parts fill a batch with as many parts as there is room for."""
    sources, targets = documents([[5, 5, 5], [9]]), documents([[8, 8, 8], [8]])
    sizes = ([len(x) for x in sources], [len(x) for x in targets])
    assert sizes == ([18, 10], [27, 9])
    dataset = LanguagePairDataset(sources, sizes[0], TASK.src_dict, targets, sizes[1], TASK.tgt_dict, shuffle=False)
    # parts of 12 and 6 tokens: the longest has two thirds of its document
    assert TASK._in_parts(dataset, 100, (12, 64), skip=False).num_tokens_vec(np.arange(2)).tolist() == [18, 10]
    assert TASK._in_parts(dataset, 100, (18, 64), skip=False).num_tokens_vec(np.arange(2)).tolist() == [27, 10]


def refusal(task: DocumentTranslationTask, lengths: list[list[int]], limit: int, **options: Any) -> str:
    with pytest.raises(SystemExit) as refused:
        iterator(task, documents(lengths), limit, **options)
    return str(refused.value)


def test_refusals_before_the_first_translation() -> None:
    text = refusal(TASK, [[1], [2, 12, 2]], 12)
    assert "sentence 2 of document 1 (" in text
    assert "has 12 subwords, and the model takes 11" in text
    text = refusal(document_task(no_split_documents=True), [[1], [5, 5, 5]], 12)
    assert "document 1 (" in text
    assert "has 18 tokens, and the model takes 12: leave out --no-split-documents" in text
    assert "takes 12 tokens at once, more than --max-tokens 11" in refusal(TASK, [[5] * 4], 12, max_tokens=11)
    assert "has 7 subwords, and --part-tokens allows 5" in refusal(document_task(part_tokens=6), [[7]], 6)


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        ({"part_tokens": 1}, "--part-tokens 1 leaves no room"),
        ({"part_tokens": 0}, "--part-tokens 0 leaves no room"),
        ({"part_tokens": 9, "no_split_documents": True}, "opposite things"),
    ],
)
def test_parts_that_no_document_can_be_cut_into(flags: dict[str, object], refusal: str) -> None:
    with pytest.raises(ValueError, match=refusal):
        document_task(**flags)


def test_what_cannot_be_cut_is_skipped_where_fairseq_skips() -> None:
    sources = documents([[1], [2, 12, 2], [5, 5, 5]])
    assert sorted(chain(*iterator(TASK, sources, 12, ignore_invalid_inputs=True))) == [0, 2]
    unsplit = document_task(no_split_documents=True)
    assert iterator(unsplit, sources, 12, ignore_invalid_inputs=True) == [[0]]


@pytest.mark.parametrize(
    ("flags", "named"),
    [({"score_reference": True}, "--score-reference"), ({"prefix_size": 2}, "--prefix-size")],
)
def test_flags_that_need_whole_documents(flags: dict[str, object], named: str) -> None:
    task, model = document_task(sentence_count="free"), short_model()
    generator(task, [model], **flags)
    assert f"longer than the model, and {named} works with whole documents only" in refusal(task, [[5, 5, 5]], 12)
    assert iterator(task, documents([[5, 2]]), 12) == [[0]]
    sources = documents([[5, 5, 5]])
    task.datasets["test"] = task.build_dataset_for_inference(sources, [18])
    with pytest.raises(SystemExit, match=named):
        generator(task, [model], **flags)
    with pytest.raises(SystemExit, match="documents that the model takes whole"):
        task.inference_step(
            generator(FREE, [model]), [model], batch(task, sources, left_pad=True), prefix_tokens=torch.tensor([[5]])
        )


def test_references_are_scored() -> None:
    """A translation gets the score that the search gave it."""
    source = document(TASK, [3, 2])
    ((found,),) = translate_documents(TASK, MODEL, [source], beam=1, **LIMITS)
    sample = batch(TASK, [source], left_pad=True)
    sample["target"] = found["tokens"][None]
    sample["net_input"]["prev_output_tokens"] = previous_tokens(TASK, sample["target"])
    ((scored,),) = TASK.inference_step(generator(TASK, [MODEL], score_reference=True), [MODEL], sample)
    torch.testing.assert_close(scored["score"], found["score"], check_dtype=False)


def test_losses_are_computed_of_what_fits() -> None:
    """A validation refuses documents that are too long, a training leaves them out; a last batch is kept."""
    task, sources = document_task(), documents([[5, 5], [5, 5, 5]])
    task.build_criterion(_Criterion())
    with pytest.raises(SystemExit, match=r"error: document 1 \(.* than the 12 source and 12 target tokens .*: cut it"):
        iterator(task, sources, 12)
    assert iterator(task, sources, 12, ignore_invalid_inputs=True, required_batch_size_multiple=8) == [[0]]
    assert iterator(task, sources[:1], 12, required_batch_size_multiple=8) == [[0]]


class _Criterion:
    """The namespace that names fairseq's cross-entropy."""

    criterion = "cross_entropy"
    sentence_avg = False


@pytest.mark.parametrize(
    "flags",
    [
        {"sampling": True},
        {"diverse_beam_groups": 2},
        {"diversity_rate": 0.5},
        {"prefix_size": 1},
        {"constraints": "ordered"},
    ],
)
def test_forced_is_beam_search(flags: dict[str, object]) -> None:
    with pytest.raises(SystemExit, match="give --sentence-count free"):
        generator(TASK, [MODEL], **flags)
    generator(FREE, [MODEL], **flags)


def test_limits_of_length_that_no_sentence_keeps() -> None:
    with pytest.raises(SystemExit, match="--min-len 300 is above --max-len-b 200"):
        generator(TASK, [MODEL], min_len=300)
    with pytest.raises(SystemExit, match="--min-len 64 is not below the longest target, 64 tokens"):
        generator(TASK, [MODEL], min_len=64)


@pytest.mark.parametrize("separator", ["<s>", "</s>", "<unk>", "|", "a b", ""])
def test_a_separator_that_is_no_word_of_the_dictionary(separator: str) -> None:
    words, without = Dictionary(), Dictionary()
    for word in ("a", "<sep>"):
        words.add_symbol(word)
    with pytest.raises(ValueError, match="source dictionary has no word"):
        DocumentTranslationTask(DocumentTranslationConfig(sentence_separator=separator), words, words)
    with pytest.raises(ValueError, match="target dictionary has no word '<sep>'"):
        DocumentTranslationTask(DocumentTranslationConfig(), words, without)


def test_positions_of_the_model_and_of_the_flags() -> None:
    """A checkpoint's own where a flag is fairseq's default, unless losses are computed."""
    for flags, expected in (({}, (2048, 2000)), ({"max_source_positions": 512}, (512, 2000))):
        task = document_task(**flags)
        before = task.max_positions()
        task.checkpoint_positions = (2048, 2000)
        assert task.max_positions() == expected
        task.computes_losses = True
        assert task.max_positions() == before
