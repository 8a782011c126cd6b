"""Turns what a user appends into operations, and checks it where it is written.

Nothing is queued unless all of an expression is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from espalier.errors import ProgramError
from espalier.lang.calls import CallOp, GenerateOp, SelectOp
from espalier.lang.config import global_config
from espalier.lang.ir import (
    SglConstantText,
    SglExpr,
    SglGen,
    SglPromised,
    SglReasoning,
    SglReasoningVariable,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglSeparateReasoning,
    SglVarScopeBegin,
    SglVarScopeEnd,
)
from espalier.lang.location import call_site
from espalier.lang.ops import AskOp, PromisedTextOp, RoleOp, ScopeOp, TextOp
from espalier.lang.options import STOP_NAMES, resolve_logprobs, resolve_sampling
from espalier.lang.program import refuse_blocking
from espalier.lang.reasoning import ReasoningOp
from espalier.lang.reasoning_format import marks_of
from espalier.lang.separation import parts_to_append
from espalier.lang.stream import Op, Stream
from espalier.lang.variables import Scope, Variable
from espalier.lang.writing import changed_role


@dataclass(slots=True)
class _Draft:
    """Operations to be, and the state as it will be after them."""

    ops: list[Op]
    declared: list[Variable]
    open_role: str | None
    scopes: list[Scope]


def append(stream: Stream, value: object) -> None:
    """Appends a value; raises where the user's line is wrong, and then appends nothing."""
    draft = _Draft([], [], stream.open_role, list(stream.scopes))
    for part in parts_to_append(value):
        _add(stream, draft, part)
    stream.check_open()
    for scope in stream.scopes:
        scope.variable.is_in_scope = False
    for scope in draft.scopes:
        scope.variable.is_in_scope = True
    stream.open_role, stream.scopes = draft.open_role, draft.scopes
    for variable in draft.declared:
        stream.variables.declare(variable)
    if stream.record is not None:
        for op in draft.ops:
            if isinstance(op, CallOp):
                name, line = op.variable.name, op.location
                op.record = stream.record.call(op.kind, name, line, op.num_samples)
    stream.enqueue(draft.ops)
    if not stream.program.options.use_thread and any(op.wakes for op in draft.ops):
        wait_settled(stream)


def wait_settled(stream: Stream) -> None:
    """Blocks until the stream has nothing to do; raises nothing that went wrong in it."""
    refuse_blocking("use_thread=False", "a run without it")
    ask: AskOp[None] = AskOp(lambda _: None, lambda _: None)
    stream.enqueue([ask])
    stream.program.wait(ask.answer)


def _add(stream: Stream, draft: _Draft, part: SglExpr) -> None:
    match part:
        case SglConstantText():
            if part.value:
                draft.ops.append(TextOp(part.value))
        case SglGen():
            draft.ops.append(_generate_op(stream, draft, part))
        case SglReasoning():
            draft.ops.append(_generate_op(stream, draft, part.gen, part))
        case SglSelect():
            variable = _declare(stream, draft, part.name, 1)
            draft.ops.append(SelectOp(variable, stream.next_call_key(), part))
        case SglRoleBegin() | SglRoleEnd():
            _change_role(stream, draft, part)
        case SglPromised():
            draft.ops.append(PromisedTextOp(part.variable, part.items))
        case SglVarScopeBegin():
            _refuse_open(draft, part.name)
            scope = Scope(_declare(stream, draft, part.name, 1))
            draft.scopes.append(scope)
            draft.ops.append(ScopeOp(scope, part.location or call_site(), begins=True))
        case SglVarScopeEnd():
            _end_scope(draft, part)
        case SglReasoningVariable():
            pass  # the generation before it has declared it
        case _:
            raise ProgramError(f"{part!r} cannot be appended to a state.")


def _refuse_open(draft: _Draft, name: str) -> None:
    if any(scope.variable.name == name for scope in draft.scopes):
        raise ProgramError(
            f"var_scope {name!r} begins inside a block of that name, and both would set it; give "
            "the inner one another name."
        )


def _declare(
    stream: Stream,
    draft: _Draft,
    name: str | None,
    num_samples: int,
    *,
    holds_reasoning: bool = False,
) -> Variable:
    declared = [other for other in draft.declared if other.name == name]
    known = declared[-1] if declared else stream.variables.get(name)
    clashes = known is not None and known.holds_reasoning not in (None, holds_reasoning)
    if clashes and name is not None:
        raise ProgramError(
            f"variable {name!r} would be set by a call of that name and by the reasoning of "
            "another; give the call another name."
        )
    num_feeds = num_samples if stream.feed is not None else 0
    variable = Variable(name, stream.kick, num_feeds)
    variable.holds_reasoning = holds_reasoning
    draft.declared.append(variable)
    return variable


def _generate_op(
    stream: Stream, draft: _Draft, gen: SglGen, separate: SglReasoning | None = None
) -> GenerateOp:
    program = stream.program
    options = program.options
    key = stream.next_call_key()
    given = gen.sampling
    if program.seed is not None and "sampling_seed" not in given:
        given = {**given, "sampling_seed": key}
    if not global_config.skip_special_tokens_in_output:
        given = {**given, "skip_special_tokens": False}
    is_number = gen.form is not None and gen.form.is_number
    sampling = resolve_sampling(options.sampling, given, is_number, program.template_stops())
    logprobs = resolve_logprobs(options.logprobs, gen.logprobs)
    variable = _declare(stream, draft, gen.name, sampling.n)
    if separate is not None:
        name = SglSeparateReasoning.process_name_for_reasoning(gen.name)
        op: GenerateOp = ReasoningOp(
            variable,
            gen.location,
            key,
            sampling=sampling,
            logprobs=logprobs,
            form=gen.form,
            reasoning=_declare(stream, draft, name, sampling.n, holds_reasoning=True),
            marks=marks_of(separate.model_type),
            keeps_reasoning=separate.keep_reasoning,
            template_stops=program.template_stops(),
            has_stops=any(gen.sampling.get(n) or options.sampling.get(n) for n in STOP_NAMES),
        )
    else:
        op = GenerateOp(
            variable, gen.location, key, sampling=sampling, logprobs=logprobs, form=gen.form
        )
    op.timeout_s = gen.timeout_s
    return op


def _change_role(stream: Stream, draft: _Draft, part: SglRoleBegin | SglRoleEnd) -> None:
    open_role = changed_role(draft.open_role, part)
    stream.program.role_template()  # raises here where the model has none
    draft.open_role = open_role
    draft.ops.append(RoleOp(part.role, begins=isinstance(part, SglRoleBegin)))


def _end_scope(draft: _Draft, part: SglVarScopeEnd) -> None:
    if not draft.scopes or draft.scopes[-1].variable.name != part.name:
        innermost = draft.scopes[-1].variable.name if draft.scopes else None
        raise ProgramError(
            f"var_scope {part.name!r} ends while "
            f"{'none' if innermost is None else repr(innermost)} is the innermost open one."
        )
    draft.ops.append(ScopeOp(draft.scopes.pop(), part.location or call_site(), begins=False))
