"""Ctrl-C at a line of our choice."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType


def struck_at(line: int, sources: Sequence[str | None], call: Callable[[], object]) -> bool:
    """Call, and strike before the n-th line of these source files that is run; whether there was such a line."""
    passed = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal passed
        if frame.f_code.co_filename not in sources:
            return None
        if event == "line":
            passed += 1
            if passed == line + 1:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        assert passed > line
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGINT, before)
    return passed > line
