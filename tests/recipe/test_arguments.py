"""What a command line asks for; what it is refused for is in test_refusals.py."""

from linformer_fairseq.recipe.arguments import parse


def test_models_of_every_projection_attention_and_k() -> None:
    run = parse(["--k", "2,4", "--attention", "encoder", "--attention", "cross", "--projection", "two-level,linear"])
    assert [model.name for model in run.models] == [
        "Transformer",
        *(
            f"Linformer k={k} ({place}; {kind})"
            for place in ("encoder", "cross")
            for kind in ("two-level", "linear")
            for k in (2, 4)
        ),
    ]
    assert len({model.slug for model in run.models}) == 9
    arguments = run.models[-1].arguments(run.settings.training)
    assert arguments[-6:] == [
        *("--linformer-k", "4"),
        *("--linformer-attention", "cross"),
        *("--linformer-projection", "linear"),
    ]


def test_the_default_projection_is_named_too() -> None:
    """So that a later default is another row, and not this one under the same name."""
    run = parse(["--k", "2"])
    assert [model.name for model in run.models] == ["Transformer", "Linformer k=2 (encoder,cross; two-level)"]
    assert run.models[1].slug == "linformer-k2-encoder-cross-two-level"
