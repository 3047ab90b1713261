from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Postprocess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOTHING: _ClassVar[Postprocess]
    SOFTMAX: _ClassVar[Postprocess]

class Rounding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXACT: _ClassVar[Rounding]
    ULP: _ClassVar[Rounding]
    PROBABILISTIC: _ClassVar[Rounding]
NOTHING: Postprocess
SOFTMAX: Postprocess
EXACT: Rounding
ULP: Rounding
PROBABILISTIC: Rounding

class Program(_message.Message):
    __slots__ = ("format_version", "name", "producer", "ring", "values", "nodes", "inputs", "outputs", "postprocess", "certificate", "carried", "serving")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    RING_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    POSTPROCESS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    name: str
    producer: str
    ring: Ring
    values: _containers.RepeatedCompositeFieldContainer[Value]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    inputs: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    postprocess: _containers.RepeatedScalarFieldContainer[Postprocess]
    certificate: Certificate
    carried: _containers.RepeatedCompositeFieldContainer[Carried]
    serving: Serving
    def __init__(self, format_version: _Optional[int] = ..., name: _Optional[str] = ..., producer: _Optional[str] = ..., ring: _Optional[_Union[Ring, _Mapping]] = ..., values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., inputs: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., postprocess: _Optional[_Iterable[_Union[Postprocess, str]]] = ..., certificate: _Optional[_Union[Certificate, _Mapping]] = ..., carried: _Optional[_Iterable[_Union[Carried, _Mapping]]] = ..., serving: _Optional[_Union[Serving, _Mapping]] = ...) -> None: ...

class Carried(_message.Message):
    __slots__ = ("value", "next", "opens")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    value: int
    next: int
    opens: int
    def __init__(self, value: _Optional[int] = ..., next: _Optional[int] = ..., opens: _Optional[int] = ...) -> None: ...

class Serving(_message.Message):
    __slots__ = ("program", "weights")
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    program: bytes
    weights: _containers.RepeatedCompositeFieldContainer[Served]
    def __init__(self, program: _Optional[bytes] = ..., weights: _Optional[_Iterable[_Union[Served, _Mapping]]] = ...) -> None: ...

