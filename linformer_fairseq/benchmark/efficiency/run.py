"""The benchmark of efficiency: check, measure part by part, report."""

import dataclasses
from dataclasses import asdict
from functools import partial

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say

from ..forward import shapes
from ..running import Running
from . import inference, model_size, module_grid, training
from .checks import check
from .module_grid import ModuleRow
from .report import Results, write
from .settings import EQUAL, INFERENCE, MODULES, SIZES, TRAINING, EfficiencySettings
from .store import Store
from .versions import code_digest, versions

FILE_NAME = "results.json"


def run(running: Running, settings: EfficiencySettings) -> None:
    """Measures what is asked for and not measured yet, and writes it to the output folder."""
    if INFERENCE in settings.parts and settings.inference_lengths[0] > settings.inference_tokens:
        raise UserError(
            f"none of --inference-lengths fits into --inference-tokens {settings.inference_tokens}: raise the latter."
        )
    running.prepare()
    say("checking that the contenders compute what they should ...")
    check()
    facts = {name: value for name, value in running.facts().items() if name != "command"}
    sizes = {name: value for name, value in asdict(settings).items() if name != "parts"}
    # as JSON gives them back
    sizes = {name: list(value) if isinstance(value, tuple) else value for name, value in sizes.items()}
    asked = {**facts, **sizes, "packages": versions(), "code": code_digest()}
    store = Store(running.out / FILE_NAME, asked)
    whole = dataclasses.replace(running, repeats=settings.whole_repeats, warm_up=min(1, running.warm_up))
    results = Results()
    if MODULES in settings.parts:
        for shape in module_grid.shapes(settings):
            measure = partial(module_grid.measure, shape, settings, running, results.modules)
            results.modules += store.rows(f"{MODULES}, {shape.length} tokens", ModuleRow, measure)
    if EQUAL in settings.parts:
        for shape in module_grid.equal_shapes(settings):
            measure = partial(module_grid.measure, shape, settings, running, [])
            results.equal += store.rows(f"{EQUAL}, {shape.length} tokens", ModuleRow, measure)
    if SIZES in settings.parts:
        measure = partial(model_size.measure, settings.model_size, running)
        results.sizes += store.rows(SIZES, model_size.ModelSizeRow, measure)
    if INFERENCE in settings.parts:
        for length, _ in shapes(settings.inference_tokens, settings.inference_lengths):
            measure = partial(inference.measure, length, settings.inference, whole, results.inference)
            results.inference += store.rows(f"{INFERENCE}, {length} tokens", inference.InferenceRow, measure)
    if TRAINING in settings.parts:
        for length in training.kinds(settings.training):
            measure = partial(training.measure, length, settings.training, whole, results.training)
            results.training += store.rows(f"{TRAINING}, {training.describe(length)}", training.TrainingRow, measure)
    write(results, settings, running, store)
    say(f"{running.out / 'report.md'} is written")
