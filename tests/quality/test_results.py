"""Scores by length and over seeds, against sacreBLEU itself."""

import numpy
import pytest
from sacrebleu.metrics import BLEU

from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.quality.results import difference
from linformer_fairseq.recipe.scores import compare
from tests.quality.known import REFERENCES, SUBSET, result, worse


def test_bleu_of_a_bucket_is_that_of_its_sentences() -> None:
    hypotheses = worse(REFERENCES, 0.2, 2)
    own = result(hypotheses)
    assert own.bleu() == pytest.approx(BLEU().corpus_score(hypotheses, [REFERENCES]).score)
    chosen = SUBSET.within(Bucket(8, 11))
    assert 0 < chosen.sum() < 60
    picked = [[side[i] for i in numpy.flatnonzero(chosen)] for side in (hypotheses, REFERENCES)]
    score = BLEU(force=True).corpus_score(picked[0], [picked[1]])
    assert own.bleu(chosen) == pytest.approx(score.score)
    assert own.length_ratio(chosen) == pytest.approx(score.sys_len / score.ref_len)
    assert own.length_ratio() == pytest.approx(1.0)


def test_one_seed_is_what_the_recipe_compares() -> None:
    base, system = worse(REFERENCES, 0.1, 3), worse(REFERENCES, 0.2, 4)
    found = difference([result(base)], [result(system)])
    wanted = compare(base, system, REFERENCES, "en")
    assert found["mean"] == pytest.approx(wanted["difference"], abs=0.01)
    assert found["low"] == pytest.approx(wanted["low"], abs=0.01)
    assert found["high"] == pytest.approx(wanted["high"], abs=0.01)
    assert found["low"] < found["high"] < 0


def test_means_over_seeds() -> None:
    base = [result(worse(REFERENCES, 0.15, seed), seed) for seed in (1, 2, 3)]
    system = [result(worse(REFERENCES, 0.15, seed), seed) for seed in (11, 12, 13)]
    found = difference(base, system)
    means = [numpy.mean([own.bleu() for own in side]) for side in (base, system)]
    assert found["mean"] == pytest.approx(means[1] - means[0])
    assert found["low"] < found["mean"] < found["high"]
    wider = difference(base[:1], system[:1])
    assert found["high"] - found["low"] < wider["high"] - wider["low"]  # seeds that err apart
    assert difference(base, base) == {"mean": 0, "low": 0, "high": 0}
