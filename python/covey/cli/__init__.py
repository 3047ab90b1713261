"""The `covey` command: one module a group of commands. Importing this loads none of them, no model code, no runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import typer

from covey import _interrupt
from covey._version import __version__
from covey.cli.console import complain
from covey.errors import CoveyError
from covey.gpu_libraries import announce

COMMANDS = {
    "check": "models.check",
    "compile": "models.compile_",
    "explain": "models.explain",
    "compare": "compare.compare",
    "pareto": "pareto.pareto",
    "diff": "diff.diff",
    "tune": "tune.tune",
    "verify": "verify.verify",
    "demo": "demo.demo",
    "run": "run.run",
    "init": "init.app",
    "keys": "keys.app",
    "party": "remote.party",
    "dealer": "remote.dealer",
    "share-weights": "remote.share_weights",
    "infer": "remote.infer",
    "generate": "generate.generate",
    "train": "train.train",
    "doctor": "doctor.doctor",
    "store": "store.app",
    "weights": "weights.app",
    "data": "data_sets.app",
    "bench": "bench.app",
}
"""Each command by its name: the module here, and there the function, or the group of commands."""


def parser(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The parser of these commands. It loads their modules alone: all of them would take longer than most commands."""
    app = typer.Typer(
        name="covey",
        help="Private neural-network inference by secure multi-party computation.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        module, attribute = COMMANDS[name].split(".")
        command = getattr(import_module(f"covey.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"covey {__version__}")
        raise typer.Exit()


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> NoReturn:
    """Run the command: exit code 0, 1 with one line on stderr, 2 for a wrong call, 128 more than a signal."""
    try:
        _interrupt.running()
        announce()
        _run()
    except KeyboardInterrupt:  # wherever it struck, the handlers below included
        _interrupt.ending()
        sys.exit(_interrupted())
    finally:
        _interrupt.ending()


def _run() -> NoReturn:
    try:
        # With another first word, or none, the parser says which commands there are.
        asked = [word for word in sys.argv[1:2] if word in COMMANDS]
        code = parser(asked or COMMANDS)(standalone_mode=False)
    except Exception as error:
        sys.exit(explain_error(error))
    if code == 130:  # the parser's own way of saying that Ctrl-C was pressed
        code = _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted() -> int:
    """Say what ended the command; the exit code."""
    with suppress(OSError):  # the terminal may be gone
        complain(_interrupt.word())
    return _interrupt.code()


def explain_error(error: Exception) -> int:
    """Say in one line what went wrong; the exit code. Raises it again where a traceback is asked for."""
    if os.environ.get("COVEY_TRACEBACK") == "1":
        raise error
    if isinstance(error, CoveyError):
        complain(str(error))
        return 1
    if isinstance(error, typer.Abort) or isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
        return _interrupted()
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # a wrong call, as the parser reports it
        context = getattr(error, "ctx", None)
        name = context.command_path if context is not None else "covey"
        message = error.format_message()
        if message:  # empty when the help was printed for want of arguments
            complain(f"{message.rstrip('.')} (see {name} --help)")
        return 2
    if isinstance(error, BrokenPipeError):  # whoever read our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, MemoryError):
        complain("this machine has too little memory: use fewer samples at once")
        return 1
    if isinstance(error, OSError):
        where = f" '{error.filename}'" if error.filename else ""
        complain(f"{error.strerror or error}{where}")
        return 1
    complain(f"internal error, please report it: {type(error).__name__}: {error} (COVEY_TRACEBACK=1 shows where)")
    return 1
