"""Ctrl-C while the `covey` command starts and ends, when no handler of its own can be in place: one line, no traceback.

Nothing here concerns programs that import the package.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

CODE = 130
"""What shells expect of a process that Ctrl-C ended."""


def is_command() -> bool:
    """Whether this process is the `covey` command."""
    return os.path.basename(sys.argv[0]) == "covey" or sys.orig_argv[1:3] == ["-m", "covey"]


def starting() -> None:
    """Ends the process at Ctrl-C from now on: while the package is imported there is nothing to tidy up."""
    if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def running() -> None:
    """Raises `KeyboardInterrupt` from now on, as usual."""
    if signal.getsignal(signal.SIGINT) is _leave:
        sys.unraisablehook = _again
        signal.signal(signal.SIGINT, _raise)


def ending() -> None:
    """All is said and tidied up, and the process about to end: a late Ctrl-C has nothing to interrupt."""
    if is_command():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    """`KeyboardInterrupt`, but not while a module is imported: extension modules crash where their start is cut off."""
    if _imports(frame):
        _strike_soon()
    else:
        signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _again(unraisable: sys.UnraisableHookArgs) -> None:
    """Where Python can raise nothing, as in a weak reference's callback, Ctrl-C would be lost: it comes again soon."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _strike_soon()
    else:
        sys.__unraisablehook__(unraisable)


_waiting = threading.Lock()


def _strike_soon() -> None:
    """Once, however often Ctrl-C struck. To the main thread, so that what it waits for ends, too."""
    if _waiting.acquire(blocking=False):
        later = threading.Timer(0.05, _strike)
        later.daemon = True
        later.start()


def _strike() -> None:
    _waiting.release()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(CODE)
