"""PyTorch programs (`torch.export`) to the graph.

Nodes are taken in order. Those that depend on constants only are evaluated; the others go to their operator's importer
(`covey.ops`). Nodes bear the paths of the user's own modules. The first dimension of every input is the batch, whether
the program was exported with a symbolic or a fixed one.
"""

from __future__ import annotations

import itertools
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

import covey.ops  # noqa: F401  (fills the table of importers)
from covey.errors import ModelError, NodeError, UnsupportedError
from covey.importers import eager, moved, narrow, repeated
from covey.importers.computed import Computed
from covey.importers.decomposed import UNWRITTEN, checking, reads_shape
from covey.importers.detaching import check_gradients
from covey.importers.onnx_node import BATCH, Scope, well_formed
from covey.importers.quantised_programs import is_dynamic
from covey.importers.replacements import no_secure_form
from covey.importers.torch_node import OPSET, RANDOM, TORCH_IMPORTERS, Constant, TorchNode, is_batch
from covey.importers.torch_programs import as_written, example_tensors, first_line, load, plain_name, pytorch, quiet
from covey.ir import DType, Graph, Note, Status, Value

_Kind = TypeVar("_Kind")

WHOLE = ("torch.int64", "torch.int32")
"""The types of inputs that hold whole numbers."""


def examine(
    source: Any,
    name: str | None = None,
    example_inputs: Any = None,
    *,
    dropout: bool = False,
    trained: Container[str] | None = None,
) -> tuple[Graph, list[NodeError]]:
    """The graph of a model as far as it can be imported, with a note on every node, and what stands in the way.

    With `dropout` the nodes of that operator stay; otherwise they do nothing. With `trained`, the names of tensors,
    weights stay apart.
    """
    source = as_written(source)
    program, fixed = load(source, example_inputs, dropout=dropout, trained=trained is not None)
    if name is None:
        if isinstance(source, str | os.PathLike):
            name = os.path.splitext(os.path.basename(os.fspath(source)))[0]
        elif not hasattr(source, "graph_signature"):
            name = type(source).__name__
    graph, errors = _Importer(program, name or "model", dropout, trained, fixed).run()
    if trained and not errors:
        graph.mirror, errors = _Importer(program, name or "model", dropout, trained, fixed, mirrored=True).run()
    torch = pytorch(source)
    if isinstance(source, torch.nn.Module) and not (errors or is_dynamic(torch, source)):
        examples, named = example_tensors(torch, source, example_inputs), isinstance(example_inputs, Mapping)
        with quiet():
            if not dropout:
                eager.check_module(torch, source, program, examples, named)
            if trained is not None:
                check_gradients(torch, source, examples, named)
    return graph, errors


def _meaning(fake: Any) -> DType | None:
    """What the numbers of an input mean, if they may be an input's."""
    dtype = getattr(fake, "dtype", None)
    if dtype is not None and dtype.is_floating_point:
        return DType.FLOAT
    return DType.INDEX if str(dtype) in WHOLE else DType.BOOL if str(dtype) == "torch.bool" else None


class _Unknown:
    """A result of unknown shape, and the unsupported node that it comes from."""

    def __init__(self, root: str) -> None:
        self.root = root


def _examples_of_truths(program: Any) -> set[str]:
    """The inputs of whole numbers that are 0 and 1 alone in the examples that the program was exported with."""
    import torch

    names = program.graph_signature.user_inputs
    examples = torch.utils._pytree.tree_leaves(program.example_inputs)
    return {
        name
        for name, tensor in zip(names, examples, strict=False)
        if isinstance(name, str) and isinstance(tensor, torch.Tensor) and str(tensor.dtype) in WHOLE
        if bool(((tensor == 0) | (tensor == 1)).all())
    }


