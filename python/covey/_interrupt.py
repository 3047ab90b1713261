"""Signals that end the `covey` command: one line, no traceback, and nothing left behind.

Ctrl-C while the command starts and ends, when no handler of its own can be in place. SIGTERM and SIGHUP are Ctrl-C with
another exit code. Nothing here concerns programs that import the package, and only what starts with Python is imported:
until a handler is in place, Ctrl-C shows a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
"""What ended the command, by its signal."""


class _State:
    """What signals did until now."""

    struck: int = signal.SIGINT
    """Which came last."""
    waiting = False
    """Whether one will be sent again soon, as it came where nothing can be raised."""
    ours = False
    """Whether the next one is that."""
    untidy = False
    """Whether ending at once may leave something behind."""
    process = 0
    """The command's; 0 in a program that imports the package."""


def is_command() -> bool:
    """Whether this process is the `covey` command."""
    return os.path.basename(sys.argv[0]) == "covey" or sys.orig_argv[1:3] == ["-m", "covey"]


def code() -> int:
    """What shells expect of a process that such a signal ended."""
    return 128 + _State.struck


def word() -> str:
    """What happened, in a word."""
    return WORDS[signal.Signals(_State.struck)]


def starting() -> None:
    """Ends the process at Ctrl-C from now on: while the package is imported there is nothing to tidy up."""
    if not is_command():
        return
    _State.process = os.getpid()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def running() -> None:
    """Raises `KeyboardInterrupt` from now on, as usual, and for the other signals unless they are ignored."""
    if os.getpid() != _State.process:
        return
    sys.unraisablehook = _again
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _raise)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def serving() -> None:
    """Leaves the other signals to the server that this process becomes."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def untidy() -> None:
    """From now on something may have to be tidied up: Ctrl-C no longer ends the process at once."""
    _State.untidy = True


def ending() -> None:
    """All is said and tidied up, and the process about to end: a late Ctrl-C has nothing to interrupt."""
    if is_command():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serving()


def _end(number: int, frame: FrameType | None) -> None:
    """Does what Ctrl-C would do now, for instance wait until it may be raised."""
    if os.getpid() != _State.process:  # a fork, which has nothing to tidy up
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    now = signal.getsignal(signal.SIGINT)
    handler = now if callable(now) else _raise  # jobs that a script runs in the background ignore Ctrl-C
    handler(number, frame)


def _raise(number: int, frame: FrameType | None) -> None:
    """`KeyboardInterrupt`, but not while a module is imported: extension modules crash where their start is cut off.

    A second strike means that it takes too long.
    """
    ours, _State.ours = _State.ours, False
    _State.struck = number
    if not _imports(frame):
        signal.default_int_handler(number, frame)
    elif _State.waiting and not ours and not _State.untidy:
        _leave(number, frame)
    else:
        _strike_soon()


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


def _strike_soon() -> None:
    """Once, however often Ctrl-C struck. To the main thread, so that what it waits for ends, too."""
    import threading

    if not _State.waiting:
        _State.waiting = True
        later = threading.Timer(0.05, _strike)
        later.daemon = True
        later.start()


def _strike() -> None:
    import threading

    _State.waiting, _State.ours = False, True
    signal.pthread_kill(threading.main_thread().ident or 0, _State.struck)


def _leave(number: int, frame: FrameType | None) -> None:
    _State.struck = number
    cursor = "\x1b[?25h" if os.isatty(2) else ""  # progress bars hide it
    os.write(2, f"{cursor}error: {word()}\n".encode())
    os._exit(code())
