"""The graph of a model that torch.fx cannot trace, by torch.export.

torch.export runs the model's Python code on tensors without memory. Lists, loops and dicts of tensors are possible, a
branch that depends on the values in an image is not.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import logging
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._dynamo.exc import UserError, UserErrorType
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .graph import Input, UntraceableModel, symptom, tensors_in
from .purity import changes

_aten = torch.ops.aten
# Calls that ask one argument for its dtype and device only, and which that is.
_FORM_ONLY: dict[Any, int] = {_aten.new_zeros: 0, _aten.new_ones: 0, _aten.new_full: 0, _aten.type_as: 1}
_CHECKS = ("_assert", "sym_constrain_range", "_guards_fn")  # they hold, or the tracing would have failed


def export(module: nn.Module, inputs: Sequence[Input]) -> tuple[nn.Module, fx.Graph]:
    """The graph of `module`, in eval mode, for these inputs, for any batch size.

    Parameters, and buffers whose values decide nothing, may be on the meta device; no memory is allocated for them.
    Nodes call aten operators, none of which writes to its inputs, and read parameters and buffers by their own names.
    Whatever depends on constants alone is computed now: the first result is a copy of `module` that shares its tensors
    and has these values as further buffers, `constant_<n>`, on the CPU and not in its state dict.
    Raises UntraceableModel where the graph depends on values in the inputs or on the batch size, or the model changes
    its own state.
    """
    name = type(module).__name__
    program = _program(module, inputs, name)
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION:
            raise changes(module, str(spec.target))
    return _read_by_name(program, copy.copy(module), name)


def _program(module: nn.Module, inputs: Sequence[Input], name: str) -> ExportedProgram:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = _on_cpu(module, mode, name)
    with mode:
        examples = tuple(one.empty(2, "cpu") for one in inputs)  # 1 would be taken for a constant
    named = {one.name: example for one, example in zip(inputs, examples, strict=True) if one.name}
    grows = {0: Dim.DYNAMIC}
    shapes = dict.fromkeys(named, grows) if named else (grows,) * len(inputs)
    with _silence():
        try:
            args = () if named else examples
            program = torch.export.export(fake, args, named, dynamic_shapes=shapes, strict=False)
            schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
            if any(schema is not None and schema.is_mutable for schema in schemas):
                program = program.run_decompositions({})
        except Exception as error:  # anything that the model's own code raises for tensors without values
            raise UntraceableModel(f"torch.export cannot trace {name} either: {_reason(error)}") from error
    return program


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep torch.export from printing the graph so far when it fails; the exception says enough."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = was


def _on_cpu(module: nn.Module, mode: FakeTensorMode, name: str) -> nn.Module:
    """A copy whose tensors on the meta device pretend to be on the CPU, and whose activations do not work in place."""
    fake = copy.deepcopy(module)
    with mode:
        for path, owner in fake.named_modules():
            lost = [key for key, value in vars(owner).items() if isinstance(value, Tensor) and value.is_meta]
            if lost:
                where = ".".join(filter(None, (path, lost[0])))
                raise UntraceableModel(
                    f"{name}: the value of {where} is lost: make it a buffer (register_buffer)"
                )
            owner._apply(
                lambda one: torch.empty_like(one, device="cpu") if one.is_meta else one, recurse=False
            )
            if getattr(owner, "inplace", False) is True:
                owner.inplace = False
    return fake


def _reason(error: Exception) -> str:
    """The first line of the message, and the place in the model's code that it comes from."""
    if isinstance(error, UserError) and error.error_type is UserErrorType.CONSTRAINT_VIOLATION:
        return "its graph is another for each batch size"
    others = (str(Path(torch.__file__).parent), __file__)
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if not frame.filename.startswith(others)]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    if isinstance(error, GuardOnDataDependentSymNode):
        return f"what it does depends on values in the images{place}"
    return symptom(error) + place


def _read_by_name(program: ExportedProgram, holder: nn.Module, name: str) -> tuple[nn.Module, fx.Graph]:
    """The program's graph with the model's inputs as its only ones; what it reads besides belongs to `holder`."""
    signature = program.graph_signature
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    holder._buffers = dict(holder._buffers)
    constants = _constants(program)
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()

    def read(node: fx.Node) -> fx.Node:
        if node in copies:
            return copies[node]
        if node not in constants:
            return graph.get_attr(str(kinds[node.name].target))
        numbers = itertools.count()
        path = next(name for name in map("constant_{}".format, numbers) if not hasattr(holder, name))
        holder.register_buffer(path, constants[node].detach(), persistent=False)
        return graph.get_attr(path)

    for node in program.graph.nodes:
        if node.op == "placeholder":
            if kinds[node.name].kind is InputKind.USER_INPUT:
                copies[node] = graph.placeholder(node.name)
        elif node.op == "output":
            kept = zip(node.args[0], signature.output_specs, strict=True)
            results = [value for value, spec in kept if spec.kind is OutputKind.USER_OUTPUT]
            graph.output(tuple(read(value) for value in results if isinstance(value, fx.Node)))
        elif node.op != "call_function":
            raise UntraceableModel(
                f"{name} has control flow in its graph (torch.cond and the like), which cannot be cut"
            )
        elif node not in constants and not any(check in str(node.target) for check in _CHECKS):
            copies[node] = graph.node_copy(node, read)
            stack = node.meta.get("nn_module_stack", {}).items()  # with the model itself, which is no scope
            scopes = {key: where for key, where in stack if where[0] and not where[0].startswith("_")}
            copies[node].meta = {"nn_module_stack": scopes}
    graph.eliminate_dead_code()
    # Views of what attention makes must be copies where they can't be views: each device lays its result out its way.
    if any("scaled_dot_product" in str(node.target) for node in graph.nodes):
        for node in graph.find_nodes(op="call_function", target=_aten.view.default):
            node.target = _aten.reshape.default
    return holder, graph


def _constants(program: ExportedProgram) -> dict[fx.Node, Any]:
    """The value of each node that depends on neither images nor parameters nor buffers."""
    values: dict[fx.Node, Any] = {}
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op == "placeholder" and kinds[node.name].kind is InputKind.CONSTANT_TENSOR:
            values[node] = program.constants[kinds[node.name].target]
        elif node.op == "call_function" and tensors_in(node.meta.get("val")):
            form = _FORM_ONLY.get(getattr(node.target, "overloadpacket", node.target))
            asked = [] if form is None else [node.args[form]]
            known = {each: torch.empty(0, dtype=each.meta["val"].dtype) for each in asked} | values
            draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if not draws and known.keys() >= {*node.all_input_nodes}:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
                values[node] = node.target(*args, **kwargs)
    return values
