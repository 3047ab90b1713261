"""The Rust core. Long calls release the GIL and hear Ctrl-C; errors are `covey.errors.CoveyError`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_Path = str | os.PathLike[str]
_Progress = Callable[[int, int, str], None]
_Floats = npt.NDArray[np.float64]

__version__: str

KEY_EXCHANGE: str
"""What every link's keys are agreed with."""

SESSION_OPTIONS: list[str]
"""Names of a session's options."""

class Program:
    """A compiled program: valid, and public. `source` is the path or the content of a `.covey` file."""

    def __init__(self, source: _Path | bytes) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def producer(self) -> str: ...
    @property
    def hash(self) -> str:
        """The program hash, 64 hex digits."""
    @property
    def ring(self) -> str:
        """Such as `Z_2^32`."""
    @property
    def ring_bits(self) -> int: ...
    @property
    def inputs(self) -> list[dict[str, Any]]:
        """name, shape (of one sample of the data), batched, scale, bound_bits, proved, low, high.

        Of whole numbers also classes: how many each has, one for all or one each, 0 of plain numbers.
        """
    @property
    def outputs(self) -> list[dict[str, Any]]:
        """As `inputs`, and postprocess: `nothing` or `softmax`."""
    @property
    def carried(self) -> list[dict[str, Any]]:
        """What a session keeps from run to run: as `inputs`, and next, the value that computes it."""
    @property
    def serving(self) -> dict[str, Any] | None:
        """The program that runs make weights for: its hash (`program`), and `weights`, each a value and a parameter."""
    @property
    def nodes(self) -> list[dict[str, str]]:
        """name, op, computes."""
    @property
    def parameters(self) -> int:
        """Numbers in the weights file."""
    @property
    def public_weights(self) -> bool: ...
    @property
    def calibrated(self) -> list[str]:
        """Nodes whose result is bounded by calibration data alone."""
    def dump(self) -> str:
        """A readable listing of everything in the program."""
    def to_bytes(self) -> bytes: ...
    def write(self, path: _Path) -> None: ...

class Weights:
    """The secret parameters of one program. Nothing in it can be read from Python."""

    def __init__(self, source: _Path | bytes, program: Program) -> None: ...
    @property
    def program(self) -> str:
        """Hash of the program they belong to."""
    @property
    def checksum(self) -> str:
        """blake3 of all tensors, as the file has it: equal for equal weights of one program."""
    def write(self, path: _Path) -> None: ...

class Identity:
    """A private key with its certificate. The key itself never reaches Python."""

    @staticmethod
    def generate(name: str, days: int = 365) -> Identity: ...
    @staticmethod
    def load(path: _Path) -> Identity: ...
    def save(self, path: _Path) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def days_left(self) -> int: ...
    @property
    def expires(self) -> int:
        """Seconds since 1970."""

class Clear:
    """A program and its weights in the clear."""

    def __init__(self, program: Program, weights: Weights, wrap: bool = False) -> None: ...
    def run(self, inputs: Mapping[str, _Floats], continues: bool = False) -> tuple[list[dict[str, Any]], str, str]: ...
    def end(self, batch: int = 1) -> list[dict[str, Any]]: ...
    def served(self) -> list[dict[str, Any]]: ...

class Session:
    """A session with the parties that a configuration file names."""

    def __init__(
        self,
        config: _Path,
        program: Program,
        protocol: str = "trio",
        progress: _Progress | None = None,
        *,
        adder: str | None = None,
        latency_us: int | None = None,
        bandwidth: int | None = None,
        tile: int | None = None,
        window: int | None = None,
        key_bits: int | None = None,
    ) -> None: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def absent_dealer(self) -> str | None: ...
    @property
    def stored(self) -> tuple[int, int | None]: ...
    def preprocess(self, batch: int, count: int = 1, progress: _Progress | None = None) -> tuple[str, str]: ...
    def fill_store(self, batch: int, count: int = 1, progress: _Progress | None = None) -> tuple[str, str]: ...
    def infer(
        self,
        inputs: Mapping[str, _Floats],
        phase: str = "joint",
        progress: _Progress | None = None,
        continues: bool = False,
    ) -> tuple[list[dict[str, Any]], str, str]: ...
    def infer_all(
        self,
        inputs: list[dict[str, _Floats]],
        phase: str = "joint",
        progress: _Progress | None = None,
        continues: bool = False,
    ) -> tuple[list[list[dict[str, Any]]], list[float], str, str]: ...
    def end(self, progress: _Progress | None = None) -> tuple[list[dict[str, Any]], str, str]: ...
    def keep(self, job: str) -> int: ...
    def resume(self, job: str) -> tuple[int | None, str | None]: ...
    def forget(self, job: str) -> None: ...
    def check_serving(self) -> None: ...
    def serve_weights(self) -> str: ...
    def share_data(
        self,
        name: str,
        inputs: Mapping[str, npt.NDArray[np.float64]],
        readers: Sequence[str],
        progress: _Progress | None = None,
    ) -> str: ...
    def attach(self, names: Sequence[tuple[str, str | None]]) -> str: ...
    def infer_rows(
        self,
        batch: int,
        rows: Sequence[Sequence[int]],
        progress: _Progress | None = None,
        continues: bool = False,
    ) -> tuple[list[list[dict[str, Any]]], list[float], str, str]: ...
    def close(self) -> None: ...

def check_device(name: str) -> None: ...
def check_threads(count: int) -> None: ...
def check_fingerprint(text: str) -> str: ...
def data_sets(config: _Path, of_party: bool) -> str: ...
def delete_data(config: _Path, program: str, name: str) -> str: ...
def delete_data_in(state: _Path, program: str, name: str) -> str: ...
def delete_in(state: _Path, weights: bool, program: str | None = None) -> str: ...
def delete_store(config: _Path, program: str | None = None) -> str: ...
def delete_weights(config: _Path, program: str) -> str: ...
def diagnose(config: _Path) -> str: ...
def instruction_set() -> str: ...
def links(config: _Path) -> tuple[int, int] | None: ...
def look(state: _Path) -> str: ...
def measure_gains(layers: int, progress: _Progress | None = None) -> str: ...
def measure_gpu(sizes: Sequence[int], bits: int, batch: int, parts: int) -> str: ...
def measure_gpu_generator(bits: int, side: int) -> str: ...
def measure_gpu_relu() -> str: ...
def measure_kernels(every: bool = False, progress: _Progress | None = None) -> str: ...
def own_status(config: _Path) -> str: ...
def own_store(config: _Path) -> str: ...
def own_runs(config: _Path) -> str: ...
def plan(
    program: Program,
    protocol: str = "trio",
    batch: int = 1,
    round_bits: int = 0,
    parties: int | None = None,
    *,
    adder: str | None = None,
    latency_us: int | None = None,
    bandwidth: int | None = None,
    tile: int | None = None,
    window: int | None = None,
    key_bits: int | None = None,
    linear: str | None = None,
) -> str: ...
def serve_party(
    config: _Path,
    ready: Callable[[str], object],
    dealer: bool = False,
    log: str | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> None: ...
def round_trips(config: _Path) -> list[float | None]: ...
def share_weights(
    config: _Path, program: Program, weights: Weights, protocol: str = "trio", progress: _Progress | None = None
) -> str: ...
def state_folder(config: _Path) -> Path: ...
def check_data_set_name(name: str) -> None: ...
def status(config: _Path) -> str: ...
def use_device(name: str = "auto") -> str: ...