class _Importer:
    def __init__(
        self,
        program: Any,
        name: str,
        dropout: bool,
        trained: Container[str] | None,
        fixed: str | None,
        mirrored: bool = False,
    ) -> None:
        self.program = program
        self.fixed = fixed
        graph = Graph(name, examples_of_truths=_examples_of_truths(program))
        self.scope = Scope(graph, OPSET, dropout=dropout, trained=trained is not None)
        self.computed = graph.computed = Computed(trained or (), mirrored)
        self.errors: list[NodeError] = []
        self.known: dict[Any, Any] = {}
        self.names = _Names(program.graph.nodes)
        self.batch: object = None

    def run(self) -> tuple[Graph, list[NodeError]]:
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs if hasattr(spec.arg, "name")}
        tensors, skipped = _Tensors(self.program, self.computed), checking(self.program.graph)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name), tensors)
            elif node.op == "get_attr":
                attribute = getattr(self.program.graph_module, node.target, None)
                body = hasattr(attribute, "graph")  # a part of a node of control flow, which is refused itself
                self.known[node] = None if body else tensors.constant(node.target, attribute)
            elif node.op == "call_function" and node not in skipped:
                self._call(node)
            elif node.op == "output":
                self._outputs(node)
        moved.settle(self.scope)
        return self.scope.graph, self.errors

    def _placeholder(self, node: Any, spec: Any, tensors: _Tensors) -> None:
        kind = spec.kind.name if spec is not None else "USER_INPUT"
        if kind == "USER_INPUT":
            self._input(node, spec)
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            self.known[node] = tensors.named(spec.target)
        else:
            raise ModelError(f"the model takes '{node.name}', a {kind.lower()}: export it with tensors only")

    def _input(self, node: Any, spec: Any) -> None:
        fake = node.meta.get("val")
        if spec is not None and not hasattr(fake, "shape"):
            self.known[node] = getattr(spec.arg, "value", None)
            return
        dtype = _meaning(fake)
        if dtype is None:
            raise ModelError(
                f"input '{node.name}' has {getattr(fake, 'dtype', 'no type')}: Covey takes tensors of float, int32, "
                f"int64 or bool"
            )
        if not fake.shape:
            raise ModelError(f"input '{node.name}' has no batch dimension: export the model with [N, ..]")
        batch, *sizes = fake.shape
        for axis, size in enumerate(sizes, start=1):
            if not isinstance(size, int):
                raise ModelError(
                    f"input '{node.name}' has a symbolic size in dimension {axis}: only the first (the batch) may "
                    f"vary; export the model with fixed sizes"
                )
        if isinstance(batch, int):
            self.scope.exported_batch = batch
        if self.batch is not None and str(self.batch) != str(batch):
            raise ModelError(
                f"input '{node.name}' has batch size {batch}, another {self.batch}: use one for all inputs"
            )
        self.batch = batch
        graph = self.scope.graph
        graph.inputs.append(node.name)
        self.known[node] = graph.add_value(Value(node.name, tuple(sizes), dtype=dtype))

    def _outputs(self, node: Any) -> None:
        graph = self.scope.graph
        for spec, result in zip(self.program.graph_signature.output_specs, node.args[0], strict=True):
            kind = spec.kind.name
            if kind == "USER_INPUT_MUTATION":
                continue
            if kind != "USER_OUTPUT":
                raise ModelError(
                    f"the model changes '{spec.target}' as it runs: call eval() on it before exporting, and let its "
                    f"forward assign to no buffer"
                )
            if result is None:
                continue
            value = self.known.get(result) if hasattr(result, "op") else result
            if isinstance(value, _Unknown):
                continue
            if not isinstance(value, Value):
                raise ModelError(
                    f"output '{result}' of the model is a constant, which needs no secure computation: remove it"
                )
            if value.name in graph.inputs or value.name in graph.outputs:
                other = "an input" if value.name in graph.inputs else "another output"
                raise ModelError(f"output '{result}' is the same as {other} ('{value.name}'): remove it")
            if not value.batch_first:
                moved.not_brought_back(self.scope, str(result), value, self.errors)
                continue
            if graph.holds_input(value.name):
                raise ModelError(f"output '{result}' holds whole numbers of the input: remove it")
            graph.outputs.append(value.name)
        if not graph.outputs and not self.errors:
            raise ModelError("the model returns no tensor: let its forward return what is to be opened")

    def _call(self, node: Any) -> None:
        if node.target is operator.getitem:
            self._getitem(node)
            return
        target = str(node.target)
        operands = self._resolve([node.args, node.kwargs])
        unknown = next(_all(operands, _Unknown), None)
        if any(kind.__name__ == "HigherOrderOperator" for kind in type(node.target).__mro__):
            self._fail(node, no_secure_form(self.names[node], f"torch.{target}"))
        elif unknown is not None:
            self._behind(node, target, unknown)
        elif target.startswith("aten.sym_size"):
            value, axis = operands[0]
            self.known[node] = self.scope.dims(value)[axis]
        elif not hasattr(node.target, "_schema"):
            self._compute_size(node, operands)
        elif not _holds(operands, Value) or reads_shape(target, _holds(operands[0][1:], Value)):
            self._evaluate(node, target)
        else:
            self._import(node, target, operands)

    def _compute_size(self, node: Any, operands: Any) -> None:
        """Arithmetic on sizes. A fraction of the number of samples is no size."""
        result = node.target(*operands[0], **operands[1])
        if isinstance(result, float) and any(is_batch(size) for size in operands[0]):
            self._fail(node, self._of_samples(self.names[node], str(node.target)))
        else:
            self.known[node] = result

    @staticmethod
    def _of_samples(name: str, op: str) -> UnsupportedError:
        return UnsupportedError(name, op, "it computes with the number of samples", "use a constant instead")

    def _behind(self, node: Any, target: str, unknown: _Unknown) -> None:
        """A node that reads an unknown result: all that can be said of it is whether there is an importer."""
        name = self.names[node]
        if hasattr(node.target, "_schema") and target not in TORCH_IMPORTERS:
            self._fail(node, no_secure_form(name, plain_name(target)))
        else:
            text = f"it reads what '{unknown.root}' computes"
            self.scope.graph.notes[name] = Note(name, plain_name(target), Status.UNCHECKED, text, unknown.root)
        self.known[node] = unknown

    def _getitem(self, node: Any) -> None:
        source, index = node.args
        results = self.known[source]
        if isinstance(results, _Unknown):
            self.known[node] = results
            return
        if index < len(results) and results[index] is not None:
            self.known[node] = results[index]
            return
        error = UnsupportedError(
            self.names[source],
            plain_name(str(source.target)),
            f"its result {index} is asked for",
            "use its first result only",
        )
        self.errors.append(error)
        self._record(error.node, str(source.target), Status.UNSUPPORTED, f"{error.reason}; {error.way_out}")
        self.known[node] = _Unknown(error.node)

    def _evaluate(self, node: Any, target: str) -> None:
        """A node of constants only, by PyTorch itself; where it repeats something for each sample, for one."""
        import torch

        operands = self._resolve([node.args, node.kwargs])

        def run(samples: int) -> Any:
            def tensor(value: Any) -> Any:
                if isinstance(value, Value):
                    kinds = {DType.FLOAT: torch.float32, DType.INDEX: torch.int64, DType.BOOL: torch.bool}
                    return torch.empty(value.dims(1), dtype=kinds[value.dtype])
                return torch.from_numpy(np.array(value.of(samples))) if isinstance(value, Constant) else value

            arguments = repeated.for_samples(self._resolve([node.args, node.kwargs], tensor), samples)
            result = node.target(*arguments[0], **arguments[1])
            return result.zero_() if target.startswith(UNWRITTEN) else result

        name, drawn = self.names[node], torch.get_rng_state()
        if repeated.computes_with_batch(target, operands):
            self._fail(node, self._of_samples(name, plain_name(target)))
            return
        several = any(constant.repeated is not None for constant in _all(operands, Constant))
        several = several or any(map(is_batch, _all(operands, int)))
        try:
            found = repeated.same_for_all(torch, run) if several else None
            result, axes = found or (run(BATCH), itertools.repeat(None))
        except Exception as error:
            self._fail(
                node, UnsupportedError(name, plain_name(target), f"it could not be evaluated ({first_line(error)})", "")
            )
            return
        if not torch.equal(drawn, torch.get_rng_state()):  # else one draw would stand for those of all runs
            torch.set_rng_state(drawn)
            self._fail(node, UnsupportedError(name, plain_name(target), *RANDOM))
            return
        made: Any = result
        if isinstance(result, tuple | list):
            parts = enumerate(zip(result, axes, strict=False))
            made = [Constant(f"{name}.{i}", _numpy(part), axis) for i, (part, axis) in parts]
        elif hasattr(result, "numpy"):
            made = Constant(name, _numpy(result), next(iter(axes)))
        if learned := self.computed.learns(target, operands):
            try:
                made = self.computed.add(name, node.target, operands, made)
            except ValueError as error:
                self._fail(node, self._of_trained(name, target, learned, str(error)))
                return
        self.known[node] = made
        self._record(name, target, Status.REWRITTEN, "constant, evaluated at compile time")

    def _of_trained(self, name: str, target: str, learned: list[Constant], reason: str) -> UnsupportedError:
        tensor = self.computed.sources(learned[0])[0]
        return UnsupportedError(name, plain_name(target), reason, f"freeze '{tensor}' (freeze=['{tensor}'])")

    def _import(self, node: Any, target: str, operands: Any) -> None:
        name, graph = self.names[node], self.scope.graph
        learned = [each for each in self.computed.read(operands) if each.array.dtype.kind != "f"]
        if learned:
            reason = "it reads whole numbers or truth values that are computed of weights which are trained"
            self._fail(node, self._of_trained(name, target, learned, reason))
            return
        schema = node.target._schema
        if target == "aten.div.Tensor" and self.computed.read(operands[0][1]):
            # Importers take a constant's inverse, which has no numbers of a tensor.
            import torch

            target, schema = "aten.mul.Tensor", torch.ops.aten.mul.Tensor._schema
            operands = [[operands[0][0], self.computed.inverse(name, operands[0][1])], {}]
        arguments, given = _bind(schema, *operands)
        asked = frozenset(user.args[1] for user in node.users if user.target is operator.getitem)
        torch_node = TorchNode(self.scope, name, plain_name(target), graph.fresh(name), arguments, given, asked)
        mark, importer = len(graph.nodes), TORCH_IMPORTERS.get(target)
        try:
            if importer is None:
                raise no_secure_form(name, plain_name(target))
            with well_formed(name, torch_node.op_type):
                importer(torch_node)
            unread = sorted(given - torch_node.read)
            if unread:
                raise torch_node.unsupported(f"its argument '{unread[0]}' is not supported", "leave it at its default")
            result = torch_node.known or torch_node.results or self.scope.activation(torch_node.output)
            self._check(torch_node, result, node.meta.get("val"))
            if isinstance(result, Value):
                result = narrow.fitting(torch_node, result, node.meta["val"].dtype)
        except NodeError as error:
            del graph.nodes[mark:]
            if importer is not None and self.fixed is not None:
                exported = f"the module was exported for {self.scope.exported_batch} samples alone"
                error = type(error)(error.node, error.op, error.reason, f"{error.way_out} ({exported}: {self.fixed})")
            self._fail(node, error)
            return
        status = Status.OK if torch_node.rewritten is None else Status.REWRITTEN
        self._record(name, target, status, torch_node.rewritten or "")
        self.known[node] = result

    def _check(self, node: TorchNode, result: Any, fake: Any) -> None:
        """Refuse a result that PyTorch has in another shape, for as many samples as the program was exported with."""
        batch = self.scope.exported_batch
        if isinstance(result, list) and isinstance(fake, tuple | list):
            for each, its in zip(result, fake, strict=False):
                self._check(node, each, its)
        elif batch is not None and isinstance(result, Value) and hasattr(fake, "shape"):
            shape = list(fake.shape)
            if result.dims(batch) != shape:
                reason = f"its result {result} has the shape {shape} in PyTorch, for the {batch} it was exported with"
                other = "two samples or " if batch == 1 else ""
                raise node.unsupported(reason, f"export the model with {other}a dynamic batch")

    def _fail(self, node: Any, error: NodeError) -> None:
        """Note the error, with the line of the model's source, and go on with the shape that PyTorch knows."""
        place = _source_line(node)
        if place:
            error = type(error)(error.node, error.op, f"{error.reason} ({place})", error.way_out)
        self.errors.append(error)
        self._record(error.node, str(node.target), Status.UNSUPPORTED, f"{error.reason}; {error.way_out}")
        fake = node.meta.get("val")
        shape = tuple(fake.shape[1:]) if hasattr(fake, "shape") and len(fake.shape) else None
        displaced = shape is not None and str(fake.shape[0]) != str(self.batch)
        if shape is None or displaced or not all(isinstance(size, int) for size in shape):
            self.known[node] = _Unknown(error.node)
        else:
            self.known[node] = self.scope.graph.add_value(Value(self.scope.graph.fresh(error.node), shape))

    def _record(self, name: str, target: str, status: Status, text: str) -> None:
        self.scope.graph.notes[name] = Note(name, plain_name(target), status, text)

    def _resolve(self, argument: Any, convert: Callable[[Any], Any] = lambda value: value) -> Any:
        """An argument with the nodes in it replaced by what is known of their results."""
        if isinstance(argument, tuple | list):
            return [self._resolve(part, convert) for part in argument]
        if isinstance(argument, dict):
            return {key: self._resolve(part, convert) for key, part in argument.items()}
        return convert(self.known[argument]) if hasattr(argument, "op") and argument in self.known else argument


