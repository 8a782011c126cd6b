"""A step without enough memory for what it needs is refused before it writes anything.

The process's address space is limited for that, so that each case runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.exec.tiny_plans import batch_of, llama_like, native, random_tensors

from espalier.errors import CapacityError

# A step that has memory, the same slots with other tokens where there is none, and a row that reads
# the slots afterwards.
_RUN = """
import json, resource, sys
from tests.exec.tiny_plans import *
from espalier.errors import CapacityError

num_sequences, num_rows, wants_logits = json.loads(sys.argv[1])
LENGTH, ROOM = 530, 1 << 20
plan = llama_like(num_layers=1)
count = num_sequences * LENGTH
executor = native(plan, random_tensors(plan, 0), num_slots=count, max_rows=count)
slots = [range(i * LENGTH, (i + 1) * LENGTH) for i in range(num_sequences)]
old, new = tokens_for(plan, LENGTH, 1), tokens_for(plan, LENGTH, 2)
first = batch_of([(old, 0, own) for own in slots], [0])
second = batch_of(
    [(new, LENGTH - num_rows, own) for own in slots], None if wants_logits else [0]
)
last = batch_of([(old, LENGTH - 1, slots[-1])])

def limit(extra):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard if extra is None else used + extra, hard))

executor.run(first)
want = executor.run(last).copy()
message = None
limit(ROOM)
try:
    executor.run(second)
except CapacityError as error:
    message = str(error)
limit(None)
same = executor.run(last).tobytes() == want.tobytes()
executor.run(second)
print(json.dumps([message, same, executor.run(last).tobytes() == want.tobytes()]))
"""


def run_without_memory(*arguments: object) -> tuple[str | None, bool, bool]:
    """The message of a step in a process with little room, and whether it, or it with memory, left
    the slots as they were."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    message, is_kept, is_kept_with_memory = json.loads(done.stdout)
    return message, is_kept, is_kept_with_memory


@pytest.mark.skipif(sys.platform != "linux", reason="limits its address space by /proc")
@pytest.mark.parametrize(
    ("num_sequences", "num_rows", "wants_logits", "advice"),
    [
        (
            8,
            530,
            True,
            "there is no memory for the logits; ask for the logits of fewer rows at once",
        ),
        (
            64,
            16,
            False,
            "no memory for the partial results of attention; run fewer rows in one step",
        ),
    ],
)
def test_a_step_without_memory_writes_nothing(
    num_sequences: int, num_rows: int, wants_logits: bool, advice: str
) -> None:
    message, is_kept, is_kept_with_memory = run_without_memory(
        num_sequences, num_rows, wants_logits
    )
    assert message is not None
    assert advice in message
    assert "was not begun" in message
    assert is_kept
    assert not is_kept_with_memory, "the step does write to the slots that are read"


def test_memory_that_ends_elsewhere_is_not_laid_to_the_logits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 0))
    batch = batch_of([([1, 2, 3], 0, range(3))])

    class Exhausted:
        def run(self, *_: Any) -> None:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(executor, "_native", Exhausted())
        with pytest.raises(CapacityError, match=r"ran out within a step of 3 rows.* may hold any"):
            executor.run(batch)
    assert executor.run(batch).shape == (3, plan.geometry.vocab_size)
