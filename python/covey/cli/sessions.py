"""Sessions of commands that run with parties on this machine or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.cli import console
from covey.cli.remote import warn_of_own_expiry
from covey.errors import OptionError
from covey.protocols import PROTOCOLS, device_option

if TYPE_CHECKING:
    from covey.model import Model


@contextmanager
def session_of(
    loaded: Model,
    kind: str,
    config: Path | None,
    local: bool,
    parties: int | None,
    timeout: float,
    device: str | None,
    quiet: bool,
) -> Iterator[Any]:
    """A session with parties elsewhere, which `config` lists, or with parties on this machine; `clear` has none.

    Raises `OptionError` where neither is asked for.
    """
    from covey.client import Client
    from covey.parties import local as local_parties

    if config is not None:
        warn_of_own_expiry(config)
        with Client(config).session(loaded.program, kind, progress=console.waiting) as remote:
            yield remote
        return
    if kind != "clear" and not local:
        raise OptionError("say --local to run the parties on this machine, or --config client.toml for others")
    loaded.need_weights()
    count, device = PROTOCOLS[kind].count(parties), device_option(device, kind)
    with local_parties(kind, parties=count, timeout=timeout, device=device) as running:
        with console.progress(quiet=quiet) as report:
            session = running.session(loaded, report)
        yield session
