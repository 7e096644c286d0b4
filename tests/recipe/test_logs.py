"""Reading fairseq's logs, those of interrupted trainings and bad lines too."""

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.logs import best_update, read_perplexity, read_training, read_translation


def line(kind, **values):
    fields = ", ".join(f'"{key}": "{value}"' for key, value in values.items())
    return f"2026-01-01 00:00:00 | INFO | {kind} | {{{fields}}}\n"


def valid(update, ppl):
    return line("valid", epoch=1, valid_ppl=ppl, valid_num_updates=update)


def epoch(number, updates, wall, wpb):
    return line("train", epoch=number, train_num_updates=updates, train_train_wall=wall, train_wpb=wpb)


def test_a_resumed_training_counts_every_update_once():
    text = (
        "| INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 1,234)\n"
        + valid(10, 9.0)
        + epoch(1, 20, 4, 100)
        + valid(20, 8.0)
        + valid(30, 7.5)
        + '2026-01-01 00:00:00 | INFO | valid | {"valid_ppl": "7'  # cut by a kill, and the next run's line after it
        + "\n"
        + valid(30, 7.0)
        + epoch(2, 50, 6, 110)
        + epoch(2, 50, 7, 110)
    )
    log = read_training(text)
    assert log.parameters == 1234
    assert log.curve == [(10, 9.0), (20, 8.0), (30, 7.0)]
    assert log.updates == 50
    assert log.seconds == 11
    assert log.tokens == pytest.approx(20 * 100 + 30 * 110)


def test_an_empty_log():
    log = read_training("")
    assert (log.curve, log.updates, log.seconds, log.tokens) == ([], 0, 0, 0)


def test_the_time_of_an_epoch_whose_line_a_kill_has_cost_is_unknown():
    """fairseq saves an epoch, its last validation logged, before it writes the epoch's line."""
    whole = valid(20, 9.0) + epoch(1, 20, 4, 100) + valid(40, 8.0) + epoch(2, 40, 5, 100) + valid(60, 7.0)
    assert (read_training(whole).seconds, read_training(whole).tokens) == (None, None)
    assert read_training(whole).updates == 60
    assert read_training(whole + epoch(3, 60, 5, 100)).seconds == 14
    without_second = valid(20, 9.0) + epoch(1, 20, 4, 100) + valid(60, 7.0) + epoch(3, 60, 5, 100)
    assert read_training(without_second).seconds is None


def test_of_equally_good_checkpoints_the_last_counts():
    curve = [[10, 3.0], [20, 5.0], [30, 3.0], [40, 5.0], [50, 4.0]]
    assert (best_update(curve, lowest=True), best_update(curve, lowest=False)) == (30, 40)


def test_perplexity():
    assert read_perplexity(line("valid", valid_ppl="inf") + line("valid", valid_ppl="3.25")) == 3.25
    with pytest.raises(UserError, match="no perplexity"):
        read_perplexity("nothing\n")


def test_translation():
    text = (
        "S-1\tb\nT-1\tB\nH-1\t-0.5\tB b\nD-1\t-0.5\tB b\nP-1\t-0.5\nH-0\t-1.5\t\n"
        "2026 | INFO | fairseq_cli.generate | Translated 1,002 sentences (12,345 tokens) in 12.3s "
        "(81.46 sentences/s, 1003.10 tokens/s)\n"
    )
    found = read_translation(text)
    assert found.hypotheses == {1: "B b", 0: ""}
    assert (found.seconds, found.tokens_per_second) == (12.3, 1003.1)
