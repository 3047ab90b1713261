"""Serve as a party or as the dealer: what `covey party`, `covey dealer` and the processes of `covey.local` do.

The module imports neither the parser of commands nor what prints tables: that would take longer than a party's start.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn


def serve(
    config: Path,
    *,
    dealer: bool = False,
    log: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    until_stdin_closes: bool = False,
) -> None:
    """Serve until interrupted."""
    from covey import _core, _interrupt
    from covey.protocols import check_threads

    if threads is not None:
        check_threads(threads)
    _interrupt.serving()  # at SIGHUP the runtime reads the configuration again
    # A service manager's way of asking: take leave of the peers, as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if until_stdin_closes:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        _core.serve_party(os.fspath(config), _ready, dealer, log, device, threads)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.stderr.flush()


def _ready(address: str) -> None:
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


def _leave_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):  # not through its buffer, whose lock would outlive the main thread
        pass
    os._exit(0)


def main() -> NoReturn:
    """What `covey.local` starts: `party` or `dealer` and a configuration file, until standard input closes."""
    from covey.gpu_libraries import announce

    command, config = sys.argv[1:]
    try:
        announce()
        serve(Path(config), dealer=command == "dealer", until_stdin_closes=True)
    except Exception as error:
        from covey.cli import explain_error

        sys.exit(explain_error(error))
    sys.exit(0)
