"""Which models a command line asks for; what it is refused for is in test_refusals.py."""

from argparse import _ArgumentGroup
from dataclasses import replace

import pytest
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.datasets.synthetic import Synthetic
from linformer_fairseq.recipe.settings import Model

from linformer_fairseq.modules import KINDS
from linformer_fairseq.recipe import datasets


def test_models_of_every_projection_attention_and_k() -> None:
    places = ["--attention", "encoder", "--attention", "cross,encoder"]
    run = parse(["--k", "2,4", *places, "--projection", "linear,two-level,conv,linear"])
    names = [
        f"{family} k={k} ({place}{kind})"
        for place in ("encoder", "encoder,cross")
        for family, kind in (("Linformer", ""), ("Two levels", ""), ("Linformer", "; conv"))
        for k in (2, 4)
    ]
    assert [model.name for model in run.models] == ["Transformer", *names]
    assert len({model.slug for model in run.models}) == len({model.what for model in run.models}) * 2 - 1 == 13


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["Transformer", "Linformer k=2 (encoder,cross)", "Two levels k=2 (encoder,cross)"]),
        (["--attention", "decoder"], ["Transformer", "Linformer k=2 (decoder)", "Two levels k=2 (decoder)"]),
        (["--model", "transformer_tiny"], ["Transformer"]),
        (["--model", "linformer_transformer_tiny"], ["Linformer k=2 (encoder,cross)"]),
        (["--model", "two_level_transformer_tiny"], ["Two levels k=2 (encoder,cross)"]),
        (
            ["--model", "linformer_transformer_tiny", "--projection", "two-level,linear,conv"],
            ["Linformer k=2 (encoder,cross)", "Linformer k=2 (encoder,cross; conv)"],
        ),
    ],
)
def test_both_kinds_unless_one_is_asked_for(arguments: list[str], names: list[str]) -> None:
    run = parse(["--default-k", "2", *arguments])
    assert [model.name for model in run.models] == names
    assert run.settings.training.arch == ("transformer_tiny" if "--model" in arguments else "transformer")


def test_a_kind_that_is_no_linformer_has_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "new", replace(KINDS["two-level"], name="new"))
    model = Model(4, "cross", "new")
    assert (model.name, model.what, model.slug) == ("new k=4 (cross)", "new (cross)", "linformer-k4-cross-new")
    assert model.architecture("transformer") == "linformer_transformer"


@pytest.mark.parametrize("given", [False, True])
def test_the_flag_of_a_dataset_may_be_a_switch(monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    class Switch(Synthetic):
        flag = "--switch"

        @staticmethod
        def add_options(group: _ArgumentGroup) -> None:
            group.add_argument(Switch.flag, action="store_true")

    monkeypatch.setattr(datasets, "DATASETS", (Switch, *datasets.DATASETS))
    run = parse(["--switch"] if given else [])
    assert isinstance(run.settings.text.dataset, Switch) == given


@pytest.mark.parametrize(
    ("model", "arch", "slug"),
    [
        (Model(), "transformer_tiny", "transformer"),
        (Model(4, "cross", "linear"), "linformer_transformer_tiny", "linformer-k4-cross-linear"),
        (Model(4, "cross", "two-level"), "two_level_transformer_tiny", "linformer-k4-cross-two-level"),
        (Model(4, "cross", "conv"), "linformer_transformer_tiny", "linformer-k4-cross-conv"),
        (Model(4, "encoder,cross", "", "6,2"), "linformer_transformer_tiny", "linformer-k4-encoder-cross"),
    ],
)
def test_what_fairseq_is_given(model: Model, arch: str, slug: str) -> None:
    """The kind is named besides the architecture, so that later defaults change nothing."""
    training = parse(["--arch", "transformer_tiny", "--linformer-args=--linformer-open-slots 2"]).settings.training
    expected = ["--arch", arch]
    if model.k:
        expected += ["--linformer-k", model.slots or "4", "--linformer-attention", model.attention]
        expected += ["--linformer-projection", model.projection] if model.projection else []
        expected += ["--linformer-open-slots", "2"]
    assert model.arguments(training) == expected
    assert model.slug == slug
    training = replace(training, linformer_args=[], exact_below=0)
    exactness = ["--linformer-exact-below", "0"] if model.projection == "two-level" else []
    assert model.arguments(training) == [x for x in expected if x not in ("--linformer-open-slots", "2")] + exactness
