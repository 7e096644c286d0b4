"""The benchmark of causal attention: check, decode, train, report."""

from linformer_fairseq.cli.progress import say

from ..memory import release
from ..run_options import RunOptions
from . import decoding, product
from .checks import check_decoding, check_product
from .models import OURS, build_models
from .report import Results, write
from .settings import CausalSettings


def run(options: RunOptions, settings: CausalSettings) -> None:
    """Measures everything and writes it to the output folder."""
    options.prepare()
    device = options.torch_device
    say("building the models ...")
    models = build_models(settings, decoding.longest_target(settings, options))
    say("checking that the contenders compute what they should ...")
    check_product(settings.heads, settings.head_dim, settings.k, settings.chunk_sizes, device)
    for name, model in models.items():
        model.to(device)
        if name in OURS:
            check_decoding(name, model, device)
        model.to(options.torch_dtype)
    decoded = decoding.measure(models, settings, options)
    grown = decoding.measure_growth(models, settings, options)
    del models, model
    release(device)
    trained = product.measure(settings, options)
    chunks = product.sweep(settings, options)
    write(Results(decoded, grown, trained, chunks), settings, options)
    say(f"{options.out / 'report.md'} is written")