class Served(_message.Message):
    __slots__ = ("value", "parameter")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    value: int
    parameter: str
    def __init__(self, value: _Optional[int] = ..., parameter: _Optional[str] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("data", "digest", "samples", "labelled", "float_correct", "fixed_correct", "tolerance", "relative_error")
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LABELLED_FIELD_NUMBER: _ClassVar[int]
    FLOAT_CORRECT_FIELD_NUMBER: _ClassVar[int]
    FIXED_CORRECT_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_ERROR_FIELD_NUMBER: _ClassVar[int]
    data: str
    digest: bytes
    samples: int
    labelled: bool
    float_correct: int
    fixed_correct: int
    tolerance: float
    relative_error: float
    def __init__(self, data: _Optional[str] = ..., digest: _Optional[bytes] = ..., samples: _Optional[int] = ..., labelled: bool = ..., float_correct: _Optional[int] = ..., fixed_correct: _Optional[int] = ..., tolerance: _Optional[float] = ..., relative_error: _Optional[float] = ...) -> None: ...

class Ring(_message.Message):
    __slots__ = ("pow2", "odd")
    POW2_FIELD_NUMBER: _ClassVar[int]
    ODD_FIELD_NUMBER: _ClassVar[int]
    pow2: int
    odd: int
    def __init__(self, pow2: _Optional[int] = ..., odd: _Optional[int] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("name", "shape", "batched", "scale", "kind", "visibility", "bound", "range", "constant", "whole", "bits")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INTERMEDIATE: _ClassVar[Value.Kind]
        INPUT: _ClassVar[Value.Kind]
        CONSTANT: _ClassVar[Value.Kind]
        PARAMETER: _ClassVar[Value.Kind]
        STATE: _ClassVar[Value.Kind]
        CARRIED: _ClassVar[Value.Kind]
    INTERMEDIATE: Value.Kind
    INPUT: Value.Kind
    CONSTANT: Value.Kind
    PARAMETER: Value.Kind
    STATE: Value.Kind
    CARRIED: Value.Kind
    class Visibility(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SECRET: _ClassVar[Value.Visibility]
        PUBLIC: _ClassVar[Value.Visibility]
    SECRET: Value.Visibility
    PUBLIC: Value.Visibility
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    BATCHED_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    batched: bool
    scale: int
    kind: Value.Kind
    visibility: Value.Visibility
    bound: Bound
    range: Range
    constant: _containers.RepeatedScalarFieldContainer[int]
    whole: WholeNumbers
    bits: bool
    def __init__(self, name: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., batched: bool = ..., scale: _Optional[int] = ..., kind: _Optional[_Union[Value.Kind, str]] = ..., visibility: _Optional[_Union[Value.Visibility, str]] = ..., bound: _Optional[_Union[Bound, _Mapping]] = ..., range: _Optional[_Union[Range, _Mapping]] = ..., constant: _Optional[_Iterable[int]] = ..., whole: _Optional[_Union[WholeNumbers, _Mapping]] = ..., bits: bool = ...) -> None: ...

class WholeNumbers(_message.Message):
    __slots__ = ("shape", "classes")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    classes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., classes: _Optional[_Iterable[int]] = ...) -> None: ...

class Bound(_message.Message):
    __slots__ = ("bits", "source")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROVED: _ClassVar[Bound.Source]
        CALIBRATED: _ClassVar[Bound.Source]
    PROVED: Bound.Source
    CALIBRATED: Bound.Source
    BITS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    bits: int
    source: Bound.Source
    def __init__(self, bits: _Optional[int] = ..., source: _Optional[_Union[Bound.Source, str]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "source_op", "inputs", "outputs", "conv2d", "dense", "truncate", "mul_shift", "div_exact", "add", "sub", "mul", "shift_left", "relu", "clip", "max_pool", "sum_pool", "reshape", "transpose", "concat", "pad", "arg_max", "matmul", "gather", "less_than_zero", "is_negative", "bit_to_integer", "select", "table", "scheduled", "dropout", "dither")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_OP_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    CONV2D_FIELD_NUMBER: _ClassVar[int]
    DENSE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    MUL_SHIFT_FIELD_NUMBER: _ClassVar[int]
    DIV_EXACT_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    SUB_FIELD_NUMBER: _ClassVar[int]
    MUL_FIELD_NUMBER: _ClassVar[int]
    SHIFT_LEFT_FIELD_NUMBER: _ClassVar[int]
    RELU_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    MAX_POOL_FIELD_NUMBER: _ClassVar[int]
    SUM_POOL_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    CONCAT_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    ARG_MAX_FIELD_NUMBER: _ClassVar[int]
    MATMUL_FIELD_NUMBER: _ClassVar[int]
    GATHER_FIELD_NUMBER: _ClassVar[int]
    LESS_THAN_ZERO_FIELD_NUMBER: _ClassVar[int]
    IS_NEGATIVE_FIELD_NUMBER: _ClassVar[int]
    AND_FIELD_NUMBER: _ClassVar[int]
    OR_FIELD_NUMBER: _ClassVar[int]
    NOT_FIELD_NUMBER: _ClassVar[int]
    BIT_TO_INTEGER_FIELD_NUMBER: _ClassVar[int]
    SELECT_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_FIELD_NUMBER: _ClassVar[int]
    DITHER_FIELD_NUMBER: _ClassVar[int]
    name: str
    source_op: str
    inputs: _containers.RepeatedScalarFieldContainer[int]
    outputs: _containers.RepeatedScalarFieldContainer[int]
    conv2d: Conv2d
    dense: Dense
    truncate: Truncate
    mul_shift: MulShift
    div_exact: DivExact
    add: Add
    sub: Sub
    mul: Mul
    shift_left: ShiftLeft
    relu: Relu
    clip: Clip
    max_pool: MaxPool
    sum_pool: SumPool
    reshape: Reshape
    transpose: Transpose
    concat: Concat
    pad: Pad
    arg_max: ArgMax
    matmul: Matmul
    gather: Gather
    less_than_zero: LessThanZero
    is_negative: IsNegative
    bit_to_integer: BitToInteger
    select: Select
    table: Table
    scheduled: Scheduled
    dropout: Dropout
    dither: Dither
    def __init__(self, name: _Optional[str] = ..., source_op: _Optional[str] = ..., inputs: _Optional[_Iterable[int]] = ..., outputs: _Optional[_Iterable[int]] = ..., conv2d: _Optional[_Union[Conv2d, _Mapping]] = ..., dense: _Optional[_Union[Dense, _Mapping]] = ..., truncate: _Optional[_Union[Truncate, _Mapping]] = ..., mul_shift: _Optional[_Union[MulShift, _Mapping]] = ..., div_exact: _Optional[_Union[DivExact, _Mapping]] = ..., add: _Optional[_Union[Add, _Mapping]] = ..., sub: _Optional[_Union[Sub, _Mapping]] = ..., mul: _Optional[_Union[Mul, _Mapping]] = ..., shift_left: _Optional[_Union[ShiftLeft, _Mapping]] = ..., relu: _Optional[_Union[Relu, _Mapping]] = ..., clip: _Optional[_Union[Clip, _Mapping]] = ..., max_pool: _Optional[_Union[MaxPool, _Mapping]] = ..., sum_pool: _Optional[_Union[SumPool, _Mapping]] = ..., reshape: _Optional[_Union[Reshape, _Mapping]] = ..., transpose: _Optional[_Union[Transpose, _Mapping]] = ..., concat: _Optional[_Union[Concat, _Mapping]] = ..., pad: _Optional[_Union[Pad, _Mapping]] = ..., arg_max: _Optional[_Union[ArgMax, _Mapping]] = ..., matmul: _Optional[_Union[Matmul, _Mapping]] = ..., gather: _Optional[_Union[Gather, _Mapping]] = ..., less_than_zero: _Optional[_Union[LessThanZero, _Mapping]] = ..., is_negative: _Optional[_Union[IsNegative, _Mapping]] = ..., bit_to_integer: _Optional[_Union[BitToInteger, _Mapping]] = ..., select: _Optional[_Union[Select, _Mapping]] = ..., table: _Optional[_Union[Table, _Mapping]] = ..., scheduled: _Optional[_Union[Scheduled, _Mapping]] = ..., dropout: _Optional[_Union[Dropout, _Mapping]] = ..., dither: _Optional[_Union[Dither, _Mapping]] = ..., **kwargs) -> None: ...

class Window(_message.Message):
    __slots__ = ("kernel", "strides", "pads", "dilations")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    PADS_FIELD_NUMBER: _ClassVar[int]
    DILATIONS_FIELD_NUMBER: _ClassVar[int]
    kernel: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    pads: _containers.RepeatedScalarFieldContainer[int]
    dilations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kernel: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., pads: _Optional[_Iterable[int]] = ..., dilations: _Optional[_Iterable[int]] = ...) -> None: ...

class Conv2d(_message.Message):
    __slots__ = ("window", "groups")
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    window: Window
    groups: int
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ..., groups: _Optional[int] = ...) -> None: ...

class Dense(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Truncate(_message.Message):
    __slots__ = ("bits", "rounding")
    BITS_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    bits: int
    rounding: Rounding
    def __init__(self, bits: _Optional[int] = ..., rounding: _Optional[_Union[Rounding, str]] = ...) -> None: ...

class MulShift(_message.Message):
    __slots__ = ("multipliers", "shift", "rounding")
    MULTIPLIERS_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    ROUNDING_FIELD_NUMBER: _ClassVar[int]
    multipliers: _containers.RepeatedScalarFieldContainer[int]
    shift: int
    rounding: Rounding
    def __init__(self, multipliers: _Optional[_Iterable[int]] = ..., shift: _Optional[int] = ..., rounding: _Optional[_Union[Rounding, str]] = ...) -> None: ...

class DivExact(_message.Message):
    __slots__ = ("divisor",)
    DIVISOR_FIELD_NUMBER: _ClassVar[int]
    divisor: int
    def __init__(self, divisor: _Optional[int] = ...) -> None: ...

class Add(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sub(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Mul(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShiftLeft(_message.Message):
    __slots__ = ("bits",)
    BITS_FIELD_NUMBER: _ClassVar[int]
    bits: int
    def __init__(self, bits: _Optional[int] = ...) -> None: ...

class Relu(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Clip(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: int
    high: int
    def __init__(self, low: _Optional[int] = ..., high: _Optional[int] = ...) -> None: ...

class MaxPool(_message.Message):
    __slots__ = ("window",)
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    window: Window
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ...) -> None: ...

class SumPool(_message.Message):
    __slots__ = ("window",)
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    window: Window
    def __init__(self, window: _Optional[_Union[Window, _Mapping]] = ...) -> None: ...

class Reshape(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Transpose(_message.Message):
    __slots__ = ("permutation",)
    PERMUTATION_FIELD_NUMBER: _ClassVar[int]
    permutation: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, permutation: _Optional[_Iterable[int]] = ...) -> None: ...

class Concat(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class Pad(_message.Message):
    __slots__ = ("before", "after", "value")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    before: _containers.RepeatedScalarFieldContainer[int]
    after: _containers.RepeatedScalarFieldContainer[int]
    value: int
    def __init__(self, before: _Optional[_Iterable[int]] = ..., after: _Optional[_Iterable[int]] = ..., value: _Optional[int] = ...) -> None: ...

class ArgMax(_message.Message):
    __slots__ = ("axis", "select_last", "keep_dims")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    SELECT_LAST_FIELD_NUMBER: _ClassVar[int]
    KEEP_DIMS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    select_last: bool
    keep_dims: bool
    def __init__(self, axis: _Optional[int] = ..., select_last: bool = ..., keep_dims: bool = ...) -> None: ...

class Matmul(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Gather(_message.Message):
    __slots__ = ("sizes", "offsets")
    SIZES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sizes: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class LessThanZero(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IsNegative(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class And(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Or(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Not(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BitToInteger(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Select(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Table(_message.Message):
    __slots__ = ("low", "step", "values", "slopes", "shift")
    LOW_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SLOPES_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    low: int
    step: int
    values: _containers.RepeatedScalarFieldContainer[int]
    slopes: _containers.RepeatedScalarFieldContainer[int]
    shift: int
    def __init__(self, low: _Optional[int] = ..., step: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ..., slopes: _Optional[_Iterable[int]] = ..., shift: _Optional[int] = ...) -> None: ...

class Scheduled(_message.Message):
    __slots__ = ("multipliers", "runs", "scale")
    MULTIPLIERS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    multipliers: _containers.RepeatedScalarFieldContainer[int]
    runs: _containers.RepeatedScalarFieldContainer[int]
    scale: int
    def __init__(self, multipliers: _Optional[_Iterable[int]] = ..., runs: _Optional[_Iterable[int]] = ..., scale: _Optional[int] = ...) -> None: ...

class Dropout(_message.Message):
    __slots__ = ("seed", "threshold", "multiplier", "scale")
    SEED_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    seed: int
    threshold: int
    multiplier: int
    scale: int
    def __init__(self, seed: _Optional[int] = ..., threshold: _Optional[int] = ..., multiplier: _Optional[int] = ..., scale: _Optional[int] = ...) -> None: ...

class Dither(_message.Message):
    __slots__ = ("seed", "bits")
    SEED_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    seed: int
    bits: int
    def __init__(self, seed: _Optional[int] = ..., bits: _Optional[int] = ...) -> None: ...
