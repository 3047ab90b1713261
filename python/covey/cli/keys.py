"""keys new, show, pin."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import console
from covey.cli.options import Json
from covey.errors import CoveyError

app = typer.Typer(help="Make, show and pin the keys that parties and clients know each other by.", no_args_is_help=True)

EXPIRY_WARNING_DAYS = 30


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, such as alpha.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where NAME.pem goes; made if need be.")] = Path("."),
    days: Annotated[int, typer.Option(help="How long its certificate is valid, 1 to 3650 days.")] = 365,
) -> None:
    """Make a key: NAME.pem, which never leaves this machine, and the fingerprint that the others pin."""
    from covey import _core

    path = key_file(name, out)
    identity = _core.Identity.generate(name, days)
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity.save(path)
    console.note(f"wrote {path} (keep it on this machine); the others pin this fingerprint:")
    console.say(identity.fingerprint)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A key file, NAME.pem.")], as_json: Json = False
) -> None:
    """Show a key's name, fingerprint and expiry; never the key."""
    from covey import _core

    identity = _core.Identity.load(file)
    expires = expiry(identity)
    if as_json:
        entry = {"name": identity.name, "fingerprint": identity.fingerprint, "expires": expires.isoformat()}
        console.print_json({**entry, "days_left": identity.days_left})
        return
    console.say(f"name         {identity.name}")
    console.say(f"fingerprint  {identity.fingerprint}")
    when = (
        f"expired on {expires:%Y-%m-%d}"
        if identity.days_left < 0
        else f"{expires:%Y-%m-%d} (in {identity.days_left} days)"
    )
    console.say(f"expires      {when}")
    warn_of_expiry(f"the certificate of '{identity.name}'", identity.days_left)


@app.command()
def pin(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="party.toml, owner.toml or client.toml.")],
    pins: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME FINGERPRINT ..", help="Whom the file calls so, and what `covey keys show` prints there."
        ),
    ],
    add: Annotated[bool, typer.Option("--add", help="The keys pinned before serve beside it.")] = False,
    only: Annotated[
        bool, typer.Option("--only", help="It serves alone; a party's file keeps the former keys of another party.")
    ] = False,
) -> None:
    """Set the fingerprints of others in a configuration file, and leave the rest of the file as it is."""
    from covey import _core
    from covey.config import Pinning
    from covey.config import pin as pin_in

    if add and only:
        raise CoveyError("a key serves beside the others or alone: give --add or --only")
    how = Pinning.ADD if add else Pinning.ONLY if only else Pinning.REPLACE
    names, fingerprints = pins[::2], pins[1::2]
    if len(names) != len(fingerprints):
        raise CoveyError(
            f"'{names[-1]}' has no fingerprint: give each name and then what `covey keys show` prints there"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise CoveyError(f"'{twice[0]}' is named twice: give each name once")
    checked = dict(zip(names, map(_core.check_fingerprint, fingerprints), strict=True))
    for name, before in pin_in(config, checked, how).items():
        console.say(f"{config}: '{name}' is pinned" + (f" anew, was {', '.join(before)}" if before else ""))


def key_file(name: str, folder: Path) -> Path:
    """Where the key of this name belongs. Raises `CoveyError` for a name that no file can have."""
    if Path(name).name != name or name.startswith("."):
        raise CoveyError(f"a key's name becomes a file name, which '{name}' cannot be: use letters, digits and dashes")
    return folder / f"{name}.pem"


def expiry(identity: Any) -> datetime.datetime:
    """When the certificate of a key ends."""
    return datetime.datetime.fromtimestamp(identity.expires, datetime.timezone.utc)


def warn_of_expiry(what: str, days_left: int) -> bool:
    """Warn from 30 days before a certificate ends; whether there was reason to."""
    if days_left < 0:
        console.warn(f"{what} has expired: make a new key with `covey keys new` and have its fingerprint pinned")
    elif days_left < EXPIRY_WARNING_DAYS:
        console.warn(f"{what} expires in {days_left} days: make a new key with `covey keys new` and have it pinned")
    return days_left < EXPIRY_WARNING_DAYS
