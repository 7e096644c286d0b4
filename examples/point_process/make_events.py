#!/usr/bin/env python3
"""Writes sequences of a simulated Hawkes process, {train,valid,test}.txt, into a new folder; the same for the same seed.

There are five types of event. Events of type j come at the rate

    λ_j(t) = μ_j + Σ_e α[j, type of e] β[type of e] exp(-β[type of e] (t - time of e))

where e are the events before t: each makes some others more likely for a while. One event comes per unit of time on
average. `truth.json` has the negative log-likelihood of the test set's events under this process, in nats per event,
below which no model can be but by chance.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TYPES = "ABCDE"
DECAYS = np.array([4.0, 2.0, 1.0, 0.5, 0.2])
"""β of each type."""
EFFECTS = 0.2 * np.eye(5) + 0.5 * np.roll(np.eye(5), 1, 0)
"""α: how many events of a type (row) one of another (column) leads to; mostly some of the next type, and a few alike."""
BASE = (np.eye(5) - EFFECTS) @ np.full(5, 0.2)
"""μ, with which every type comes at the rate 0.2 in the long run."""


def rates(state: Floats) -> Floats:
    """Returns the rate of each type, (n, 5).

    Args:
        state: (n, 5), for each type the sum of exp(-β (t - time)) over its events.
    """
    found: Floats = BASE + (state * DECAYS) @ EFFECTS.T
    return found


def simulate(draw: np.random.Generator, sequences: int, events: int) -> tuple[Integers, Floats]:
    """Draws types and times, (sequences, events) each, by thinning (Ogata, 1981)."""
    types, times = np.zeros((sequences, events), dtype=np.int64), np.zeros((sequences, events))
    state, time, drawn = np.zeros((sequences, 5)), np.zeros(sequences), np.zeros(sequences, dtype=np.int64)
    while drawn.min() < events:
        bound = rates(state).sum(1)  # as rates fall until the next event
        wait = draw.exponential(1 / bound)
        time += wait
        state *= np.exp(-DECAYS * wait[:, None])
        point = draw.uniform(0, bound)[:, None]
        upto = rates(state).cumsum(1)
        rows = np.flatnonzero((point < upto[:, -1:])[:, 0] & (drawn < events))
        chosen = (upto < point).sum(1)[rows]
        types[rows, drawn[rows]], times[rows, drawn[rows]] = chosen, time[rows]
        state[rows, chosen] += 1
        drawn[rows] += 1
    return types, times


def likelihoods(types: Integers, times: Floats) -> tuple[Floats, Floats]:
    """Returns each event's log-likelihood given those before it, and the integral of the total rate since the last."""
    found, integrals, state = np.zeros(times.shape), np.zeros(times.shape), np.zeros((len(times), 5))
    for event, wait in enumerate(np.diff(times, prepend=0).T):
        faded = state * np.exp(-DECAYS * wait[:, None])
        integrals[:, event] = BASE.sum() * wait + ((state - faded) @ EFFECTS.T).sum(1)
        own = rates(faded)[np.arange(len(times)), types[:, event]]
        found[:, event] = np.log(own) - integrals[:, event]
        state = faded + np.eye(5)[types[:, event]]
    return found, integrals


def main() -> None:
    """Reads the command line and writes the sequences."""
    parser = argparse.ArgumentParser(description="Writes sequences of a Hawkes process.", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where {train,valid,test}.txt go")
    numbers = {"seed": 1, "train": 2000, "valid": 100, "test": 200, "shortest": 64, "longest": 2048}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    args = parser.parse_args()
    if min(vars(args)[name] for name in numbers) < 1 or args.shortest > args.longest:
        parser.exit(2, "error: give numbers from 1 on, and no --shortest above --longest\n")
    if args.folder.exists():
        parser.exit(2, f"error: {args.folder} is there already: name a new folder\n")
    beside = args.folder.with_name(args.folder.name + ".part")
    beside.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(args.seed)
    for split in ("train", "valid", "test"):
        types, times = simulate(draw, vars(args)[split], args.longest)
        lengths = np.exp(draw.uniform(np.log(args.shortest), np.log(args.longest + 1), len(types))).astype(int)
        with open(beside / f"{split}.txt", "w", encoding="utf-8") as file:
            for own_types, own_times, n in zip(types, times.tolist(), lengths, strict=True):
                file.writelines(f"{TYPES[t]} {time}\n" for t, time in zip(own_types[:n], own_times[:n], strict=True))
                file.write("\n")
    kept = np.arange(args.longest) < lengths[:, None]
    truth = -likelihoods(types, times)[0][kept].mean()
    (beside / "truth.json").write_text(json.dumps({"truth": f"{truth:.4f}"}) + "\n", encoding="utf-8")
    beside.rename(args.folder)


if __name__ == "__main__":
    main()
