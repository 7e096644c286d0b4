"""Sequences of events: `--user-dir examples/point_process`."""

from linformer_fairseq.models import register
from peers import performer
from point_process import events

__all__ = ["events", "performer", "register"]
