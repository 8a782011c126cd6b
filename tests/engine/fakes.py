"""A tiny deterministic language model that reads its history back through the slots.

Its logits are a pure function of the tokens at positions 0 to the row's own, found in the slots
that the engine names: a wrong slot, a stale entry or a wrong prefix is an error or another output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.output_text import OutputText
from espalier.engine.request import EngineEvent, EngineRequest, RequestFailure, RequestOutput
from espalier.engine.sampler import SampledToken, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.exec.executor import Float32Array, StepBatch
from espalier.exec.plan import Geometry, Plan
from espalier.types import FinishReason, SamplingParams

VOCAB_SIZE = 17
EOS_ID = 16
MASK = (1 << 64) - 1


def mixed(value: int) -> int:
    """SplitMix64's finaliser."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def history_hash(tokens: Sequence[int]) -> int:
    """Hash of a whole history."""
    state = 0
    for token in tokens:
        state = mixed(state ^ (token + 1))
    return state


def logits_of(history: int) -> NDArray[np.float32]:
    """The model: logits, [VOCAB_SIZE], from the hash of a history."""
    values = [mixed(history ^ (token * 0x10001)) % 4096 for token in range(VOCAB_SIZE)]
    logits: NDArray[np.float32] = np.array(values, dtype=np.float32) / np.float32(512.0)
    return logits


class HashExecutor:
    """An executor of that model. `fail_at` names steps (from 0) at which it raises."""

    isa = "auto"
    thread_pool: None = None

    def __init__(self, num_slots: int, max_rows: int = 1 << 30) -> None:
        geometry = Geometry(1, 1, 1, 1, 1, VOCAB_SIZE, 1 << 20)
        self.plan = Plan("hash", geometry, (), (), (), ())
        self.num_slots = num_slots
        self.max_rows = max_rows
        self.slots: list[tuple[int, int, int] | None] = [None] * num_slots  # position, token, hash
        self.num_rows = 0
        self.num_steps = 0
        self.step_rows: list[int] = []
        self.step_logit_rows: list[int] = []
        self.fail_at: set[int] = set()
        self.is_closed = False

    def run(self, batch: StepBatch) -> Float32Array:
        """Checks every slot that a row may see, and gives logits."""
        step = self.num_steps
        self.num_steps += 1
        if step in self.fail_at:
            for slot in batch.slot_ids.tolist()[-1:]:
                self.slots[slot] = None
            raise RuntimeError("the executor was told to fail")
        assert 0 < batch.num_rows <= self.max_rows
        self.num_rows += batch.num_rows
        self.step_rows.append(batch.num_rows)
        self.step_logit_rows.append(len(batch.logit_rows))
        hashes: list[int] = []
        written: set[int] = set()
        for index in range(len(batch.row_starts) - 1):
            self._run_sequence(batch, index, hashes, written)
        assert len(hashes) == batch.num_rows
        rows = batch.logit_rows.tolist()
        assert rows == sorted(set(rows))
        logits = np.array([logits_of(hashes[row]) for row in rows], np.float32)
        return only_wanted(logits.reshape(len(rows), VOCAB_SIZE), batch)

    def _run_sequence(
        self, batch: StepBatch, index: int, hashes: list[int], written: set[int]
    ) -> None:
        first, last = batch.row_starts[index], batch.row_starts[index + 1]
        slots = batch.slot_ids[batch.slot_starts[index] : batch.slot_starts[index + 1]].tolist()
        assert len(set(slots)) == len(slots), "a sequence uses a slot twice"
        positions = batch.positions[first:last].tolist()
        assert positions == list(range(positions[0], positions[0] + len(positions)))
        assert len(slots) == positions[-1] + 1
        state = 0
        for position in range(positions[0]):
            entry = self.slots[slots[position]]
            assert entry is not None, "a slot without KV is read"
            assert entry[0] == position, "a slot holds another position"
            state = mixed(state ^ (entry[1] + 1))
            assert entry[2] == state, "a slot holds another history"
        for position, token in zip(positions, batch.token_ids[first:last].tolist(), strict=True):
            assert slots[position] not in written, "two rows write one slot"
            written.add(slots[position])
            state = mixed(state ^ (token + 1))
            self.slots[slots[position]] = (position, token, state)
            hashes.append(state)

    def memory_bytes(self) -> dict[str, int]:
        return {"weights": 0, "kv_pool": 0, "scratch": 0}

    def close(self) -> None:
        self.is_closed = True


def only_wanted(logits: Float32Array, batch: StepBatch) -> Float32Array:
    """Logits in which those that a step does not want are no numbers."""
    if batch.wanted_starts is None or batch.wanted_ids is None:
        return logits
    for row, values in enumerate(logits):
        wanted = batch.wanted_ids[batch.wanted_starts[row] : batch.wanted_starts[row + 1]]
        if len(wanted):
            kept = values[wanted]
            values[:] = np.nan
            values[wanted] = kept
    return logits


LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterDecoder:
    """Token i is the i-th letter, or piece of text; the end token has no text."""

    has_pending = False

    def __init__(self, pieces: Sequence[str] = LETTERS) -> None:
        self._pieces = pieces

    def push(self, token_id: int) -> str:
        return "" if token_id == EOS_ID else self._pieces[token_id]

    def push_bytes(self, data: bytes) -> str:
        return data.decode()

    def bytes_of(self, token_id: int) -> bytes:
        return self.push(token_id).encode()

    def finish(self) -> str:
        return ""


class LetterTokenizer:
    """Letters for tokens."""

    def __init__(self, vocab_size: int = VOCAB_SIZE) -> None:
        self.vocab_size = vocab_size
        self.eos_ids = (EOS_ID,)

    def token_bytes(self, token_id: int) -> bytes:
        return LetterDecoder().push(token_id).encode()

    def is_control(self, token_id: int) -> bool:
        return token_id == EOS_ID

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decoder(self, *, skip_special_tokens: bool = True) -> LetterDecoder:
        return LetterDecoder()


def make_core(num_slots: int = 256, **options: object) -> EngineCore:
    """An engine over the hash model."""
    values: dict[str, object] = {"num_slots": num_slots, "context_length": 4096, **options}
    settings = EngineOptions(**values)  # type: ignore[arg-type]
    executor = HashExecutor(num_slots, settings.max_step_rows)
    return EngineCore(executor, LetterTokenizer(), ReferenceSampler(VOCAB_SIZE), settings)


def executor_of(core: EngineCore) -> HashExecutor:
    """The engine's executor, by its own type."""
    assert isinstance(core.executor, HashExecutor)
    return core.executor


def request(
    request_id: str,
    input_ids: Sequence[int],
    *,
    seed: int = 0,
    return_logprob: bool = False,
    logprob_start_len: int = -1,
    namespace: str = "",
    **sampling: object,
) -> EngineRequest:
    """A request; greedy and of 8 tokens unless told otherwise."""
    values: dict[str, object] = {"temperature": 0.0, "max_new_tokens": 8, **sampling}
    return EngineRequest(
        request_id,
        tuple(input_ids),
        SamplingParams(**values),  # type: ignore[arg-type]
        seed=seed,
        return_logprob=return_logprob,
        logprob_start_len=logprob_start_len,
        namespace=namespace,
    )


def run_to_end(core: EngineCore, max_steps: int = 100_000) -> dict[str, EngineEvent]:
    """Steps until nothing is left, checking the books after each; the last event by request."""
    events: dict[str, EngineEvent] = {event_id(event): event for event in core.take_events()}
    for _ in range(max_steps):
        if not core.has_work:
            return events
        for event in core.step():
            events[event_id(event)] = event
        core.check_invariants()
    raise AssertionError(f"still busy after {max_steps} steps: {core.stats()}")


def event_id(event: EngineEvent) -> str:
    return event.request_id


def output(events: dict[str, EngineEvent], request_id: str) -> RequestOutput:
    """The result of a request that must have succeeded."""
    event = events[request_id]
    assert isinstance(event, RequestOutput), event
    assert event.finish_reason is not None
    return event


def failure(events: dict[str, EngineEvent], request_id: str) -> RequestFailure:
    """The failure of a request that must have failed."""
    event = events[request_id]
    assert isinstance(event, RequestFailure), event
    return event


# --- the oracle: one request at a time, no cache, no batch ----------------------------------------


def naive_output(asked: EngineRequest) -> RequestOutput:
    """What the request must give, from the model's definition."""
    sampler = ReferenceSampler(VOCAB_SIZE)
    tokens = list(asked.input_ids)
    text = OutputText(LetterTokenizer(), asked.sampling)
    ends = set(asked.sampling.stop_token_ids) | (set() if asked.sampling.ignore_eos else {EOS_ID})
    output_ids: list[int] = []
    reason: FinishReason | None = None
    while reason is None:
        if len(output_ids) == asked.sampling.max_new_tokens:
            reason = FinishReason("length", length=len(output_ids))
            break
        row = SampleRow(
            asked.sampling,
            asked.seed,
            len(tokens),
            list(asked.input_ids),
            output_ids.copy(),
            sorted(ends) if len(output_ids) < asked.sampling.min_new_tokens else (),
        )
        (sampled,) = sampler.sample(logits_of(history_hash(tokens))[None], [row])
        assert isinstance(sampled, SampledToken)
        tokens.append(sampled.token_id)
        output_ids.append(sampled.token_id)
        if sampled.token_id in ends:
            reason = FinishReason("stop", matched=sampled.token_id)
        else:
            stop = text.push(sampled.token_id)
            reason = None if stop is None else FinishReason("stop", matched=stop)
    text.finish()
    return RequestOutput(
        asked.request_id, text.text, output_ids, text.text_token_ids(), finish_reason=reason
    )


def naive_logprob(tokens: Sequence[int], position: int) -> float:
    """Log-probability of the token at a position, given those before it."""
    logits = logits_of(history_hash(tokens[:position]))
    (result,) = ReferenceSampler(VOCAB_SIZE).token_logprobs(logits[None], [tokens[position]])
    assert isinstance(result, SampledToken)
    return result.logprob
