"""train: weights of a network on shared data, epoch by epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli import console
from covey.cli.options import Device, InputRange, Json, PartyCount, Protocol, Weights, check_protocol, parse_range
from covey.cli.remote import protocol_of
from covey.cli.run import Local, Timeout
from covey.cli.sessions import session_of
from covey.errors import CoveyError, OptionError

if TYPE_CHECKING:
    from covey.client import DataSet
    from covey.training.optimizers import Optimizer
    from covey.training.trainer import Epoch

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An .onnx or .pt2 file, or a training job (.covey) that was compiled.")
]
Samples = Annotated[Path | None, typer.Option("--data", metavar="X.npy", help="The samples, [N, ..].")]
Labels = Annotated[Path | None, typer.Option(metavar="Y.npy", help="Their labels, [N].")]
DataSets = Annotated[
    list[str] | None,
    typer.Option(
        "--data-set",
        metavar="NAME",
        help="In place of --data and --labels: a data set that the parties keep, or KEY/NAME; may be given again.",
    ),
]
Loss = Annotated[str, typer.Option(help="cross-entropy, binary-cross-entropy or mse.")]
ClassWeights = Annotated[
    str | None,
    typer.Option(
        "--class-weights",
        metavar="NUMBERS",
        help="Numbers that multiply losses, one for each class, such as 1,4.5.",
    ),
]
OptimizerName = Annotated[str, typer.Option("--optimizer", help="sgd, adam or adamw.")]
Rate = Annotated[float, typer.Option("--lr", help="The learning rate.")]
ScheduleName = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="NAME:NUMBERS",
        help="Of the learning rate: cosine:EPOCHS, step:EPOCH,EPOCH or exponential:GAMMA. Epochs are those of --data.",
    ),
]
StepsPerEpoch = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEPS",
        help="With --compile, where the job trains on other data than --data: what --schedule and --open-losses count "
        "as an epoch.",
    ),
]
Warmup = Annotated[int, typer.Option(min=0, metavar="STEPS", help="In which the learning rate rises to what it is.")]
Momentum = Annotated[float, typer.Option(min=0, help="Of sgd.")]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="Of sgd: look ahead by the momentum.")]
Decay = Annotated[float | None, typer.Option("--weight-decay", help="By default 0; 0.01 for adamw.")]
Clip = Annotated[float | None, typer.Option(metavar="BOUND", help="Bound every element of the gradients.")]
ClipNorm = Annotated[float | None, typer.Option(metavar="BOUND", help="Bound the norm of all gradients together.")]
Batch = Annotated[int, typer.Option(help="Samples of a minibatch.")]
Epochs = Annotated[int, typer.Option(help="Passes over the data.")]
Seed = Annotated[int, typer.Option(help="The order of the samples and all public coins follow from it.")]
Freeze = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Parameters that stay as they are, such as 'features.*'.")
]
FrozenNorm = Annotated[
    bool, typer.Option("--freeze-batch-norm", help="Take the model's own statistics, not those of minibatches.")
]
Dropout = Annotated[bool, typer.Option("--dropout", help="Let the model's Dropout layers drop elements in training.")]
Stochastic = Annotated[
    bool, typer.Option("--stochastic-rounding", help="Round weights up or down by public coins, right on average.")
]
Scale = Annotated[int | None, typer.Option(help="Fractional bits; by default the most that fit.")]
Compile = Annotated[
    Path | None, typer.Option("--compile", metavar="job.covey", help="Write the job for parties elsewhere, and stop.")
]
OpenWeights = Annotated[
    bool, typer.Option("--open-weights", help="The job opens what was trained to the data owner, at its end.")
]
OpenLosses = Annotated[
    str | None,
    typer.Option(
        metavar="step|epoch|never|STEPS",
        help="Which losses the data owner learns: each step's (by default), sums over an epoch of --data or so many "
        "steps, or none.",
    ),
]
Serve = Annotated[
    Path | None,
    typer.Option(
        metavar="model.covey",
        help="With --compile: write the inference program that is to compute with the trained weights, which stay in "
        "shares. The job names it; share the weights of both.",
    ),
]
NoServe = Annotated[
    bool, typer.Option("--no-serve", help="Of a job that serves a program: leave the weights of that as they are.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Open the weights at the end and write them: .npz, or the model's format."
    ),
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE.png", help="Draw losses and accuracy, anew after each epoch (needs matplotlib)."
    ),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="run.json",
        help="Have the parties keep checkpoints. This file tells of the run: the same command continues it.",
    ),
]
Every = Annotated[int, typer.Option(min=1, metavar="STEPS", help="From one checkpoint to the next.")]
Patience = Annotated[
    float, typer.Option(min=0, metavar="MINUTES", help="With --checkpoints: how long to wait for a party that failed.")
]
Config = Annotated[
    Path | None, typer.Option(metavar="client.toml", help="Parties on other machines, which hold the job's weights.")
]


OF_THE_JOB = {
    "loss", "class_weights", "optimizer", "lr", "schedule", "warmup", "steps_per_epoch", "momentum", "nesterov",
    "weight_decay", "clip", "clip_norm", "batch", "freeze", "freeze_batch_norm", "dropout", "stochastic_rounding",
    "input_range", "scale", "compile_only", "open_weights", "open_losses",
}  # fmt: skip
"""The options that a job is compiled with."""


def train(
    context: typer.Context,
    model: ModelFile,
    data: Samples = None,
    labels: Labels = None,
    data_set: DataSets = None,
    loss: Loss = "cross-entropy",
    class_weights: ClassWeights = None,
    optimizer: OptimizerName = "sgd",
    lr: Rate = 0.01,
    schedule: ScheduleName = None,
    warmup: Warmup = 0,
    steps_per_epoch: StepsPerEpoch = None,
    momentum: Momentum = 0.0,
    nesterov: Nesterov = False,
    weight_decay: Decay = None,
    clip: Clip = None,
    clip_norm: ClipNorm = None,
    batch: Batch = 32,
    epochs: Epochs = 1,
    seed: Seed = 0,
    freeze: Freeze = None,
    freeze_batch_norm: FrozenNorm = False,
    dropout: Dropout = False,
    stochastic_rounding: Stochastic = False,
    input_range: InputRange = None,
    scale: Scale = None,
    compile_only: Compile = None,
    open_weights: OpenWeights = False,
    open_losses: OpenLosses = None,
    serve: Serve = None,
    no_serve: NoServe = False,
    out: Out = None,
    plot: PlotFile = None,
    checkpoints: Checkpoints = None,
    every: Every = 50,
    patience: Patience = 10.0,
    protocol: Protocol = "trio",
    parties: PartyCount = None,
    local: Local = False,
    config: Config = None,
    weights: Weights = None,
    timeout: Timeout = 60.0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Train a model privately: the parties learn neither samples nor weights, and keep the weights as shares."""
    from covey.importers.source import is_model_file
    from covey.model import load
    from covey.plot import check_plot, draw_training
    from covey.training.files import write
    from covey.training.minibatches import check_epochs, check_seed, steps_of_epoch
    from covey.training.patience import again_until
    from covey.training.run_file import RunFile
    from covey.training.shared import SharedData
    from covey.training.trainer import Trainer, check_opening

    if data_set and (data is not None or labels is not None or config is None or is_model_file(model)):
        raise OptionError(
            "--data-set is for a compiled job (.covey) and parties that last (--config), without --data and --labels"
        )
    if not data_set and (data is None or labels is None):
        raise OptionError("give --data x.npy and --labels y.npy: what to train on")
    check_epochs(epochs)
    check_seed(seed)
    _check_out(out, model)
    check_plot(plot)
    if serve is not None and (compile_only is None or not is_model_file(model)):
        raise OptionError(
            "--serve names the file of a program that is compiled with the job: give a model and --compile job.covey. "
            "A job that was compiled so has the parties serve at its end"
        )
    if is_model_file(model):
        from covey.training.job import compile_training
        from covey.training.schedules import named

        if steps_per_epoch is not None and compile_only is None:
            raise OptionError("--steps-per-epoch is for --compile: here --data says how many steps an epoch has")
        counted = schedule is not None or open_losses == "epoch"
        steps = steps_per_epoch or (steps_of_epoch(labels, batch) if counted else 1)
        chosen = _optimizer(optimizer, lr, momentum, nesterov, weight_decay, (clip, clip_norm))
        job = compile_training(
            model,
            loss=loss,
            optimizer=replace(chosen, schedule=named(schedule, steps, warmup)),
            batch=batch,
            calibration=(data, labels),
            input_range=parse_range(input_range),
            class_weights=class_weights.split(",") if class_weights is not None else None,
            freeze=freeze or (),
            batch_norm="frozen" if freeze_batch_norm else "train",
            open_weights=open_weights or out is not None,
            open_losses=_between(open_losses, steps),
            serve=serve is not None,
            dropout=dropout,
            stochastic_rounding=stochastic_rounding,
            scale=scale,
            seed=seed,
        )
        if compile_only is not None:
            written = [*job.compiled.save(compile_only)]
            if serve is not None and job.served is not None:
                written += job.served.save(serve)
            for path in written:
                console.say(str(path))
            return
        loaded = load(job.compiled)
    else:
        _check_options(context, model)
        loaded = load(model, weights=weights)
    if out is not None:
        check_opening(loaded.program)
    if plot is not None and not loaded.program.outputs:
        raise OptionError(
            "this job opens no losses (--open-losses never), so there is nothing to draw: leave out --plot"
        )
    kind = protocol_of(config, None) if config is not None else check_protocol(protocol)

    shown: list[Epoch] = []

    def attempt(opened: Callable[[], None]) -> None:
        with session_of(loaded, kind, config, local, parties, timeout, device, as_json) as session:
            opened()
            trainer = Trainer(session, checkpoints=checkpoints, every=every)
            serving = None if no_serve or config is None else loaded.program.serving
            if serving is not None:
                trainer.check_serving()
            with console.progress(quiet=as_json) as report:
                samples = SharedData(data_set, _tell) if data_set else data
                running = trainer.fit(samples, labels, epochs, seed=seed, progress=report)
                if trainer.left_out:
                    console.note(
                        f"each epoch leaves out {trainer.left_out} samples, which fill no minibatch of {trainer.batch}"
                    )
                if trainer.taken:
                    console.note(f"step {trainer.taken} is the latest checkpoint: the run continues there")
                if trainer.lacking:
                    console.note(
                        f"'{checkpoints}' is an older copy: the losses of {trainer.lacking} steps are not in it"
                    )
                for epoch in running:
                    if not epoch.taken:
                        console.note(f"no step of {epochs} epoch(s) is left")
                    if shown and shown[-1].number == epoch.number:
                        continue  # an attempt before this one showed it
                    _show(epoch, as_json)
                    shown.append(epoch)
                    if plot is not None and epoch.loss is not None:
                        draw_training(shown, f"{loaded.program.name} on {kind}").save(plot)
            if serving is not None:
                version = trainer.serve()
                console.note(
                    f"program {serving['program'][:12]} computes with the trained weights from now on: version "
                    f"{version[:12]}"
                )
            if out is not None:
                write(out, trainer.weights(), model if is_model_file(model) else None)
                console.note(f"the trained weights are in {out}")
                try:
                    trainer.forget()
                except CoveyError as error:
                    # The run is over all the same.
                    console.note(f"checkpoints of this run may be left at the parties: {error}")

    if checkpoints is None:
        attempt(lambda: None)
    else:
        if config is None:
            raise OptionError(
                "--checkpoints are for parties that last, which --config names: parties of --local do not"
            )
        begun = checkpoints.exists()
        again_until(attempt, 60 * patience, lambda: RunFile.kept_in(checkpoints), console.note, begun=begun)


