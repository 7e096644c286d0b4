"""Measurements of speed and memory; `python -m linformer_fairseq.benchmark --help`."""
