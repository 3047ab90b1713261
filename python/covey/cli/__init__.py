"""The `covey` command: one module a group of commands. Importing this loads no model code and no runtime."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from covey import _interrupt
from covey._version import __version__
from covey.cli import bench, data_sets, init, keys, store, weights
from covey.cli.compare import compare
from covey.cli.console import complain
from covey.cli.demo import demo
from covey.cli.diff import diff
from covey.cli.doctor import doctor
from covey.cli.generate import generate
from covey.cli.models import check, compile_, explain
from covey.cli.pareto import pareto
from covey.cli.remote import dealer, infer, party, share_weights
from covey.cli.run import run
from covey.cli.train import train
from covey.cli.tune import tune
from covey.cli.verify import verify
from covey.errors import CoveyError
from covey.gpu_libraries import announce

app = typer.Typer(
    name="covey",
    help="Private neural-network inference by secure multi-party computation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(check)
app.command("compile")(compile_)
app.command()(explain)
app.command()(compare)
app.command()(pareto)
app.command()(diff)
app.command()(tune)
app.command()(verify)
app.command()(demo)
app.command()(run)
app.add_typer(init.app, name="init")
app.add_typer(keys.app, name="keys")
app.command()(party)
app.command()(dealer)
app.command("share-weights")(share_weights)
app.command()(infer)
app.command()(generate)
app.command()(train)
app.command()(doctor)
app.add_typer(store.app, name="store")
app.add_typer(weights.app, name="weights")
app.add_typer(data_sets.app, name="data")
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"covey {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> NoReturn:
    """Run the command: exit code 0, 1 with one line on stderr, 2 for a wrong call, 130 when interrupted."""
    try:
        _interrupt.running()
        announce()
        _run()
    except KeyboardInterrupt:  # wherever it struck, the handlers below included
        _interrupt.ending()
        complain("interrupted")
        sys.exit(_interrupt.CODE)
    finally:
        _interrupt.ending()


def _run() -> NoReturn:
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        sys.exit(explain_error(error))
    if code == 130:  # the parser's own way of saying that Ctrl-C was pressed
        complain("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def explain_error(error: Exception) -> int:
    """Say in one line what went wrong; the exit code. Raises it again where a traceback is asked for."""
    if os.environ.get("COVEY_TRACEBACK") == "1":
        raise error
    if isinstance(error, CoveyError):
        complain(str(error))
        return 1
    if isinstance(error, typer.Abort) or isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
        complain("interrupted")
        return 130
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
