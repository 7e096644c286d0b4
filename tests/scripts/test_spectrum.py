"""The script that finds the singular values of attention maps."""

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor

from linformer_fairseq.cli.errors import UserError
from tests.fairseq_commands import run_module
from tests.models.toy import net_input, toy_model, toy_roberta, toy_task

Maps = dict[tuple[str, int], list[Tensor]]


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("spectrum")


@torch.no_grad()
def maps_of(script: ModuleType, model: BaseFairseqModel, given: dict[str, Tensor]) -> Maps:
    """Returns the maps of every sentence of a batch by layer."""
    recorded = script.record(model)
    model(**given)
    found: Maps = {layer: [] for layer in recorded}
    for layer, own in script.maps_of(recorded):
        found[layer].append(own)
    return found


def test_ranks_of_known_matrices(script: ModuleType) -> None:
    """Squares 36, 9 and 1 of 46; ten times the same; one that is not 0."""
    known = torch.zeros(3, 10, 12)
    known[0, :3, :3] = torch.diag(torch.tensor([1.0, 6.0, 3.0]))
    known[1, :, :10] = torch.eye(10)
    known[2] = torch.ones(10, 1) @ torch.rand(1, 12)
    found = {energy: script.spectrum(known, energy) for energy in (0.78, 0.9, 0.97, 0.98)}
    assert {energy: own[:, 1].tolist() for energy, own in found.items()} == {
        0.78: [1, 8, 1],
        0.9: [2, 9, 1],
        0.97: [2, 10, 1],
        0.98: [3, 10, 1],
    }
    assert found[0.9][:, 0].tolist() == [12] * 3
    shares = [[0.6, 0.9, *[1.0] * 8], [0.1, 0.2, 0.4, 0.8, *[1.0] * 6], [1.0] * 10]
    torch.testing.assert_close(found[0.9][:, 2:], torch.tensor(shares, dtype=torch.float64))


@torch.no_grad()
def test_singular_values_are_those_of_the_softmax(script: ModuleType) -> None:
    """The maps of the first layer, computed by hand in numpy."""
    model, given = toy_model("transformer"), net_input(toy_task(), [6])
    found = script.spectrum(maps_of(script, model, given)["encoder", 1][0], 0.9).numpy()
    attention = model.encoder.layers[0].self_attn
    x = model.encoder.forward_embedding(given["src_tokens"])[0][0].double().numpy()
    for head in range(2):
        rows = slice(8 * head, 8 * head + 8)
        query, key = (
            x @ layer.weight[rows].double().numpy().T + layer.bias[rows].double().numpy()
            for layer in (attention.q_proj, attention.k_proj)
        )
        scores = np.exp(query @ key.T / np.sqrt(8))
        values = np.linalg.svd(scores / scores.sum(1, keepdims=True), compute_uv=False)
        rank = next(r for r in range(1, 7) if (values[:r] ** 2).sum() >= 0.9 * (values**2).sum())
        shares = [values[:r].sum() / values.sum() for r in script.LARGEST]
        np.testing.assert_allclose(found[head], [6, rank, *shares], rtol=1e-4)


@pytest.mark.parametrize("arch", ["transformer", "two_level_transformer"])
def test_padding_is_left_out(script: ModuleType, arch: str) -> None:
    task = toy_task()
    both = net_input(task, [12, 5])
    alone = {**both, "src_tokens": both["src_tokens"][1:, 7:], "src_lengths": torch.tensor([5])}
    alone["prev_output_tokens"] = both["prev_output_tokens"][1:]
    found = maps_of(script, toy_model(arch), both)
    shapes = {"encoder": (2, 5, 5), "cross": (2, 6, 5), "decoder": (2, 6, 6)}
    for layer, (own,) in maps_of(script, toy_model(arch), alone).items():
        assert own.shape == shapes[layer[0]]
        torch.testing.assert_close(found[layer][1], own, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own.sum(2), torch.ones(own.shape[:2]))
    assert sorted(found) == [(place, layer) for place in ("cross", "decoder", "encoder") for layer in (1, 2)]