def _between(text: str | None, epoch: int) -> int | None:
    """Steps from one opened loss to the next."""
    if text == "never":
        return None
    if text in (None, "step"):
        return 1
    if text != "epoch" and not (text.isdecimal() and len(text) < 10):
        raise OptionError(f"--open-losses {text[:40]} is unknown: use step, epoch, never or a number of steps")
    return epoch if text == "epoch" else int(text)


def _check_options(context: typer.Context, job: Path) -> None:
    """Refuse options that a compiled job decides."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in OF_THE_JOB and source is not None and source.name != "DEFAULT":
            raise OptionError(
                f"{option.opts[0]} is part of the job '{job}': leave it out, or compile the job again with it"
            )


def _check_out(out: Path | None, model: Path) -> None:
    suffix = model.suffix.lower()
    known = [".npz", ".safetensors", *([suffix] if suffix != ".covey" else [])]
    if out is not None and out.suffix.lower() not in known:
        raise OptionError(f"'{out}' is no file for weights: end its name in {' or '.join(known)}")
    if out is not None and out.is_dir():
        raise OptionError(f"'{out}' is a folder: name the file for the weights")
    if out is not None and not out.parent.is_dir():
        raise OptionError(f"'{out.parent}' is no folder: make it before training, whose weights open once")


def _optimizer(
    name: str, lr: float, momentum: float, nesterov: bool, decay: float | None, clips: tuple[float | None, float | None]
) -> Optimizer:
    from covey.training.optimizers import SGD, Adam, adamw

    if name == "sgd":
        return SGD(lr, decay or 0.0, *clips, momentum, nesterov)
    if momentum or nesterov:
        raise OptionError(f"{name} has moments of its own: leave out --momentum and --nesterov")
    if name == "adam":
        return Adam(lr, decay or 0.0, *clips)
    if name == "adamw":
        return adamw(lr, 0.01 if decay is None else decay, clip=clips[0], clip_norm=clips[1])
    raise OptionError(f"optimizer '{name}' is unknown: use sgd, adam or adamw")


def _tell(attached: DataSet) -> None:
    console.note(f"{attached.rows:,} rows of '{attached.name}' of {attached.owner}, version {attached.version[:12]}")


def _show(epoch: Epoch, as_json: bool) -> None:
    if as_json:
        console.say(json.dumps({**asdict(epoch), "accuracy": epoch.accuracy}))
        return
    steps = f"{epoch.steps} steps"
    if epoch.taken < epoch.steps:
        steps += f" ({epoch.taken} of them now)"
    if epoch.taken:
        seconds, sent = epoch.seconds / epoch.taken, epoch.bytes / epoch.taken
        steps += f", {console.duration(seconds)} and {console.amount(sent)} each"
    loss = [] if epoch.loss is None else [f"loss {epoch.loss:.4f}"]
    right = [] if epoch.accuracy is None else [f"{epoch.accuracy:.1%} right"]
    console.say_parts(f"epoch {epoch.number}", *loss, *right, steps)
