"""Results of several machines in one."""

import json
from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.merge import merged, read_results


def results(arm: str, seed: int, *, reference: int = 9, **changed: Any) -> dict[str, Any]:
    """Results of a study of two documents with one model, on the machine of that seed."""
    counts = [[8, reference, *[5] * 8], [7, 6, *[4] * 8]]
    return {
        "commands": [f"python --seeds {seed}"],
        "machines": [f"machine {seed}"],
        "corpus": {"train": 100},
        "documents": {"test": 2},
        "updates": 30,
        "settings": {"training lr": 0.1},
        "arms": {arm: {"label": arm}},
        "trainings": [{"arm": "start", "seed": seed}, {"arm": arm, "seed": seed}],
        "costs": None,
        "rows": [{"arm": arm, "seed": seed, "set": "test", "longest": 64, "mode": "forced", "counts": counts}],
        "differences": [],
        **changed,
    }


def test_models_and_seeds_of_all_machines_stand_beside_each_other() -> None:
    own, other = results("two-level", 1), results("transformer", 2)
    found = merged(own, [(Path("b.json"), other)])
    assert [(row["arm"], row["seed"]) for row in found["rows"]] == [("two-level", 1), ("transformer", 2)]
    assert [row["seed"] for row in found["trainings"]] == [1, 1, 2, 2]
    same = merged(own, [(Path("b.json"), results("transformer", 1))])  # both machines have the start of the seed
    assert [(row["arm"], row["seed"]) for row in same["trainings"]] == [
        ("start", 1),
        ("two-level", 1),
        ("transformer", 1),
    ]
    assert list(found["arms"]) == ["transformer", "two-level"]
    assert found["machines"] == ["machine 1", "machine 2"]
    assert found["commands"] == ["python --seeds 1", "python --seeds 2"]
    assert found["updates"] == 30
    assert own == results("two-level", 1)  # what is given stays as it was
    assert merged(own, []) == own


def costs(machine: str, *arms: str, repeats: int = 5) -> dict[str, Any]:
    rows = [{"part": "training", "length": 64, "arm": arm, "seconds": machine} for arm in arms]
    return {"asked": {"repeats": repeats}, "machines": [machine], "rows": rows}


def test_costs_are_those_of_the_first_that_measured_a_model() -> None:
    own, second, third = (
        results("transformer", seed, costs=costs)
        for seed, costs in (
            (1, None),
            (2, costs("b", "transformer", "two-level")),
            (3, costs("c", "transformer", "linformer")),
        )
    )
    found = merged(own, [(Path("b"), second), (Path("c"), third)])["costs"]
    assert [(row["arm"], row["seconds"]) for row in found["rows"]] == [
        ("transformer", "b"),
        ("two-level", "b"),
        ("linformer", "c"),
    ]
    assert found["machines"] == ["b", "c"]
    assert merged(second, [(Path("a"), own)])["costs"] == second["costs"]
    other = results("transformer", 3, costs=costs("c", "linformer", repeats=3))
    with pytest.raises(UserError, match="c has costs that were measured in another way, repeats 3 and not 5"):
        merged(second, [(Path("c"), other)])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (results("two-level", 2, updates=40), "b.json is of another study, its updates 40 and not 30: leave it out."),
        (
            results("two-level", 2, settings={"training lr": 0.5}),
            "b.json is of another study, its training lr 0.5 and not 0.1: leave it out.",
        ),
        (results("two-level", 2, reference=10), "b.json is of other documents: prepare both studies with the same"),
        (results("transformer", 1), "b.json has transformer with seed 1, which is there already: leave one out."),
    ],
    ids=["facts", "settings", "documents", "seed"],
)
def test_what_cannot_be_compared_is_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        merged(results("transformer", 1), [(Path("b.json"), other)])
    assert str(refused.value).startswith(said)


def test_only_results_of_a_study_of_documents_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rows": []}))
    with pytest.raises(UserError, match="does not hold the results of a study of documents"):
        read_results(path)
    path.write_text(json.dumps(results("transformer", 1)))
    assert read_results(path) == results("transformer", 1)
