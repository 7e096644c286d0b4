#!/usr/bin/env python3
"""Writes sequences of a simulated Hawkes process, {train,valid,test}.txt, into a new folder, the same for a seed.

There are five types of event, and one event per unit of time on average. Each makes others more likely for a while:
type i comes at the rate λ_i(t) = μ_i + Σ_e α[i, j] β[j] exp(-β[j] (t - t_e)), where e, of type j, are the events before
t. The file `truth` has the negative log-likelihood of the test events under the process, in nats per event.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DECAYS = np.array([4.0, 2.0, 1.0, 0.5, 0.2])  # β
EFFECTS = 0.2 * np.eye(5) + 0.5 * np.roll(np.eye(5), 1, 0)  # α: so many of one type (row) come of another (column)
BASE = (np.eye(5) - EFFECTS) @ np.full(5, 0.2)  # μ, with which each type comes at the rate 0.2 in the long run


def rates(state: Floats) -> Floats:
    """The rates (n, 5) after events whose exp(-β (t - time)) have these sums by type, (n, 5)."""
    return np.asarray(BASE + (state * DECAYS) @ EFFECTS.T)


def simulate(draw: np.random.Generator, sequences: int, events: int) -> tuple[NDArray[np.int64], Floats]:
    """Draws types and times, (sequences, events) each, by thinning (Ogata, 1981)."""
    types, times = np.zeros((sequences, events), np.int64), np.zeros((sequences, events))
    state, time, drawn = np.zeros((sequences, 5)), np.zeros(sequences), np.zeros(sequences, np.int64)
    while drawn.min() < events:
        bound = rates(state).sum(1)  # as rates fall until the next event
        wait = draw.exponential(1 / bound)
        time += wait
        state *= np.exp(-DECAYS * wait[:, None])
        point, upto = draw.uniform(0, bound), rates(state).cumsum(1)
        rows = np.flatnonzero((point < upto[:, -1]) & (drawn < events))
        chosen = (upto[rows] < point[rows, None]).sum(1)
        types[rows, drawn[rows]], times[rows, drawn[rows]] = chosen, time[rows]
        state[rows, chosen] += 1
        drawn[rows] += 1
    return types, times


def likelihoods(types: NDArray[np.int64], times: Floats) -> tuple[Floats, Floats]:
    """Each event's log-likelihood given those before it, and the integral of the total rate since the last one."""
    found, integrals, state = np.zeros(times.shape), np.zeros(times.shape), np.zeros((len(times), 5))
    for event, wait in enumerate(np.diff(times, prepend=0).T):
        own, faded = types[:, event], state * np.exp(-DECAYS * wait[:, None])
        integrals[:, event] = BASE.sum() * wait + ((state - faded) @ EFFECTS.T).sum(1)
        found[:, event] = np.log(rates(faded)[np.arange(len(own)), own]) - integrals[:, event]
        state = faded + np.eye(5)[own]
    return found, integrals


def main() -> None:
    """Reads the command line and writes the sequences."""
    parser = argparse.ArgumentParser(description="Writes sequences of a Hawkes process.", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where {train,valid,test}.txt go")
    numbers = {"seed": 1, "train": 2000, "valid": 100, "test": 200, "shortest": 64, "longest": 2048}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    folder, *given = vars(args := parser.parse_args()).values()
    if min(given) < 1 or args.shortest > args.longest or folder.exists():
        parser.exit(2, "error: name a new folder, and give numbers from 1 on, --longest no smaller than --shortest\n")
    beside, draw = folder.with_name(f"{folder.name}.part"), np.random.default_rng(args.seed)
    beside.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        types, times = simulate(draw, vars(args)[split], args.longest)
        lengths = np.exp(draw.uniform(np.log(args.shortest), np.log(args.longest + 1), len(types))).astype(int)
        with open(beside / f"{split}.txt", "w", encoding="utf-8") as file:
            for kinds, own, n in zip(types, times, lengths, strict=True):
                file.writelines(f"{'ABCDE'[kind]} {time}\n" for kind, time in zip(kinds[:n], own[:n], strict=True))
                file.write("\n")
    kept = np.arange(args.longest) < lengths[:, None]
    (beside / "truth").write_text(f"{-likelihoods(types, times)[0][kept].mean():.5f}\n", encoding="utf-8")
    beside.rename(folder)


if __name__ == "__main__":
    main()
