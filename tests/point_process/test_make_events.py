"""The simulated process is the one whose likelihood is given."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.point_process.conftest import FOLDER

SCRIPT = FOLDER / "make_events.py"
SIZES = ("--train", "9", "--valid", "2", "--test", "3", "--shortest", "5", "--longest", "20")


@pytest.fixture
def made() -> dict[str, Any]:
    """Returns the functions and the parameters of the script, which have these for globals."""
    names = runpy.run_path(str(SCRIPT))
    return names["simulate"].__globals__


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, folder, *map(str, arguments)], capture_output=True, text=True)


def test_the_likelihood_is_that_of_the_rates(made: dict[str, Any]) -> None:
    """Summed over all earlier events, and with the integral of the rates in small steps."""
    made["EFFECTS"] = np.random.default_rng(2).uniform(0, 0.3, (5, 5))
    types, times = made["simulate"](np.random.default_rng(1), 1, 12)
    found, integrals = made["likelihoods"](types, times)

    def rates(at: float, before: int) -> np.ndarray:
        earlier = zip(types[0, :before], times[0, :before], strict=True)
        decays, effects = made["DECAYS"], made["EFFECTS"]
        return made["BASE"] + sum(effects[:, j] * decays[j] * np.exp(-decays[j] * (at - t)) for j, t in earlier)

    for event, (kind, time) in enumerate(zip(types[0], times[0], strict=True)):
        steps = np.linspace(times[0, event - 1] if event else 0, time, 2001)
        totals = np.array([rates(step, event).sum() for step in steps])
        integral = (np.diff(steps) * (totals[1:] + totals[:-1]) / 2).sum()
        assert integrals[0, event] == pytest.approx(integral, rel=1e-4)
        assert found[0, event] == pytest.approx(np.log(rates(time, event)[kind]) - integral, rel=1e-4)


def test_integrals_between_events_are_exponential(made: dict[str, Any]) -> None:
    """By the time-rescaling theorem, of 10,000 events."""
    _, integrals = made["likelihoods"](*made["simulate"](np.random.default_rng(1), 50, 200))
    uniform = 1 - np.exp(-np.sort(integrals.ravel()))
    assert np.abs(uniform - (np.arange(10_000) + 0.5) / 10_000).max() < 1.63 / 100  # Kolmogorov and Smirnov, 1 %


def test_types_come_as_often_as_their_rates_say(made: dict[str, Any]) -> None:
    """At the last event of 4,000 sequences."""
    types, times = made["simulate"](np.random.default_rng(1), 4000, 10)
    rates = []
    for kind in range(5):
        other = types.copy()
        other[:, -1] = kind
        rates.append(np.exp(made["likelihoods"](other, times)[0][:, -1]))
    chances = np.array(rates) / np.sum(rates, 0)
    found = np.bincount(types[:, -1], minlength=5)
    assert (np.abs(found - chances.sum(1)) < 4 * np.sqrt((chances * (1 - chances)).sum(1))).all()


def test_the_estimate_for_a_poisson_process_is_its_entropy(made: dict[str, Any]) -> None:
    """That of a waiting time at the rate 1, and of five types."""
    made.update(EFFECTS=np.zeros((5, 5)), BASE=np.full(5, 0.2))
    found = made["likelihoods"](*made["simulate"](np.random.default_rng(1), 50, 200))[0]
    assert found.mean() == pytest.approx(-1 - np.log(5), abs=4 * found.std() / 100)


def test_no_other_process_is_more_likely(made: dict[str, Any]) -> None:
    """And events come at the rate 1, each type at 0.2, in the long run."""
    types, times = made["simulate"](np.random.default_rng(1), 50, 400)
    true = made["likelihoods"](types, times)[0].mean()
    assert np.bincount(types[:, 200:].ravel()) / 10_000 == pytest.approx(np.full(5, 0.2), abs=0.03)
    assert (times[:, -1] - times[:, 200]).mean() == pytest.approx(199, rel=0.1)
    for name in ("DECAYS", "EFFECTS", "BASE"):
        for factor in (0.8, 1.25):
            kept = made[name]
            made[name] = kept * factor
            assert made["likelihoods"](types, times)[0].mean() < true
            made[name] = kept


def test_files(tmp_path: Path) -> None:
    assert run(tmp_path / "new/made", *SIZES).returncode == 0
    folder = tmp_path / "new/made"
    for split, count in (("train", 9), ("valid", 2), ("test", 3)):
        found = [own.splitlines() for own in (folder / f"{split}.txt").read_text().strip().split("\n\n")]
        assert len(found) == count
        assert all(5 <= len(own) <= 20 for own in found)
    made = runpy.run_path(str(SCRIPT))
    nats = []
    for own in found:
        kinds, times = zip(*map(str.split, own), strict=True)
        types = np.array([["ABCDE".index(kind) for kind in kinds]])
        nats += made["likelihoods"](types, np.array([times], float))[0][0].tolist()
    assert (folder / "truth").read_text() == f"{-np.mean(nats):.5f}\n"
    assert run(tmp_path / "again", *SIZES).returncode == run(tmp_path / "other", *SIZES, "--seed", 2).returncode == 0
    text, again, other = ((path / "train.txt").read_text() for path in (folder, tmp_path / "again", tmp_path / "other"))
    assert text == again != other


@pytest.mark.parametrize("arguments", [("--train", 0), ("--shortest", 9, "--longest", 8), ()])
def test_refusals(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    folder = tmp_path / "new" if arguments else tmp_path
    done = run(folder, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: name a new folder, and give numbers from 1 on, --longest no smaller")
    assert not list(tmp_path.iterdir())