class _Tensors:
    """The program's parameters, buffers and constants as arrays; tied ones are one constant."""

    def __init__(self, program: Any, computed: Computed) -> None:
        self.program, self.computed = program, computed
        self.seen: dict[Any, Constant] = {}

    def named(self, target: str) -> Constant:
        tensor = self.program.state_dict.get(target)
        return self.constant(target, self.program.constants.get(target) if tensor is None else tensor)

    def constant(self, target: str, tensor: Any) -> Constant:
        if not hasattr(tensor, "data_ptr"):
            raise ModelError(f"the model's constant '{target}' is no tensor: export the model with tensors only")
        if not _is_plain(tensor):
            return Constant(target, _numpy(tensor.detach().cpu()))
        key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        if key not in self.seen or tensor.numel() == 0:
            self.seen[key] = self.computed.seen(Constant(target, _numpy(tensor.detach().cpu())))
        return self.seen[key]


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor stores its elements as they are, and all of them."""
    return str(tensor.layout) == "torch.strided" and not tensor.is_quantized


def _numpy(tensor: Any) -> Any:
    """The numbers that a tensor stands for, as an array. NumPy has no bfloat16; every such number is a float32 too."""
    if not _is_plain(tensor):
        tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


class _Names:
    """A name for every node: the path of its module, with the operation where a module has several."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        calls = [node for node in nodes if node.op == "call_function" and hasattr(node.target, "_schema")]
        places = {node: _module(node) for node in calls}
        counts = Counter(places.values())
        paths = {path for _, path in places.values()}
        holders = {path[:end] for path in paths for end in range(len(path)) if path[end] == "."}
        taken: set[str] = {node.name for node in nodes if node.op == "placeholder"}
        self.names: dict[Any, str] = {}
        for node in calls:
            key, path = places[node]
            alone = path and path not in holders and counts[key, path] == 1
            operator_name = plain_name(str(node.target)).split(".")[1]
            hint = path if alone else ".".join(part for part in (path, operator_name) if part)
            name, count = hint, 1
            while name in taken:
                count += 1
                name = f"{hint}.{count}"
            taken.add(name)
            self.names[node] = name

    def __getitem__(self, node: Any) -> str:
        return self.names.get(node, str(node.name))


