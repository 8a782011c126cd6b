"""The probability that a model goes on with given bytes, however it cuts them into tokens.

A token sequence covers the bytes once its own bytes begin with them. Those that cover them with
their last token, and not before, exclude each other and are all there are; so the probability is
the sum over them. They are found best first: a token that begins with the rest of the bytes ends
a sequence, one that is a shorter beginning of the rest leads on.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence

from espalier.backends.token_index import TokenIndex
from espalier.errors import CapacityError

# (context, tokens) -> log-probability of each of the tokens as the next one
NextLogprobs = Callable[[tuple[int, ...], Sequence[int]], Awaitable[Sequence[float]]]

MAX_CONTEXTS = 256
# What is not looked at adds less than this share of the sum.
RELATIVE_TOLERANCE = 1e-5


async def log_probability_of_text(
    context: tuple[int, ...], data: bytes, index: TokenIndex, next_logprobs: NextLogprobs
) -> float:
    """log P(the text after `context` begins with `data`); 0.0 for no bytes.

    Asks for the next-token distribution of each way to begin that still matters; raises
    CapacityError where these are more than 256.
    """
    if not data:
        return 0.0
    number = itertools.count()  # breaks ties
    # (-log P of the tokens so far, tie, tokens so far, bytes that are left): an upper bound
    open_paths: list[tuple[float, int, tuple[int, ...], bytes]] = [(0.0, next(number), (), data)]
    found, open_mass = 0.0, 1.0
    num_asked = 0
    while open_paths and open_mass > RELATIVE_TOLERANCE * found:
        cost, _, tokens, rest = heapq.heappop(open_paths)
        open_mass = max(0.0, open_mass - math.exp(-cost))
        num_asked += 1
        if num_asked > MAX_CONTEXTS:
            raise CapacityError(
                f"the end of the prompt, {data.decode(errors='replace')!r}, can be cut into tokens "
                f"in more than {MAX_CONTEXTS} ways that matter; move it into the choices, or "
                "append text that does not join with them."
            )
        covering = index.starting_with(rest)
        leading = index.proper_prefixes(rest)
        wanted = [*covering, *(token_id for _, token_id in leading)]
        if not wanted:
            continue
        logprobs = await next_logprobs(context + tokens, wanted)
        found += math.fsum(math.exp(value - cost) for value in logprobs[: len(covering)])
        for (piece, token_id), value in zip(leading, logprobs[len(covering) :], strict=True):
            if value > -math.inf:
                path = (cost - value, next(number), (*tokens, token_id), rest[len(piece) :])
                heapq.heappush(open_paths, path)
                open_mass += math.exp(value - cost)
        if not open_paths:
            open_mass = 0.0
    return math.log(found) if found > 0 else -math.inf
