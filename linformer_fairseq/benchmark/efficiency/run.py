"""The benchmark of efficiency: check, measure part by part, report."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say

from ..forward import shapes
from ..rows import Row
from ..run_options import RunOptions
from . import inference, model_size, module_grid, report, training
from .checks import check
from .contenders import BY_PART
from .settings import EQUAL, INFERENCE, SIZES, TRAINING, EfficiencySettings
from .store import FILE_NAME, Store
from .versions import code_digest, versions

Block = tuple[str, Callable[[Sequence[Row]], list[Row]]]
"""The name of rows that are measured together, and their measurement, given the part's earlier rows."""


def run(options: RunOptions, settings: EfficiencySettings) -> None:
    """Measures what is asked for and not measured yet, and writes it to the output folder.

    Raises:
        UserError: no length fits into the batches of inference, or there are no results to report.
    """
    if not settings.report_only:
        _measure(options, settings)
    report.write(options.out, settings.parts)
    say(f"{options.out / report.FILE_NAME} is written")


def _measure(options: RunOptions, settings: EfficiencySettings) -> None:
    if INFERENCE in settings.parts and settings.inference_lengths[0] > settings.inference_tokens:
        raise UserError(
            f"none of --inference-lengths fits into --inference-tokens {settings.inference_tokens}: raise the latter."
        )
    options.prepare()
    say("checking that the contenders compute what they should ...")
    check()
    facts = {name: value for name, value in options.facts().items() if name != "command"}
    asked = {**facts, **settings.sizes(), "packages": versions(), "code": code_digest()}
    store = Store(options.out / FILE_NAME, asked, options.command)
    for part in settings.parts:
        rows: list[Row] = []
        for name, measure in _blocks(part, options, settings):
            rows += store.rows(name, report.ROWS[part], partial(measure, tuple(rows)))
    store.write()  # the command, where nothing was left to measure


def _blocks(part: str, options: RunOptions, settings: EfficiencySettings) -> Iterator[Block]:
    """Yields what a part consists of, from short sentences to long ones."""
    whole = dataclasses.replace(options, repeats=settings.whole_repeats, warm_up=min(1, options.warm_up))
    if part in BY_PART:
        shapes_of_part = module_grid.equal_shapes if part == EQUAL else module_grid.shapes
        of_part = {"contenders": BY_PART[part], "part": part}
        for shape in shapes_of_part(settings):
            yield f"{part}, {shape.length} tokens", partial(module_grid.measure, shape, settings, options, **of_part)
    elif part == SIZES:
        yield part, lambda before: model_size.measure(settings, options)
    elif part == INFERENCE:
        for length, _ in shapes(settings.inference_tokens, settings.inference_lengths):
            yield f"{part}, {length} tokens", partial(inference.measure, length, settings, whole)
    elif part == TRAINING:
        for length in training.kinds(settings):
            yield f"{part}, {training.describe(length)}", partial(training.measure, length, settings, whole)
