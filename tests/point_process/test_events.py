"""The model sees no later event, no padding and no other sequence; its likelihood is one; bad input is refused."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.logging import metrics
from torch import Tensor, nn

from tests.peers.conftest import need_peer
from tests.point_process.conftest import FOLDER

KINDS = {
    "fairseq's": "event_transformer",
    "full": "full_event_transformer",
    "two-level": "two_level_event_transformer --linformer-k 16",
    "two-level-from-0": "two_level_event_transformer --linformer-k 16 --linformer-exact-below 0",
    "two-level-from-40": "two_level_event_transformer --linformer-k 16 --linformer-exact-below 40",
    "linformer": "linformer_event_transformer --linformer-k 8",
    "window": "linformer_event_transformer --linformer-projection window --linformer-window-size 4",
    "performer": "linformer_event_transformer --linformer-projection performer --linformer-features 6",
}
LONGEST = 80

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a dictionary of five types, and sequences of 3 and 1 events in `train.txt`."""
    folder = tmp_path_factory.mktemp("events")
    types = Dictionary()
    for kind in "ABCDE":
        types.add_symbol(kind)
    types.save(str(folder / "dict.txt"))
    (folder / "train.txt").write_text("B 0.5\nA 1.25\nE 1e1\n\n\nC 2\n")
    return folder


def events() -> ModuleType:
    """Returns the module that is tested, as fairseq has imported it."""
    return sys.modules["point_process.events"]


