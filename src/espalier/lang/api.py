"""The primitives that a program appends to its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from espalier.constraint import JsonWhitespace
from espalier.errors import UnsupportedError, UserInputError, shown
from espalier.lang.abstract import deferrable
from espalier.lang.choices import ChoicesMethod, token_length_normalized
from espalier.lang.form import form_of, regex_choices
from espalier.lang.ir import (
    SglExpr,
    SglExprList,
    SglGen,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglSeparateReasoning,
    as_expr,
    parts_of,
)
from espalier.lang.limits import seconds
from espalier.lang.location import call_site
from espalier.types import SamplingParams, flag


@deferrable
def gen(  # noqa: PLR0917 - the reference's order
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: ChoicesMethod | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    *,
    ebnf: str | None = None,
    lark: str | None = None,
    tool_calls: Mapping[str, Any] | str | None = None,
    whitespace: JsonWhitespace | str | None = None,
    exact: bool = False,
    seed: int | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    include_stop: bool | None = None,
    timeout: float | None = None,
) -> SglExpr:
    """Calls the model and appends what it writes, which becomes the variable `name`.

    A value that is None is the run's. With `n` > 1 the variable is a list and the first sample is
    appended. A matched stop is neither in the variable nor in the text, unless `include_stop`;
    `stop_regex` ends the text where a match of it is complete (docs/sampling.md).
    `choices` makes it a `select`. `seed` gives the same samples whatever else runs. The call fails
    with ProgramTimeoutError where it takes longer than `timeout` seconds from its turn on.

    The text has a form where one of these is given. `dtype`: a number, a bool or a JSON string.
    `regex`: the whole text matches; with `exact`, a regex of at most 64 texts has them scored as
    wholes, as choices are. `json_schema`: JSON text, a dict, a pydantic model or a type; with a
    dict the variable is the parsed value, with a type it is a value of that type (`s.text(name)` is
    the text); `whitespace` is "compact", "spaced" or "pretty". `ebnf` and `lark`: a grammar.
    `tool_calls`: free text with calls of tools (docs/structured-output.md).
    Raises UserInputError (a ValueError) for arguments that contradict each other.
    """
    sampling = _given(
        max_new_tokens=max_tokens,
        min_new_tokens=min_tokens,
        n=n,
        stop=stop,
        stop_token_ids=stop_token_ids,
        stop_regex=stop_regex,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        ignore_eos=ignore_eos,
        repetition_penalty=repetition_penalty,
        logit_bias=logit_bias,
        no_stop_trim=include_stop,
        sampling_seed=seed,
    )
    logprobs = _given(
        return_logprob=return_logprob,
        logprob_start_len=logprob_start_len,
        top_logprobs_num=top_logprobs_num,
        return_text_in_logprobs=return_text_in_logprobs,
    )
    forms = _given(
        dtype=dtype,
        regex=regex,
        json_schema=json_schema,
        ebnf=ebnf,
        lark=lark,
        tool_calls=tool_calls,
        whitespace=whitespace,
    )
    if exact:
        if choices is not None or set(forms) != {"regex"}:
            raise UserInputError("gen was given exact, which goes with regex alone; leave it out.")
        choices, forms = regex_choices(forms["regex"]), {}
    if choices is not None:
        ignored = set(sampling) - {"temperature", "sampling_seed"}
        ignored.update(logprobs, forms)
        if ignored:
            raise UserInputError(
                f"gen was given choices together with {', '.join(sorted(ignored))}, which a "
                "choice has no use for; leave one of them out."
            )
        method = token_length_normalized if choices_method is None else choices_method
        return select(name, choices, temperature or 0.0, method, seed=seed, timeout=timeout)
    if choices_method is not None:
        raise UserInputError("gen was given choices_method without choices; leave it out.")
    form = form_of(**forms) if forms else None
    return SglGen(_checked(name), sampling, logprobs, form, call_site(), seconds(timeout))


def gen_int(  # noqa: PLR0917 - the reference's order
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    *,
    seed: int | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    include_stop: bool | None = None,
    timeout: float | None = None,
) -> SglExpr:
    """`gen` of a whole number; the variable stays text."""
    return gen(
        name,
        max_tokens=max_tokens,
        n=n,
        stop=stop,
        stop_token_ids=stop_token_ids,
        stop_regex=stop_regex,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        ignore_eos=ignore_eos,
        return_logprob=return_logprob,
        logprob_start_len=logprob_start_len,
        top_logprobs_num=top_logprobs_num,
        return_text_in_logprobs=return_text_in_logprobs,
        seed=seed,
        repetition_penalty=repetition_penalty,
        logit_bias=logit_bias,
        include_stop=include_stop,
        timeout=timeout,
        dtype=int,
    )


def gen_string(  # noqa: PLR0917 - the reference's order
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    *,
    seed: int | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    include_stop: bool | None = None,
    timeout: float | None = None,
) -> SglExpr:
    """`gen` of a JSON string, quotes included."""
    return gen(
        name,
        max_tokens=max_tokens,
        n=n,
        stop=stop,
        stop_token_ids=stop_token_ids,
        stop_regex=stop_regex,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        ignore_eos=ignore_eos,
        return_logprob=return_logprob,
        logprob_start_len=logprob_start_len,
        top_logprobs_num=top_logprobs_num,
        return_text_in_logprobs=return_text_in_logprobs,
        seed=seed,
        repetition_penalty=repetition_penalty,
        logit_bias=logit_bias,
        include_stop=include_stop,
        timeout=timeout,
        dtype=str,
    )


@deferrable
def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: ChoicesMethod = token_length_normalized,
    *,
    seed: int | None = None,
    timeout: float | None = None,
) -> SglSelect:
    """Appends the choice that the method decides for, which becomes the variable `name`.

    `temperature` > 0 samples from softmax(score / temperature), by `seed` where one is given.
    `timeout` is as in `gen`.
    `choices_method` is one of the three of this module's kin or any callable with their keywords.
    Raises UserInputError (a ValueError) for choices that are missing, empty or equal.
    """
    if choices is None or isinstance(choices, str) or not isinstance(choices, Sequence):
        raise UserInputError(f"select has choices {choices!r}; a list of texts is allowed.")
    texts = tuple(choices)
    for text in texts:
        if not isinstance(text, str) or not text:
            raise UserInputError(f"select has the choice {text!r}; non-empty text is allowed.")
    if not texts or len(set(texts)) < len(texts):
        raise UserInputError(
            f"select has choices {list(texts)!r}; one or more different texts are allowed."
        )
    SamplingParams(temperature=temperature, sampling_seed=seed)  # raises for a value out of range
    if not callable(choices_method):
        raise UserInputError(f"choices_method is {choices_method!r}; a callable is allowed.")
    limit_s = seconds(timeout)
    return SglSelect(_checked(name), texts, temperature, choices_method, seed, call_site(), limit_s)


def separate_reasoning(
    expr: object = None, model_type: str | None = None, *, keep_reasoning: bool = False
) -> SglExprList:
    """The expression, whose generations write their reasoning before their answer.

    The variable of a gen in it holds the answer, and `<name>_reasoning_content` the reasoning; the
    state's text has the answer alone, or with `keep_reasoning` all that the model wrote. A form and
    stops are for the answer: the reasoning is free. `model_type` says how the model marks its
    reasoning (lang/reasoning_format.py); one that is not known raises where it is appended.
    Raises UserInputError (a ValueError) without a gen, or with one that has no name.
    """
    flag("keep_reasoning", keep_reasoning, UserInputError)
    if expr is None:
        raise UserInputError(
            "separate_reasoning was given no expression; a gen, or a list with one, is allowed."
        )
    inner = as_expr(expr)
    return SglExprList((inner, SglSeparateReasoning(model_type, inner, keep_reasoning)))


def image(path: object) -> SglExpr:
    """An image in a prompt. Raises UnsupportedError: no model here sees images yet."""
    raise UnsupportedError(
        f"image({shown(path)}): no model that Espalier runs sees images yet; describe the image "
        "in text."
    )


def video(path: object, num_frames: int) -> SglExpr:
    """A video in a prompt. Raises UnsupportedError: no model here sees videos yet."""
    raise UnsupportedError(
        f"video({shown(path)}, {num_frames}): no model that Espalier runs sees videos yet; "
        "describe the video in text."
    )


def system(expr: object = None) -> SglExprList:
    """A system message that holds `expr`."""
    return _message("system", expr)


def user(expr: object = None) -> SglExprList:
    """A user message that holds `expr`."""
    return _message("user", expr)


def assistant(expr: object = None) -> SglExprList:
    """An assistant message that holds `expr`."""
    return _message("assistant", expr)


def system_begin() -> SglRoleBegin:
    """Opens a system message."""
    return SglRoleBegin("system")


def system_end() -> SglRoleEnd:
    """Closes a system message."""
    return SglRoleEnd("system")


def user_begin() -> SglRoleBegin:
    """Opens a user message."""
    return SglRoleBegin("user")


def user_end() -> SglRoleEnd:
    """Closes a user message."""
    return SglRoleEnd("user")


def assistant_begin() -> SglRoleBegin:
    """Opens an assistant message."""
    return SglRoleBegin("assistant")


def assistant_end() -> SglRoleEnd:
    """Closes an assistant message."""
    return SglRoleEnd("assistant")


def _message(role: str, expr: object) -> SglExprList:
    inner = () if expr is None else parts_of(as_expr(expr))
    return SglExprList((SglRoleBegin(role), *inner, SglRoleEnd(role)))


def _checked(name: str | None) -> str | None:
    if name is not None and not isinstance(name, str):
        raise UserInputError(f"the variable name is {name!r}; text or None is allowed.")
    return name


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