def _module(node: Any) -> tuple[str, str]:
    """The innermost module call that a node belongs to, and the path of the module."""
    stack = node.meta.get("nn_module_stack") or {}
    for key in reversed(stack):
        path = stack[key][0]
        if isinstance(path, str) and not key.startswith("_empty"):
            return str(key), path.split("@")[0]
    return "", ""


def _source_line(node: Any) -> str:
    """Where in the user's own code a node comes from, if PyTorch says so."""
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', trace)
    own = [frame for frame in frames if not re.search(r"(^|/)torch/(nn|_\w+|fx|export)/|^<", frame[0])]
    if not own:
        return ""
    file, line, _, code = own[-1]
    return f"{os.path.basename(file)} line {line}: {code.strip()}"


def _bind(schema: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """A call's arguments by name with defaults filled in, and the names of those that are not at their default."""
    bound, given = {}, set()
    for index, argument in enumerate(schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        value = args[index] if index < len(args) else kwargs.get(argument.name, default)
        bound[argument.name] = value
        tensor = _holds(value, Value) or _holds(value, Constant)
        if tensor or (value is not None and value not in (default, [default])):
            given.add(argument.name)
    return bound, frozenset(given)


def _holds(argument: Any, kind: type) -> bool:
    """Whether a value of the kind is somewhere in an argument."""
    return next(_all(argument, kind), None) is not None


def _all(argument: Any, kind: type[_Kind]) -> Iterator[_Kind]:
    """The values of a kind in an argument, lists and dicts included."""
    if isinstance(argument, tuple | list | dict):
        for part in argument.values() if isinstance(argument, dict) else argument:
            yield from _all(part, kind)
    elif isinstance(argument, kind):
        yield argument
