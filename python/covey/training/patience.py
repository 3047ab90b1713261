"""Going on with work after a party was lost and came back."""

from __future__ import annotations

import time
from collections.abc import Callable

from covey.errors import CoveyError, DataError, ModelError, OptionError, PartyLostError

PAUSE = 1.0
"""Seconds from one attempt to the next."""


def again_until(
    attempt: Callable[[Callable[[], None]], None],
    patience: float,
    progress: Callable[[], int],
    say: Callable[[str], None],
    *,
    begun: bool = False,
) -> None:
    """Repeat `attempt` as long as it ends because a party was lost, for `patience` seconds without `progress`.

    `attempt` calls its argument once its session is open. Before that a refusal counts as a loss, if a session was open
    earlier, or the work had `begun` before: parties refuse where they do not reach each other.
    """
    opened = int(begun)

    def open_now() -> None:
        nonlocal opened
        opened += 1

    since: float | None = None
    reached, told = progress(), ""
    while True:
        before = opened
        try:
            attempt(open_now)
            return
        except (DataError, ModelError, OptionError):
            raise
        except CoveyError as error:
            now = time.monotonic()
            if since is None or progress() > reached:
                since, reached = now, progress()
            may_pass = isinstance(error, PartyLostError) or opened == before
            if not (may_pass and opened) or now - since >= patience:
                raise
            if str(error) != told:
                told = str(error)
                say(f"{told}: trying again for {patience / 60:g} min")
            time.sleep(PAUSE)
