"""Operators that Covey has no secure form of, and what to put in the place of each."""

from __future__ import annotations

from covey.errors import UnsupportedError

FLOAT_MODEL = "export the floating-point model: Covey chooses fixed-point numbers itself"
FLAT = "export the model without control flow (layers of Keras with unroll=True), for one size of input"
TENSORFLOW = "tensorflow"
"""The domain of operators that tf2onnx has no form of and keeps."""
PICK = "use Gather or Slice with constant indices where the positions are fixed"
FIXED_SIZE = "use Where, which keeps the size: that of its result would depend on secret data"
CONSTANT = "export the model with its result stored as a constant"
SEQUENCE = "use Concat and Split on tensors in its place"
TRAINING = "export the model for inference, without its loss"
CUT = (
    "end the model before it and compute the rest after the result opens, or begin the model behind it and compute it "
    "before the input is shared"
)
"""The way out where nothing that is supported computes the same or can be trained in its place."""

_TRANSFORMS = tuple(
    f"fft_{kind}{dimensions}"
    for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for dimensions in ("", "2", "n")
)

_WAYS_OUT: dict[str, tuple[str, ...]] = {
    FLOAT_MODEL: (
        "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        "QuantizeLinear",
    ),
    FLAT: ("If", "Loop", "Scan"),
    PICK: ("ReverseSequence", "CenterCropPad", "index", "flip", "roll"),
    "use Where, Pad and Concat with constant masks": ("ScatterND", "TensorScatter"),
    FIXED_SIZE: ("Compress", "NonZero", "Unique"),
    CONSTANT: (
        "BlackmanWindow", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range",
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
    ),
    "compute both ways and choose by torch.where": ("cond",),
    "write its steps as a loop of Python, of a fixed number": ("while_loop", "associative_scan", "map"),
    SEQUENCE: (
        "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
        "SequenceLength", "SequenceMap", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement",
    ),
    TRAINING: ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    "use MatMul with a constant matrix of the transform": ("DFT", "STFT", *_TRANSFORMS),
    "compute with real and imaginary parts as tensors of their own": (
        "polar", "complex", "view_as_complex", "view_as_real",
    ),
    "use Swish and Mul": ("SwiGLU",),
    "use Mul of the parts that Split gives": ("CumProd",),
    "use ConvTranspose or Resize": ("MaxUnpool", "Col2Im"),
    "use Conv, whose positions are fixed": ("DeformConv",),
    "use Resize, whose positions are fixed": ("AffineGrid", "MaxRoiPool", "RoiAlign"),
    "use Cast": ("CastLike", "BitCast"),
    "train the network without it: BatchNormalization in the place of a normalisation, Relu or HardSwish in that of an "
    "activation": ("var",),
    "compile the Keras model or the .keras file, where the function becomes part of the model": (
        "PartitionedCall", "StatefulPartitionedCall",
    ),
}  # fmt: skip


def _key(operator: str) -> str:
    """One spelling of ONNX's and PyTorch's names: `aten.layer_norm` and `LayerNormalization` differ in little else."""
    parts = operator.split(".")
    return parts[1 if len(parts) > 1 else 0].replace("_", "").lower()


_BY_OPERATOR = {_key(name): way_out for way_out, names in _WAYS_OUT.items() for name in names}


def no_secure_form(node: str, operator: str, domain: str = "") -> UnsupportedError:
    """The error of a node whose operator Covey cannot compute securely, with a replacement or another way out."""
    reason = "Covey has no secure form of the operator" + (f" of domain '{domain}'" if domain else "")
    named = domain in ("", TENSORFLOW)
    return UnsupportedError(node, operator, reason, _BY_OPERATOR.get(_key(operator), CUT) if named else CUT)
