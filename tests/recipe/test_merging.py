"""Results of one study on several machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.merging import check_new, check_settings, joined, joined_costs, read_results

OTHER = Path("b.json")


def test_only_results_of_the_study_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with pytest.raises(UserError, match=r"results\.json is missing: run the study first, or name the results\.json"):
        read_results(path, ("rows",), "a study of films")
    for content in ([], {"lines": []}):
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=r"does not hold the results of a study of films: name the results\.json"):
            read_results(path, ("rows",), "a study of films")
    path.write_text("{half")
    with pytest.raises(UserError, match=r"results\.json is damaged: make it anew, copy it again, or leave it out"):
        read_results(path, ("rows",), "a study of films")
    path.write_text(json.dumps({"rows": [1], "more": 2}))
    assert read_results(path, ("rows",), "a study of films") == {"rows": [1], "more": 2}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"max_tokens": 9, "lr": 1}, "its max tokens 9 and not 8"),
        ({"max_tokens": 8}, "its lr None and not 1"),
        ({"max_tokens": 8, "lr": 1, "k": 2}, "its k 2 and not None"),
    ],
    ids=["changed", "missing", "added"],
)
def test_other_settings_are_refused(other: dict[str, Any], said: str) -> None:
    check_settings(OTHER, {"max_tokens": 8, "lr": 1}, {"lr": 1, "max_tokens": 8})
    with pytest.raises(UserError, match=f"^b.json is of another study, {said}: leave it out.$"):
        check_settings(OTHER, {"max_tokens": 8, "lr": 1}, other)


def test_a_training_that_is_there_already_is_refused() -> None:
    known = [{"arm": "a", "seed": 1, "score": 3}]

    def key(row: dict[str, Any]) -> tuple[str, int]:
        return row["arm"], row["seed"]

    check_new(OTHER, known, [{"arm": "a", "seed": 2}], key, lambda row: row["arm"])
    with pytest.raises(UserError, match=r"^b\.json has seed 1, which is there already: leave one out\.$"):
        check_new(OTHER, known, [{"arm": "a", "seed": 1}], key, lambda row: f"seed {row['seed']}")


def test_what_both_have_is_that_of_the_first() -> None:
    own, others = [("a", 1), ("b", 2)], [("b", 3), ("c", 4)]
    assert joined(own, others, lambda value: value[0]) == [("a", 1), ("b", 2), ("c", 4)]
    assert joined(own, own) == own
    assert own == [("a", 1), ("b", 2)]


def costs(machine: str, *arms: str, repeats: int = 5) -> dict[str, Any]:
    rows = [{"arm": arm, "seconds": machine} for arm in arms]
    return {"asked": {"cost_repeats": repeats}, "machines": [machine], "rows": rows}


def test_costs_are_joined_where_they_were_measured_in_the_same_way() -> None:
    def key(row: dict[str, Any]) -> str:
        return str(row["arm"])

    own, other = costs("a", "x", "y"), costs("b", "y", "z")
    found = joined_costs(OTHER, own, other, key)
    assert found is not None
    assert [(row["arm"], row["seconds"]) for row in found["rows"]] == [("x", "a"), ("y", "a"), ("z", "b")]
    assert found["machines"] == ["a", "b"]
    assert joined_costs(OTHER, None, other, key) == other
    assert joined_costs(OTHER, own, None, key) == own
    with pytest.raises(UserError, match=r"^b\.json has costs that were measured in another way, cost repeats 3"):
        joined_costs(OTHER, own, costs("b", "z", repeats=3), key)