def set_up(binary: Path, kind: str = "full", *more: object) -> tuple[tasks.FairseqTask, nn.Module]:
    """Returns the task, and a model with random weights in double precision."""
    if kind == "performer":
        need_peer(kind)
    words = [binary, "--user-dir", FOLDER, "--task", "event_sequences", "--criterion", "event_sequences", "--arch"]
    words += [*KINDS[kind].split(), "--decoder-layers", 2, "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16]
    words += ["--decoder-attention-heads", 2, "--tokens-per-sample", LONGEST, "--dropout", 0, "--cpu", *more]
    args = options.parse_args_and_arch(options.get_training_parser(), list(map(str, words)))
    task = tasks.setup_task(args)
    model = task.build_model(args).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return task, model


def sequences(task: tasks.FairseqTask, lengths: list[int]) -> dict[str, Tensor]:
    """Returns types and waiting times, with padding."""
    types = torch.randint(5, (len(lengths), max(lengths))) + task.dictionary.nspecial
    waits = torch.empty(types.shape, dtype=torch.float64).exponential_()
    for row, n in enumerate(lengths):
        types[row, n:], waits[row, n:] = task.dictionary.pad(), 1.0
    return {"src_tokens": types, "waits": waits}


def joined(out: tuple[Tensor, Tensor]) -> Tensor:
    """Logits and parameters of each event, (B, n, features)."""
    return torch.cat([x.flatten(2) for x in out], 2)


@every_kind
@torch.no_grad()
def test_no_event_sees_itself_or_a_later_one(binary: Path, kind: str) -> None:
    task, model = set_up(binary, kind)
    given = sequences(task, [LONGEST] * 2)
    expected = joined(model(**given))
    for event in (0, 1, 37, LONGEST - 1):
        others = task.dictionary.nspecial + (given["src_tokens"] - task.dictionary.nspecial + 1) % 5
        for name, change in (("src_tokens", others), ("waits", given["waits"] * 50)):
            changed = {**given, name: torch.cat([given[name][:, :event], change[:, event:]], 1)}
            found = joined(model(**changed))
            torch.testing.assert_close(found[:, : event + 1], expected[:, : event + 1], rtol=0, atol=1e-5)
            if event < LONGEST - 1:  # but the next one does
                assert not torch.allclose(found[:, event + 1], expected[:, event + 1], atol=1e-3)


@every_kind
@torch.no_grad()
def test_neither_padding_nor_the_batch_matters(binary: Path, kind: str) -> None:
    task, model = set_up(binary, kind)
    lengths = [LONGEST, 50, 33, 1]
    given = sequences(task, lengths)
    out = joined(model(**given))
    for row, n in enumerate(lengths):
        alone = joined(model(**{name: x[row : row + 1, :n] for name, x in given.items()}))
        torch.testing.assert_close(out[row : row + 1, :n], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", [torch.float64, torch.float32, torch.bfloat16])
@torch.no_grad()
def test_the_decoder_reads_types_times_and_waits(binary: Path, precision: torch.dtype) -> None:
    """Of the event before, at times in the thousands too."""
    task, model = set_up(binary, "fairseq's")
    given, decoder, read = sequences(task, [LONGEST]), model.to(precision).decoder, list[Tensor]()
    given["waits"] *= 50
    decoder.layers[0].register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    decoder(**given)
    weights = {name: weight.double() for name, weight in decoder.state_dict().items()}
    time = 0.0
    for event in range(LONGEST):
        kind, log_wait = task.dictionary.bos(), 0.0
        if event:
            kind, wait = int(given["src_tokens"][0, event - 1]), float(given["waits"][0, event - 1])
            time, log_wait = time + wait, math.log(wait)
        angles = [time * 10 ** (1 - 4 * i / 7) for i in range(8)]
        expected = math.sqrt(16) * weights["embed_tokens.weight"][kind]
        expected = expected + torch.tensor([*map(math.sin, angles), *map(math.cos, angles)], dtype=torch.float64)
        expected += weights["wait_projection.weight"][:, 0] * log_wait + weights["wait_projection.bias"]
        atol = 0.1 if precision == torch.bfloat16 else 0.005
        torch.testing.assert_close(read[0][event, 0].double(), expected, rtol=0, atol=atol)


def test_the_loss_is_that_of_each_event_by_itself(binary: Path) -> None:
    """Padding does not count, and predictions are those of the most likely type and the mean time."""
    task, model = set_up(binary)
    criterion, lengths = events().EventLikelihood(task), [20, 7]
    given = sequences(task, lengths)
    loss, size, logged = criterion(model, {"net_input": given})
    logits, parameters = model(**given)
    expected, correct, squared = 0.0, 0, 0.0
    for row, n in enumerate(lengths):
        for event in range(n):
            kind, wait = int(given["src_tokens"][row, event]) - task.dictionary.nspecial, given["waits"][row, event]
            chances, times = logits[row, event].softmax(0), events().waiting_time(parameters[row, event])
            expected -= float(chances[kind].log() + times.log_prob(wait.float())[kind])
            correct += int(chances.argmax() == kind)
            squared += float(((chances * times.mean).sum() - wait) ** 2)
    assert size == logged["sample_size"] == logged["ntokens"] == 27
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert (int(logged["correct"]), float(logged["squared"])) == (100 * correct, pytest.approx(squared, rel=1e-4))
    loss.backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in model.parameters())
    assert "correct" not in criterion(model.train(), {"net_input": given})[2]


def test_very_short_and_very_long_waits(binary: Path) -> None:
    """They are beyond float32, and learnt from all the same."""
    task, model = set_up(binary)
    given = sequences(task, [4])
    given["waits"][0] = torch.tensor([1e-60, 1.0, 1e45, 1.0], dtype=torch.float64)
    loss, _, _ = events().EventLikelihood(task)(model.float().train(), {"net_input": given})
    loss.backward()
    assert loss.isfinite()
    assert all(x.grad.isfinite().all() for x in model.parameters())


def test_logged_numbers_are_means_over_events() -> None:
    """Over workers, and over batches."""
    names = ("sample_size", "loss", "correct", "squared")
    first, second, third = (dict(zip(names, own, strict=True)) for own in ((1, 6, 100, 2), (2, 3, 50, 1), (9, 3, 0, 9)))
    with metrics.aggregate() as found:
        events().EventLikelihood.reduce_metrics([first, second])
        events().EventLikelihood.reduce_metrics([third])
    assert found.get_smoothed_values() == {"loss": 1, "correct": 12.5, "squared": 1}


@torch.no_grad()
def test_a_mixture_of_one() -> None:
    mean, scale, wait = 0.3, 0.6, 2.0
    found = events().waiting_time(torch.tensor([[0.7], [mean], [math.log(scale)]])).log_prob(torch.tensor(wait))
    squared = ((math.log(wait) - mean) / scale) ** 2
    assert float(found) == pytest.approx(-math.log(wait * scale * math.sqrt(2 * math.pi)) - squared / 2)


@torch.no_grad()
def test_a_mixture_is_a_density_with_its_mean() -> None:
    mixture = events().waiting_time(torch.randn(4, 3, events().COMPONENTS, dtype=torch.float64))
    logs = torch.linspace(-40, 40, 20001, dtype=torch.float64)[:, None]
    density = mixture.log_prob(logs.exp()).exp() * logs.exp()
    torch.testing.assert_close(torch.trapezoid(density, logs, dim=0), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(torch.trapezoid(density * logs.exp(), logs, dim=0), mixture.mean)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_text_is_read(binary: Path, encoding: str) -> None:
    """An empty line, or several, stand between sequences, whose waiting times begin at 0."""
    path = binary / "train.txt"
    path.write_text(path.read_text(encoding="utf-8-sig"), encoding=encoding)
    task, _ = set_up(binary)
    task.load_dataset("train")
    data = task.dataset("train")
    batch = data.collater([data[0], data[1]])["net_input"]
    assert [task.dictionary.string(row).split() for row in batch["src_tokens"]] == [
        ["B", "A", "E"],
        ["C", "<pad>", "<pad>"],
    ]
    assert batch["waits"].tolist() == [[0.5, 0.75, 8.75], [2.0, 1.0, 1.0]]
    assert list(data.ordered_indices()) == [1, 0]


def test_a_sequence_as_long_as_the_model(binary: Path) -> None:
    (binary / "longest.txt").write_text("\n".join(f"A {n}" for n in range(1, LONGEST + 1)))
    task, _ = set_up(binary)
    task.load_dataset("longest")
    assert len(task.dataset("longest")[0]["net_input.src_tokens"]) == LONGEST


def test_files_that_cannot_be_read(binary: Path, tmp_path: Path) -> None:
    (binary / "latin.txt").write_bytes("Ä 1\n".encode("latin-1"))
    task, _ = set_up(binary)
    for split in ("latin", "missing"):
        with pytest.raises(SystemExit, match=rf"^error: .*{split}\.txt cannot be read: "):
            task.load_dataset(split)
    with pytest.raises(SystemExit, match=r"has no dict\.txt: name the folder that prepare\.sh has made, OUT/bin"):
        set_up(tmp_path)


def test_flags_that_are_refused(binary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^error: give --task event_sequences, and an even "):
        set_up(binary, "fairseq's", "--decoder-embed-dim", 17, "--decoder-attention-heads", 1)
    with pytest.raises(SystemExit):
        set_up(binary, "fairseq's", "--decoder-learned-pos")  # has no effect
    assert "unrecognized arguments: --decoder-learned-pos" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "A 1\nB 3\nA 2\n",
            "sequence 1 of ... has times that do not rise: give numbers, from above 0, each larger than the last",
        ),
        ("A 1\n\nB 3\nA 3\n", "sequence 2 of ... has times that do not rise"),
        ("A 0\n", "sequence 1 of ... has times that do not rise"),
        ("A inf\n", "sequence 1 of ... has times that do not rise"),
        ("A nan\n", "sequence 1 of ... has times that do not rise"),
        (
            "A 1\n\nF 1\n",
            "sequence 2 of ... has a type of event, F, that train.txt lacks or fairseq reserves: rename it",
        ),
        (
            "<pad> 1\n",
            "sequence 1 of ... has a type of event, <pad>, that train.txt lacks or fairseq reserves: rename it",
        ),
        ("A 1\nB\n", "sequence 1 of ... has a line that is no event: give a type and a time on each"),
        ("A 1 2\n", "sequence 1 of ... has a line that is no event"),
        ("A one\n", "sequence 1 of ... has a line that is no event"),
        ("", "sequence 1 of ... has a line that is no event"),
        (
            "\n".join(f"A {n}" for n in range(1, LONGEST + 2)),
            "a sequence of bad.txt has 81 events: cut it or raise --tokens-per-sample",
        ),
    ],
)
def test_what_cannot_be_read(binary: Path, text: str, said: str) -> None:
    (binary / "bad.txt").write_text(text)
    task, _ = set_up(binary)
    with pytest.raises(SystemExit) as refused:
        task.load_dataset("bad")
    assert re.match("error: " + re.escape(said).replace(r"\.\.\.", ".*"), str(refused.value))
