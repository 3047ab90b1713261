"""The parties on this machine: real processes with keys of their own, over mutual TLS on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakSet

from covey.arguments import check_flags, check_options
from covey.errors import CoveyError, OptionError
from covey.interrupts import uninterrupted
from covey.protocols import DEALER, check_linear, device_option, threads_option
from covey.protocols import protocol as find_protocol

if TYPE_CHECKING:
    from covey.clear import ClearSession
    from covey.client import Phase, Progress, Session
    from covey.data import Ranges
    from covey.inputs import Data
    from covey.model import Model, Source
    from covey.result import Result, Work

START_SECONDS = 60.0
"""How long a party may take to start."""

STOP_SECONDS = 5.0
"""How long a party may take to stop before it is made to."""

ATTEMPTS = 5
"""How often ports are chosen anew when another process takes one first."""

IDLE_SECONDS = 300.0
"""How long a session is kept without an inference; the parties end it after ten minutes."""


@contextmanager
def local(
    protocol: str = "trio",
    *,
    parties: int | None = None,
    timeout: float = 10.0,
    network: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    data_owner_computes: bool = False,
    device: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Parties]:
    """Parties on this machine, for as long as the `with` block lasts.

    `trio` starts three processes, `quad` four, each with its own key in a private folder that is removed afterwards;
    `clear` starts none. `parties` is how many compute, where the protocol takes any number; a dealer comes on top.
    `timeout` is how many seconds a silent party is waited for. `network` is one to emulate on every link (`latency_ms`
    one way, `bandwidth_mbit`), for which sessions choose their circuits; `options` are those of a session. With
    `data_owner_computes` this process is the data owner's and the last party, which two-party allows. `device` is what
    the parties compute linear layers on: "cpu", "cuda", "cuda:<number>", or "auto", the default, for a GPU where there
    is one. `threads` is how many each party computes on, by default so many that all together have one for each
    processor. The processes end with this one, however it ends.
    """
    running = Parties(
        protocol,
        parties=parties,
        timeout=timeout,
        network=network,
        options=options,
        data_owner_computes=data_owner_computes,
        device=device,
        threads=threads,
    )
    try:
        try:
            running.start(progress)
            yield running
        finally:
            running.close()
    finally:
        running.close()  # Ctrl-C may have struck before the first had begun; else there is nothing left to do


class Parties:
    """The parties of `local`, a model owner and a data owner, each with a key of its own."""

    def __init__(
        self,
        protocol: str = "trio",
        *,
        parties: int | None = None,
        timeout: float = 10.0,
        network: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        data_owner_computes: bool = False,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        info = find_protocol(protocol)
        check_flags(data_owner_computes=data_owner_computes)
        if network is not None and not isinstance(network, Mapping):
            raise OptionError(f"network is {network!r}: give it by name, such as {{'latency_ms': 20}}")
        options = {} if options is None else options
        check_options(options)
        check_linear(protocol, options.get("linear"), bool(options.get("preprocess_linear")))
        if data_owner_computes and not info.data_owner_can_compute:
            raise OptionError(f"the data owner cannot be a party of {protocol}: its last party's shares are secret")
        self.computing = info.count(parties)
        roles = info.roles(parties)
        self.names = roles[:-1] if data_owner_computes else roles
        self.protocol = protocol
        self.timeout = timeout
        self.network = dict(network or {})
        self.options = dict(options)
        self.device = device_option(device, protocol)
        self.threads = threads_option(threads, protocol) or info.threads(processors(), parties)
        self.folder: Path | None = None
        self.parties: list[Party] = []
        self._shared: dict[str, str] = {}
        """By program, the checksum of the weights that were shared last."""
        self._sessions: WeakSet[Session] = WeakSet()
        self._session: tuple[str, Session] | None = None
        self._used = 0.0
        self._lock = threading.RLock()
        self._process = self._opener = os.getpid()
        """Which process started the parties, and which opened the session: a fork ends neither."""

    def start(self, progress: Progress | None = None) -> None:
        """Make keys and start the parties; returns when all are listening."""
        if not self.names:
            return
        for attempt in range(ATTEMPTS):
            try:
                self._start(progress)
                return
            except CoveyError as error:
                self.close()
                # Between our choice of a port and the party's use of it, another process may take it.
                if "cannot listen" not in str(error) or attempt == ATTEMPTS - 1:
                    raise

    def _start(self, progress: Progress | None) -> None:
        with uninterrupted():
            self.folder = Path(tempfile.mkdtemp(prefix="covey-"))
        self.parties = write_configuration(
            self.folder, self.names, self.timeout, self.network, device=self.device, threads=self.threads
        )
        for party in self.parties:
            with uninterrupted():  # or there would be a process that nobody knows
                party.spawn()
        for index, party in enumerate(self.parties):
            if progress is not None:
                progress(index, len(self.parties), f"starting {counted(self.names)}")
            party.wait_until_ready()

    @property
    def owner_config(self) -> Path:
        """The model owner's configuration file."""
        return self._folder() / "model-owner" / "owner.toml"

    @property
    def client_config(self) -> Path:
        """The data owner's configuration file."""
        return self._folder() / "data-owner" / "client.toml"

    def _folder(self) -> Path:
        if self.folder is None:
            raise CoveyError("the parties are not running: use `with covey.local() as parties`")
        return self.folder

    def run(
        self,
        model: Source,
        x: Data,
        *,
        weights: str | os.PathLike[str] | None = None,
        calibration: Data | None = None,
        input_range: Ranges | None = None,
        phase: Phase = "joint",
        at_once: int | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Inference of a program or an ONNX model on `x` [N, ..]: `result.outputs`, `.integers` and `.profile`.

        At most `at_once` samples are under way at a time, by default as many as are planned to take 4 GB of a party's
        memory; the others follow in further runs.

        The weights are shared when a program is first run, and used again after that. Raises `CoveyError`.
        """
        from covey.inputs import read_inputs
        from covey.model import load

        loaded = load(model, weights=weights, data=x, calibration=calibration, input_range=input_range)
        inputs = read_inputs(x, loaded.program)
        if not self.names:
            from covey.clear import run_clear

            return run_clear(loaded, inputs)
        with self._alone():
            self.share(loaded, progress)
            session = self._open(loaded)
            try:
                return session.infer_split(inputs, at_once=at_once, phase=phase, progress=progress)
            except BaseException:
                self._drop_session()
                raise
            finally:
                self._used = time.monotonic()

    def portions(self, model: Model, samples: int, at_once: int | None = None) -> list[int]:
        """Samples of each run that `run` makes of so many."""
        from covey.portions import portions

        if not self.names:
            return [samples]
        lanes = self.options.get("lanes") or 1
        return portions(model.program, self.protocol, samples, at_once, lanes=lanes, options=self.options)

    def session(self, model: Source, progress: Progress | None = None) -> Session | ClearSession:
        """A session of a model, whose weights are shared where they were not yet; for sequences of runs.

        It is open until it is closed, or the parties stop. Each call opens another one.
        """
        from covey.model import load

        loaded = load(model)
        if not self.names:
            from covey.clear import ClearSession

            return ClearSession(loaded)
        with self._alone():
            self.share(loaded, progress)
            session = self._opened(loaded)
            session.on_serving = self._drop_session
            self._sessions.add(session)
        return session

    def share(self, model: Source, progress: Progress | None = None) -> None:
        """Share the weights of a model as its owner, unless its program was shared with these weights last.

        Trained weights that serve in their place stay. Two models of one architecture may have the same program.
        """
        from covey.model import load

        loaded = load(model)
        program, weights = loaded.program.hash, loaded.weights
        if not self.names:
            return
        with self._alone():
            if program in self._shared and (weights is None or weights.checksum == self._shared[program]):
                return
            if self._process != os.getpid():
                raise CoveyError(
                    f"'{loaded.program.name}' has other weights here than the process that started the parties shared: "
                    f"share them there, before it forks"
                )
            from covey.client import Client

            checksum = loaded.need_weights().checksum
            if self._session is not None and self._session[0] == program:
                # It goes on with the weights that it began with.
                self._drop_session()
            # Which weights the parties have is not known if this ends before its time.
            self._shared.pop(program, None)
            Client(self.owner_config).share_weights(
                loaded.program, loaded.need_weights(), protocol=self.protocol, progress=progress
            )
            self._shared[program] = checksum

    def preprocess(
        self, model: Model, batch: int, count: int = 1, *, stored: bool = False, progress: Progress | None = None
    ) -> Work | None:
        """Do what does not depend on inputs for `count` inferences, which then run with phase `online`.

        `stored` keeps it on the parties' disks, and the inferences run with phase `joint` in any session. Returns what
        that took; `None` where there is nothing to do.
        """
        if not self.names:
            return None
        with self._alone():
            self.share(model, progress)
            session = self._open(model)
            make = session.fill_store if stored else session.preprocess
            return make(batch, count, progress=progress)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread shares weights or runs meanwhile: its weights may be others for the same program."""
        if self._opener != os.getpid():
            # In a fork the session and what the lock says are the parent's.
            self._session, self._lock, self._opener = None, threading.RLock(), os.getpid()
        with self._lock:
            yield

    def _opened(self, model: Model) -> Session:
        from covey.client import Client

        return Client(self.client_config).session(model.program, self.protocol, **self.options)

    def _open(self, model: Model) -> Session:
        """The session of runs that are no sequence; one is open at a time."""
        idle = time.monotonic() - self._used > IDLE_SECONDS
        if self._session is not None and (idle or self._session[0] != model.program.hash):
            self._drop_session()
        self._used = time.monotonic()
        if self._session is None:
            self._session = (model.program.hash, self._opened(model))
        return self._session[1]

    def _drop_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session[1], None
            with suppress(CoveyError):
                session.close()

    def close(self) -> None:
        """Stop the parties and remove their keys."""
        if self._process != os.getpid():
            return
        try:
            self._drop_session()
            for session in list(self._sessions):
                with suppress(CoveyError):
                    session.close()
        finally:
            self._clear_away()

    def _clear_away(self) -> None:
        with uninterrupted():
            for party in self.parties:
                party.hang_up()
            for party in self.parties:
                party.stop()
            self.parties = []
            self._shared.clear()
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None


class Party:
    """One party's process, or the dealer's."""

    def __init__(self, name: str, config: Path, command: str = "party") -> None:
        self.name = name
        self.command = command
        self.config = config
        self.log = config.parent / "party.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()

    @property
    def called(self) -> str:
        """For messages."""
        return "the dealer" if self.name == DEALER else f"party {self.name}"

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    def spawn(self) -> None:
        """Start the process. It ends by itself when this one does: its standard input closes then."""
        self._ready.clear()
        # The child imports the same package as this process, whatever its working folder holds.
        root = str(Path(__file__).resolve().parents[1])
        code = f"import sys; sys.path[0] = {root!r}; from covey.serving import main; main()"
        command = [sys.executable, "-c", code, self.command, str(self.config)]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, stream: IO[bytes]) -> None:
        # Read to the end, so that the party never waits for somebody to read.
        with stream:
            for line in stream:
                if line.startswith(b"ready"):
                    self._ready.set()

    def wait_until_ready(self) -> None:
        """Return when the party is listening. Raises `CoveyError` with its own words when it does not come to that."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.wait(0.01):
            if self._process is None or self._process.poll() is not None:
                raise CoveyError(f"{self.called} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise CoveyError(f"{self.called} is not ready after {START_SECONDS:g} s: {self.last_words()}")

    def last_words(self) -> str:
        """The last line of the party's log."""
        with suppress(OSError):
            lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if line.strip()]
            if lines:
                return lines[-1].removeprefix("error: ")
        return "it left no message"

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._release()

    def hang_up(self) -> None:
        """Tell the process that it is no longer needed."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """End the process, gently if it lets itself be."""
        if self._process is None:
            return
        self.hang_up()
        for end in (lambda process: None, subprocess.Popen.terminate, subprocess.Popen.kill):
            end(self._process)
            try:
                self._process.wait(STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
        self._release()

    def _release(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._process = None


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int | None:
    """Bytes of memory that this machine has, where its system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def write_configuration(
    folder: Path,
    party_names: Sequence[str],
    timeout: float,
    network: Mapping[str, float] | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
) -> list[Party]:
    """Keys and configuration files of the parties, a model owner and a data owner, each in a folder of its own."""
    from covey import _core
    from covey.config import Peer, client_toml, party_toml
    from covey.initial import RIGHTS

    names = [*party_names, "model-owner", "data-owner"]
    fingerprints = {}
    for name in names:
        (folder / name).mkdir(mode=0o700)
        identity = _core.Identity.generate(name, 2)
        identity.save(folder / name / "key.pem")
        fingerprints[name] = identity.fingerprint
    addresses = dict(zip(party_names, free_addresses(len(party_names)), strict=True))
    peers = [
        Peer(name, fingerprints[name], addresses[name], role=DEALER if name == DEALER else None) for name in party_names
    ]
    clients = [
        Peer("model-owner", fingerprints["model-owner"], may=["share-weights"]),
        Peer("data-owner", fingerprints["data-owner"], may=[right for right in RIGHTS if right != "share-weights"]),
    ]
    chosen = {"timeout": timeout, "device": device, "threads": threads}
    common: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    parties = []
    for peer in peers:
        others = [other for other in peers if other is not peer]
        role = {} if peer.role is None else {"role": peer.role}
        text = party_toml(peer.name, addresses[peer.name], "key.pem", "state", others, clients, **common, **role)
        command = peer.role or "party"
        config = folder / peer.name / f"{command}.toml"
        config.write_text(text)
        parties.append(Party(peer.name, config, command))
    for name, file in (("model-owner", "owner.toml"), ("data-owner", "client.toml")):
        (folder / name / file).write_text(client_toml(name, "key.pem", peers, network, **common))
    return parties


def counted(names: Sequence[str]) -> str:
    """How many parties these are, in words."""
    count = len(names) - (DEALER in names)
    return f"{count} {'party' if count == 1 else 'parties'}" + (" and a dealer" if DEALER in names else "")


def free_addresses(count: int) -> Sequence[str]:
    """Loopback addresses whose ports nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()