def test_slots_bound_the_rank(script: ModuleType) -> None:
    """A map that goes through three slots has at most rank three; the decoder's own attention is full here."""
    for (place, _), maps in maps_of(script, toy_model(linformer_k="3"), net_input(toy_task(), [12])).items():
        rank = script.spectrum(maps[0], 1 - 1e-8)[:, 1].max()
        assert rank > 3 if place == "decoder" else rank == 3


def test_layers_of_other_models(script: ModuleType) -> None:
    tokens = {"src_tokens": net_input(toy_task(), [9])["src_tokens"]}
    found = maps_of(script, toy_roberta("roberta"), tokens)
    assert {layer: own[0].shape for layer, own in found.items()} == {("encoder", n): (2, 9, 9) for n in (1, 2)}


def test_figures_of_a_transformer(script: ModuleType, trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """The ranges have the sentences that belong there, and the flags are the plugin's."""
    out = tmp_path / "new" / "folder"
    arguments = [trained_transformer, data / "bin", "--out", out, "--lengths", 20, 8]
    said = run_module("scripts.spectrum", *arguments).ok()
    assert {path.name for path in out.iterdir()} == {"spectrum.csv", "spectrum.png"}
    with open(out / "spectrum.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    counts = Counter("1-8" if n <= 8 else "9-20" if n <= 20 else "21-" for n in lengths)
    titles = ("1-8", "9-20", "21-")
    layers = dict.fromkeys((row["place"], row["layer"]) for row in rows)
    assert [place for place, _ in layers] == sorted((place for place, _ in layers), key=list(script.FLAGS).index)
    for place in ("encoder", "cross"):
        found = [(row["head"], row["length"], int(row["maps"])) for row in rows if row["place"] == place]
        of_heads = [("all", 2), *((str(head), 1) for head in (1, 2))]
        assert found == 2 * [(head, title, n * counts[title]) for title in titles for head, n in of_heads]
    for row in rows:
        assert 1 <= float(row["rank"]) <= float(row["tokens"])
        assert int(row["k"]) <= int(row["length"].split("-")[1] or 99)
        shares = [float(row[name]) for name in script.FIELDS[8:]]
        assert shares == sorted(shares)
        assert 0 < shares[0] <= shares[-1] == 1
    flags = said.strip().splitlines()[-1].removeprefix("It suggests ").split()
    assert [flags[0], *flags[2::2]] == ["--linformer-attention", *script.FLAGS.values()]


def test_figures_of_a_masked_language_model_by_head(trained_roberta: Path, text: Path, tmp_path: Path) -> None:
    said = run_module(
        "scripts.spectrum", trained_roberta, text, "--out", tmp_path, "--sentences", 7, "--energy", 0.5
    ).ok()
    with open(tmp_path / "spectrum.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    totals = Counter[tuple[str, ...]]()
    for row in rows:
        totals[row["place"], row["layer"], row["head"]] += int(row["maps"])
    assert totals == {
        ("encoder", layer, head): 28 if head == "all" else 7 for layer in "12" for head in ["all", *"1234"]
    }
    flag, ks = said.strip().splitlines()[-1].removeprefix("It suggests ").split()
    assert flag == "--linformer-k"
    assert len(ks.split(",")) == 2


def test_refusals(script: ModuleType, trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    out, binary = ["--out", tmp_path / "out"], data / "bin"
    for arguments, sentence in [
        ([tmp_path / "none.pt", binary, *out], "is missing: name a checkpoint"),
        ([trained_transformer, tmp_path, *out], "Could not infer language pair"),
        ([trained_transformer, binary, *out, "--subset", "nowhere"], "name another --subset"),
        ([trained_transformer, binary, *out, "--energy", "1"], "argument --energy: '1' is not a number from"),
        ([trained_transformer, binary, "--out", trained_transformer], "is a file"),
    ]:
        with pytest.raises(UserError, match=sentence) as error:
            script.main([*map(str, arguments)])
        assert "\n" not in str(error.value)
    refused = run_module("scripts.spectrum", tmp_path / "none.pt", binary, *out)
    assert refused.status == 2
    assert refused.sentence().startswith("error: ")
    assert not (tmp_path / "out").exists()
