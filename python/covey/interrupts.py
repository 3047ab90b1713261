"""Ctrl-C, and what else ends the command, where half of what is done would be left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from covey import _interrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end of the block. The command's handlers of other signals do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # where Python raises it never
        yield
        return
    struck: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: struck.append((number, frame)))
    _interrupt.untidy()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
    for number, frame in struck:
        handler = signal.getsignal(number)
        if callable(handler):
            handler(number, frame)
