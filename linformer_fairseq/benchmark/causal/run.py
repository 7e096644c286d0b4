"""The benchmark of causal attention: check, decode, train, report."""

from linformer_fairseq.cli.progress import say

from ..memory import release
from ..running import Running
from . import decoding, product
from .checks import check_decoding, check_product
from .models import LINFORMERS, build_models
from .report import Results, write
from .settings import CausalSettings


def run(running: Running, settings: CausalSettings) -> None:
    """Measures everything and writes it to the output folder."""
    running.prepare()
    device, dtype = running.torch_device, running.torch_dtype
    say("building the models ...")
    models = build_models(settings, decoding.longest_target(settings, running))
    say("checking that the contenders compute what they should ...")
    check_product(settings.heads, settings.head_dim, settings.k, settings.chunk_sizes, device)
    for name, model in models.items():
        model.to(device)
        if name in LINFORMERS:
            check_decoding(name, model, device)
        model.to(dtype)
    decoded = decoding.measure(models, settings, running)
    grown = decoding.measure_growth(models, settings, running)
    del models, model
    release(device)
    trained = product.measure(settings, running)
    chunks = product.sweep(settings, running)
    write(Results(decoded, grown, trained, chunks), settings, running)
    say(f"{running.out / 'report.md'} is written")
