"""Threads share a model: nothing that one of them translates depends on what the others do."""

from threading import Thread

import pytest
import torch

from linformer_fairseq.modules import KINDS
from tests.models.toy import EVERYWHERE, batch, sentence, small, toy_model, toy_task, translate

BEAMS = (5, 4, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_with_other_beams_do_no_harm(kind: str) -> None:
    task = toy_task()
    sizes: dict[str, object] = {"linformer_attention": EVERYWHERE, **small(kind, "8")}
    if kind == "window":
        sizes["linformer_attention"] = "encoder,decoder"
    if kind == "two-level":
        sizes |= {"linformer_exact_below": 0, "linformer_slot_width": 2, "linformer_open_slots": 1}
    model = toy_model(task=task, linformer_projection=kind, **sizes)
    sample = batch(task, [sentence(task, length, length) for length in (12, 9, 40, 7)], left_pad=True)

    @torch.no_grad()
    def search(beam: int) -> list[list[tuple[list[int], float]]]:
        hypotheses = translate(task, model, sample, beam=beam)
        return [[(found["tokens"].tolist(), found["score"].item()) for found in beams] for beams in hypotheses]

    expected = {beam: search(beam) for beam in BEAMS}
    found: dict[int, list] = {beam: [] for beam in BEAMS}

    def work(beam: int) -> None:
        for _ in range(6):
            found[beam].append(search(beam))

    threads = [Thread(target=work, args=(beam,)) for beam in BEAMS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {beam: [expected[beam]] * 6 for beam in BEAMS}
