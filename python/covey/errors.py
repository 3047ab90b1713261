"""Everything Covey raises on purpose. Each message is one line that names the thing and the way out."""

from __future__ import annotations

import math

__all__ = [
    "CoveyError",
    "DataError",
    "DoesNotFitError",
    "InaccurateError",
    "ModelError",
    "NodeError",
    "OptionError",
    "ParameterError",
    "PartyLostError",
    "UnsupportedError",
]


class CoveyError(Exception):
    """Base of all errors. `str()` is one line for the user, whatever names from files it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else " " for c in message))


class ModelError(CoveyError):
    """The model file as a whole cannot be read or used."""


class OptionError(CoveyError):
    """A compile option has a value Covey does not know."""


class DataError(CoveyError):
    """Calibration or input data that cannot be used: missing, of the wrong shape or dtype, NaN or infinite."""


class PartyLostError(CoveyError):
    """A party's process or connection ended, or it does not answer: it may come back."""


class NodeError(CoveyError):
    """One node of the model is at fault: `node` is its name, `op` its operator."""

    def __init__(self, node: str, op: str, reason: str, way_out: str) -> None:
        super().__init__(f"node '{node}' ({op}): {reason}; {way_out}")
        self.node = node
        self.op = op
        self.reason = reason
        self.way_out = way_out


class UnsupportedError(NodeError):
    """Covey has no secure form of the node."""


class ParameterError(NodeError):
    """A parameter of the node is unusable: NaN, infinite, of the wrong shape or type."""


class InaccurateError(NodeError):
    """The best program found is too far from floating point on the calibration data; most of it arises at the node."""


class DoesNotFitError(NodeError):
    """A value of the node can leave the ring.

    `magnitude` is the largest absolute value found, as a real number; `needed` the bits its integers take, `available`
    the bits the ring offers, and `calibrated` says whether calibration data or interval analysis found it.
    """

    def __init__(
        self,
        node: str,
        op: str,
        *,
        magnitude: float,
        needed: int,
        available: int,
        scale: int,
        calibrated: bool,
        way_out: str = "use a wider ring or a smaller scale",
        reason: str | None = None,
    ) -> None:
        source = "by calibration, with its margin" if calibrated else "by interval analysis"
        shown = f"±{magnitude:.4g}" if math.isfinite(magnitude) else "beyond all bounds"
        super().__init__(
            node,
            op,
            reason
            or f"reaches {shown} ({source}), which takes {needed} bits at {scale} fractional bits where the ring "
            f"leaves {available}",
            way_out,
        )
        self.magnitude = magnitude
        self.needed = needed
        self.available = available
        self.scale = scale
        self.calibrated = calibrated

    def advise(self, way_out: str) -> DoesNotFitError:
        """The same error with another way out."""
        return DoesNotFitError(
            self.node,
            self.op,
            magnitude=self.magnitude,
            needed=self.needed,
            available=self.available,
            scale=self.scale,
            calibrated=self.calibrated,
            way_out=way_out,
            reason=self.reason,
        )
