"""Sequences of events: `--user-dir examples/point_process`."""

from peers import performer as performer

from point_process import events as events
