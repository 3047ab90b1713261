"""Clients of remote parties: a model owner shares weights, a data owner runs inferences and opens the results."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np

from covey import _core
from covey._core import Program, Weights
from covey.arguments import check_number, check_options
from covey.config import protocol_for
from covey.errors import CoveyError, OptionError, PartyLostError
from covey.inputs import Data, batch_of, load_arrays, numbers, read_inputs
from covey.model import Source, load
from covey.portions import portions
from covey.protocols import check_linear
from covey.result import Opened, PartyUsage, Profile, Result, Results, Work

Progress = Callable[[int, int, str], None]
"""How far long work is: done, total and what is being done."""

Phase = Literal["joint", "online"]


@dataclass(frozen=True)
class Shared:
    """Weights that the parties hold in shares: the program's hash, and the bytes each party got."""

    program_hash: str
    bytes: list[int]


class Client:
    """A client as `owner.toml` or `client.toml` describes it. Nothing is sent before a method is called."""

    def __init__(self, config: str | os.PathLike[str]) -> None:
        self.config = os.fspath(config)

    def share_weights(
        self,
        model: Source,
        weights: str | os.PathLike[str] | Weights | None = None,
        *,
        protocol: str | None = None,
        progress: Progress | None = None,
    ) -> Shared:
        """Share a model's weights with the parties of `protocol`, who keep them in shares until they are shared anew.

        `protocol` is by default what the file says, or else what the parties that it lists are for.

        Weights leave this process only in shares. Raises `CoveyError` before anything is sent if they are not the
        program's, and otherwise naming the party that failed.
        """
        loaded = load(model, weights=weights)
        kind = protocol_for(self.config, protocol)
        sent = json.loads(_core.share_weights(self.config, loaded.program, loaded.need_weights(), kind, progress))
        return Shared(sent["program"], sent["bytes"])

    def session(
        self,
        model: Source,
        protocol: str | None = None,
        *,
        samples: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Session:
        """Open a session with the parties, for many inferences; `protocol` as for `share_weights`.

        Where a party is full, the session waits for its place; `progress` is told which it is, whenever that changes.
        Options: `adder` ("auto", "fewest-bytes", "balanced", "fewest-rounds", "digits", "log-depth" or "ripple"), the
        network it chooses for by `latency_us` one way and `bandwidth` in bits per second, `tile` and `window`;
        `linear` ("ot", "lattice" or "auto") is how two parties multiply by weights; with `preprocess_linear=True`
        `preprocess` multiplies random masks, and layers by lattice encryption then send one ring element an input;
        `key_bits` makes comparisons approximate: they read that many bits from their bound down. `lanes` is how many
        inferences of `infer_all` are under way at a time, and with `roles="turned"` the parties take all roles in
        turn, lane by lane; `inter_linear=False` and `inner_layer=False` switch pipelines
        off, to see what they bring.

        The network is by default what `[links]` in the configuration file says. Where it is known, lanes and roles that
        are not given are chosen for it and for requests of `samples`.
        """
        program = load(model).program
        kind = protocol_for(self.config, protocol)
        options = {**self.links(), **{name: value for name, value in options.items() if value is not None}}
        check_options(options)
        check_linear(kind, options.get("linear"), bool(options.get("preprocess_linear")))

        def opened(given: dict[str, Any]) -> Session:
            return Session(program, _core.Session(self.config, program, kind, progress, **given), kind, given)

        if chosen := self._lanes(program, kind, samples, options):
            try:
                return opened({**options, **chosen})
            except PartyLostError:
                raise
            except CoveyError:
                # A party may have no room for weights in several forms. What else is refused is refused again.
                pass
        return opened(options)

    def links(self) -> dict[str, int]:
        """What `[links]` in the configuration file says, as options of a session."""
        links = _core.links(self.config)
        return {} if links is None else {"latency_us": links[0], "bandwidth": links[1]}

    def _lanes(
        self, program: Program, protocol: str, samples: int | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Lanes and roles for requests of so many samples, where the options leave them open and it pays."""
        from covey.lanes import LOCAL_LATENCY_US, chosen

        lanes = chosen(program, protocol, samples, options)
        if not lanes:
            return {}
        try:
            stored = self.stored_runs().batches
        except CoveyError:  # the session says which party is silent
            return {}
        # Stored runs are dealt for the roles as they are listed, and for one network.
        mine = [runs for runs in stored if runs["program"] == program.hash and runs["protocol"] == protocol]
        network = {"latency_us": options.get("latency_us", LOCAL_LATENCY_US), "bandwidth": options["bandwidth"]}
        return {} if any(runs["options"]["profile"] == network for runs in mine) else lanes

    def infer(
        self,
        model: Source,
        x: Data,
        *,
        protocol: str | None = None,
        at_once: int | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> Result:
        """Private inference on `x` [N, ..]. The result opens here and nowhere else; `at_once` is `infer_split`'s."""
        loaded = load(model, data=x)
        samples = batch_of(read_inputs(x, loaded.program), loaded.program)
        samples = samples if at_once is None else min(samples, at_once)
        with self.session(loaded.program, protocol, samples=samples, progress=progress, **options) as session:
            if session.absent_dealer is not None:
                warnings.warn(session.absent_dealer, stacklevel=2)
            return session.infer_split(x, at_once=at_once, progress=progress)

    def stored(self) -> Stored:
        """The parties' offline material for this client. Raises `CoveyError` naming a party that is silent."""
        sides = []
        for answer in self.status():
            if "error" in answer:
                raise CoveyError(str(answer["error"]))
            sides.append(answer["status"]["stores"])
        if len(sides) == 1:  # this machine is the other party
            sides.append(json.loads(_core.own_store(self.config)))
        if len(sides) != 2:
            raise CoveyError(
                f"{len(sides)} parties keep no correlated OTs, which only two-party uses: ask for the runs that they "
                f"have stored (stored_runs)"
            )
        held = [
            {name: left for store in stores if store["role"] == role for name, left in store["batches"]}
            for role, stores in enumerate(sides)
        ]
        common = [name for name in held[0] if name in held[1]]
        pairs = [[min(mine, theirs) for mine, theirs in zip(held[0][n], held[1][n], strict=True)] for n in common]
        return Stored([(first, second) for first, second in pairs])

    def stored_runs(self) -> StoredRuns:
        """The stored runs of the parties, and their dealer if it answers: they serve sessions without it, too.

        Raises `CoveyError` naming a party that is silent.
        """
        held: list[dict[str, dict[str, Any]]] = []
        for answer in self.status():
            if "error" in answer and answer["dealer"]:
                continue
            if "error" in answer:
                raise CoveyError(str(answer["error"]))
            held.append({runs["name"]: runs for runs in answer["status"]["runs"]})
        if len(held) == 1:  # this machine is the other party
            held.append({runs["name"]: runs for runs in json.loads(_core.own_runs(self.config))})
        common = [name for name in held[0] if all(name in runs for runs in held)]
        return StoredRuns([{**held[0][name], "left": min(runs[name]["left"] for runs in held)} for name in common])

    def delete_weights(self, model: Source) -> list[dict[str, Any]]:
        """Have the parties delete the weights of a program that this client shared, and the offline material for them.

        Sessions under way go on with them. What is not there is no error, so that this can be repeated. Returns for
        each party its `name`, and whether there were `weights` and how many stored `runs`, or its `error`.
        """
        deleted: list[dict[str, Any]] = json.loads(_core.delete_weights(self.config, load(model).program.hash))
        return deleted

    def delete_store(self, model: Source | None = None) -> list[dict[str, Any]]:
        """Have the parties delete their offline material: all of it, or the stored runs of one program.

        Returns for each party its `name` and how many `runs` and `ots` were left, how many batches were `damaged`, or
        its `error`.
        """
        program = None if model is None else load(model).program.hash
        deleted: list[dict[str, Any]] = json.loads(_core.delete_store(self.config, program))
        return deleted

    def data_sets(self) -> list[dict[str, Any]]:
        """The data sets that this client shared or may train on: what each party keeps, with its `party`'s name.

        Raises `CoveyError` naming a party that is silent. Warns of files that a party cannot read.
        """
        kept = []
        for answer in json.loads(_core.data_sets(self.config, False)):
            if "error" in answer:
                raise CoveyError(str(answer["error"]))
            for problem in answer["problems"]:
                warnings.warn(f"{answer['name']}: {problem}", stacklevel=2)
            kept += [{**entry, "party": answer["name"]} for entry in answer["data_sets"]]
        return kept

    def delete_data(self, model: Source, name: str) -> list[dict[str, Any]]:
        """Have the parties delete a data set of a program that this client shared. Sessions that use it end.

        Returns for each party its `name` and how many `data_sets` there were, or its `error`.
        """
        deleted: list[dict[str, Any]] = json.loads(_core.delete_data(self.config, load(model).program.hash, name))
        return deleted

    def diagnose(self) -> dict[str, Any]:
        """Whether the parties would open this client's sessions, found out by the checks that they make then.

        `parties` is what `status` returns; `findings` about them, and `programs` with a `verdict` (served, refused,
        unknown) and `findings` each, say `what` is wrong at which `party`.
        """
        diagnosis: dict[str, Any] = json.loads(_core.diagnose(self.config))
        return diagnosis

    def status(self) -> list[dict[str, Any]]:
        """What each party says about itself, in role order: a dict of its answers, or of `error` alone."""
        answers: list[dict[str, Any]] = json.loads(_core.status(self.config))
        return answers


@dataclass(frozen=True)
class Stored:
    """Stored correlated OTs of two parties: what is left of each batch, by role of who holds the correlation."""

    batches: list[tuple[int, int]]

    def inferences(
        self,
        program: Program,
        batch: int = 1,
        *,
        protocol: str = "two-party",
        round_bits: int = 0,
        links: Mapping[str, int] | None = None,
    ) -> int:
        """For how many inferences of `batch` samples of a program they last, with circuits for these `links`."""
        network: dict[str, Any] = dict(links or {})
        plan = json.loads(_core.plan(program, protocol, batch, round_bits, **network))
        need = [count for count in plan["correlated_ots"] if count]
        if not need:
            return 0
        return sum(
            min(left // count for left, count in zip(ots, plan["correlated_ots"], strict=True) if count)
            for ots in self.batches
        )


@dataclass(frozen=True)
class StoredRuns:
    """Runs that all roles have the material of, a batch for each `fill_store`, as the parties describe them."""

    batches: list[dict[str, Any]]

    def of(
        self,
        program: Program,
        batch: int = 1,
        *,
        protocol: str = "beaver",
        round_bits: int = 0,
        links: Mapping[str, int] | None = None,
    ) -> list[int]:
        """How many inferences of `batch` samples of a program are left of each batch that is for such.

        Runs are stored for one network: with `links`, those for that one are counted.
        """
        mine = _are_for(program, batch, protocol, round_bits, links)
        return [runs["left"] for runs in self.batches if mine(runs)]

    def others(
        self,
        program: Program,
        batch: int = 1,
        *,
        protocol: str = "beaver",
        round_bits: int = 0,
        links: Mapping[str, int] | None = None,
    ) -> list[dict[str, Any]]:
        """The batches for other inferences: of other programs, samples, protocols or rounding, or other `links`."""
        mine = _are_for(program, batch, protocol, round_bits, links)
        return [runs for runs in self.batches if not mine(runs)]


def _are_for(
    program: Program, batch: int, protocol: str, round_bits: int, links: Mapping[str, int] | None
) -> Callable[[dict[str, Any]], bool]:
    wanted = {"program": program.hash, "protocol": protocol, "batch": batch, "round_bits": round_bits}

    def mine(runs: dict[str, Any]) -> bool:
        return all(runs[key] == value for key, value in wanted.items()) and (
            not links or runs["options"]["profile"] == links
        )

    return mine


@dataclass(frozen=True)
class Resumption:
    """What parties found of a job: the `runs` until their latest checkpoint in common, or none.

    Where some have checkpoints, and all have none in common, `lacking` is a party that lacks what another has.
    """

    runs: int | None
    lacking: str | None = None


@dataclass(frozen=True)
class DataSet:
    """Rows that all parties keep. `version` tells those of one sharing from any other, `owner` is its owner's key."""

    name: str
    owner: str
    version: str
    rows: int


class Session:
    """A running session with the parties; a context manager. Weights are prepared once, for all its inferences."""

    def __init__(
        self, program: Program, session: _core.Session, protocol: str, options: Mapping[str, Any] | None = None
    ) -> None:
        self.program = program
        self.protocol = protocol
        self._session = session
        self._options = dict(options or {})
        self.lanes: int = self._options.get("lanes") or 1
        """How many inferences are under way at a time, at most."""
        self.sequence = 0
        """The number of the sequence that the latest run belongs to. A run that `continues` none begins the next."""
        self.on_serving: Callable[[], None] = lambda: None
        """Called where what was trained begins to serve: sessions of that program that are open have other weights."""

    @property
    def absent_dealer(self) -> str | None:
        """Where the dealer cannot be reached and the session goes on with stored runs: one line that says so."""
        return self._session.absent_dealer

    def preprocess(self, batch: int, count: int = 1, *, progress: Progress | None = None) -> Work:
        """Preprocess `count` inferences of `batch` samples."""
        check_number("batch", batch)
        check_number("count", count)
        start = time.perf_counter()
        profile, parties = self._session.preprocess(batch, count, progress)
        return Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))

    def infer(
        self, x: Data, *, phase: Phase = "joint", continues: bool = False, progress: Progress | None = None
    ) -> Result:
        """One inference on `x` [N, ..]; phase `online` uses what was preprocessed.

        If it `continues`, values that the program carries are what the session's run before left, otherwise 0.
        """
        inputs = read_inputs(x, self.program)
        batch_of(inputs, self.program)
        self.sequence += not continues
        start = time.perf_counter()
        outputs, profile, parties = self._session.infer(inputs, phase, progress, continues)
        work = Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))
        return Result.of(self.program, outputs, work.profile, work.parties)

    def infer_all(
        self,
        inputs: Sequence[Data],
        *,
        phase: Phase = "joint",
        continues: bool = False,
        progress: Progress | None = None,
    ) -> Results:
        """One inference on each of `inputs`, all of as many samples, several at a time if the session has lanes.

        Of a program that carries values they are one sequence, which `continues` that of the runs before or is new.
        """
        read = [read_inputs(x, self.program) for x in inputs]
        for one in read:
            batch_of(one, self.program)
        self.sequence += not continues
        start = time.perf_counter()
        opened, latencies, profile, parties = self._session.infer_all(read, phase, progress, continues)
        work = Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))
        return Results([Result.of(self.program, outputs) for outputs in opened], latencies, work)

    def infer_split(
        self,
        x: Data,
        parts: int | None = None,
        *,
        at_once: int | None = None,
        phase: Phase = "joint",
        progress: Progress | None = None,
    ) -> Result:
        """One result from inferences on `parts` mini-batches of `x` [N, ..], by default one a lane.

        At most `at_once` samples are under way at a time, by default as many as are planned to take 4 GB of a party's
        memory; the others follow in further runs. What was preprocessed (phase `online`) is for all samples, as many
        runs as `parts`.
        """
        inputs = read_inputs(x, self.program)
        samples = batch_of(inputs, self.program)
        parts = self.lanes if parts is None else parts
        check_number("parts", parts, 1)
        if phase != "joint":
            if at_once is not None and at_once < samples:
                raise OptionError("an inference that was preprocessed takes all its samples at once")
            return self._side_by_side(inputs, parts, phase, progress)
        sizes = portions(self.program, self.protocol, samples, at_once, lanes=parts, options=self._options)
        if len(sizes) == 1:
            return self._side_by_side(inputs, min(parts, samples), phase, progress)
        done: list[Result] = []
        start = 0
        for size in sizes:
            part = rows_of(inputs, self.program, start, start + size)
            done.append(self._side_by_side(part, min(parts, size), phase, _one_of(progress, len(done), len(sizes))))
            start += size
        return Result.one_after_the_other(done)

    def _side_by_side(self, x: Data, parts: int, phase: Phase, progress: Progress | None) -> Result:
        if parts == 1:
            return self.infer(x, phase=phase, progress=progress)
        done = self.infer_all(mini_batches(x, self.program, parts), phase=phase, progress=progress)
        return Result.joined(done)

    def fill_store(self, batch: int = 1, count: int = 1, *, progress: Progress | None = None) -> Work:
        """Have the parties store the correlated randomness of `count` inferences of `batch` samples.

        They keep it on disk: correlated OTs (two-party) or what is dealt for runs (trio, quad, beaver). Later sessions,
        and this one, take what they need from there, and make the rest.
        """
        check_number("batch", batch)
        check_number("count", count)
        start = time.perf_counter()
        profile, parties = self._session.fill_store(batch, count, progress)
        return Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))

    def end(self, *, progress: Progress | None = None) -> Opened:
        """End the sequence of the runs before: what the program opens then, to this client alone."""
        start = time.perf_counter()
        opened, profile, parties = self._session.end(progress)
        work = Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))
        return Opened.of(opened, work)

    def keep(self, job: str) -> int:
        """Have the parties write what the runs before carry to their disks, as a checkpoint of this client's `job`.

        `job` is 32 hexadecimal digits of the client's choice. Of each job the parties keep the last two checkpoints, of
        a client and program the last four jobs. Returns how many runs the sequence had.
        """
        return self._session.keep(job)

    def resume(self, job: str) -> Resumption:
        """Make the next run that `continues` do so from the latest checkpoint of `job` that all parties have."""
        self.sequence += 1  # the next run continues another than the latest one's
        return Resumption(*self._session.resume(job))

    def forget(self, job: str) -> None:
        """Have the parties erase the checkpoints of `job`."""
        self._session.forget(job)

    def check_serving(self) -> None:
        """That the parties would let `serve_weights` be done; the error says why not, and the session goes on."""
        self._session.check_serving()

    def serve_weights(self) -> str:
        """Have the parties keep what the runs before made as the weights of the program that this one serves.

        They stay in shares. Sessions of that program that begin later compute with them. One client must have shared
        the weights of both, and the parties must let this one `serve-weights`. Returns the name of the new version.
        """
        version = self._session.serve_weights()
        self.on_serving()
        return version

    def share_data(
        self, name: str, data: Data, *, allow: Sequence[str] = (), progress: Progress | None = None
    ) -> DataSet:
        """Share rows of the program's inputs as a data set, which the parties keep for runs of later sessions.

        `data` has arrays [N, ..] by input name: rows are samples or, of a training job, those of its minibatches
        (`covey.training.shared.rows_of`). This client may use the data set, and those whose keys `allow` names. It
        takes the place of this client's former one of the name. Raises `CoveyError` before anything is sent for rows
        that do not fit, and where this client may not share data.
        """
        arrays = load_arrays(data, [entry["name"] for entry in self.program.inputs], "shared")
        if "/" in name:
            raise OptionError(f"a data set cannot be called '{name}': '/' stands between an owner's key and a name")
        rows = {key: numbers(array, key) for key, array in arrays.items()}
        return DataSet(**json.loads(self._session.share_data(name, rows, list(allow), progress)))

    def attach(self, names: Sequence[str]) -> list[DataSet]:
        """Number the rows of these data sets through, from 0, so that `infer_rows` can name them.

        A data set is its name or, where several owners have one of the name, KEY/NAME with its owner's key. Raises
        `CoveyError` for one that a party does not keep for this client: none is attached then, and the session goes on.
        """
        parts = [name.rpartition("/") for name in names]
        wanted = [(name, key or None) for key, _, name in parts]
        return [DataSet(**entry) for entry in json.loads(self._session.attach(wanted))]

    def infer_rows(
        self,
        rows: Sequence[Sequence[int]],
        *,
        samples: int = 1,
        continues: bool = False,
        progress: Progress | None = None,
    ) -> Results:
        """A run on each list of attached rows, as `infer_all` on inputs; a run has so many `samples`."""
        check_number("samples", samples)
        for number in (number for run in rows for number in run):
            check_number("a row", number)
        self.sequence += not continues
        start = time.perf_counter()
        opened, latencies, profile, parties = self._session.infer_rows(samples, rows, progress, continues)
        work = Work(Profile.of(profile, time.perf_counter() - start), PartyUsage.all_of(parties))
        return Results([Result.of(self.program, outputs) for outputs in opened], latencies, work)

    def close(self) -> None:
        """End the session. The parties keep the weights."""
        self._session.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def mini_batches(x: Data, program: Program, parts: int) -> list[Data]:
    """The samples of `x` in so many inputs of one size. Raises `OptionError`."""
    inputs = read_inputs(x, program)
    samples = batch_of(inputs, program)
    if samples % parts:
        raise OptionError(f"{samples} samples do not go into {parts} lanes evenly: give a multiple, or other --lanes")
    size = samples // parts
    return [rows_of(inputs, program, part * size, (part + 1) * size) for part in range(parts)]


def rows_of(inputs: dict[str, np.ndarray], program: Program, start: int, end: int) -> dict[str, np.ndarray]:
    """Samples `start` to `end` of what `read_inputs` gives."""
    batched = {entry["name"] for entry in program.inputs if entry["batched"]}
    return {name: array[start:end] if name in batched else array for name, array in inputs.items()}


def _one_of(progress: Progress | None, index: int, count: int) -> Progress | None:
    """Progress of one of several runs, as that of all."""
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(index * total + done, count * total, what)
