"""The model sees no later event, no padding and no other sequence; its likelihood is one; bad input is refused."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
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
        for name, change in (("src_tokens", given["src_tokens"].flip(0, 1)), ("waits", given["waits"] * 50)):
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


@torch.no_grad()
def test_a_mixture_is_a_density_with_its_mean() -> None:
    mixture = events().waiting_time(torch.randn(4, 3, events().COMPONENTS, dtype=torch.float64))
    logs = torch.linspace(-40, 40, 20001, dtype=torch.float64)[:, None]
    density = mixture.log_prob(logs.exp()).exp() * logs.exp()
    torch.testing.assert_close(torch.trapezoid(density, logs, dim=0), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(torch.trapezoid(density * logs.exp(), logs, dim=0), mixture.mean)


def test_text_is_read(binary: Path) -> None:
    """An empty line, or several, stand between sequences, whose waiting times begin at 0."""
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A 1\nB 3\nA 2\n", "sequence 1 of ... has times that fall or stand still: give times that rise, from above 0"),
        ("A 1\n\nB 3\nA 3\n", "sequence 2 of ... has times that fall or stand still"),
        ("A 0\n", "sequence 1 of ... has times that fall or stand still"),
        ("A inf\n", "sequence 1 of ... has times that fall or stand still"),
        ("A nan\n", "sequence 1 of ... has times that fall or stand still"),
        ("A 1\n\nF 1\n", "sequence 2 of ... has an event of type F, which is not in train.txt: leave it out"),
        ("<pad> 1\n", "sequence 1 of ... has an event of type <pad>, which is not in train.txt: leave it out"),
        ("A 1\nB\n", "sequence 1 of ... has a line without an event, or none: give a type and a time on each"),
        ("A 1 2\n", "sequence 1 of ... has a line without an event, or none"),
        ("A one\n", "sequence 1 of ... has a line without an event, or none"),
        ("", "sequence 1 of ... has a line without an event, or none"),
        (
            "\n".join(f"A {n}" for n in range(1, 82)),
            "bad.txt has a sequence of 81 events, longer than the 80 of the model",
        ),
    ],
)
def test_what_cannot_be_read(binary: Path, text: str, said: str) -> None:
    (binary / "bad.txt").write_text(text)
    task, _ = set_up(binary)
    with pytest.raises(SystemExit) as refused:
        task.load_dataset("bad")
    assert re.match("error: " + re.escape(said).replace(r"\.\.\.", ".*"), str(refused.value))
