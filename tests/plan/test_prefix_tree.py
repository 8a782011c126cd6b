"""The prefix tree against the plain set of all prefixes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from espalier.plan.prefix_tree import (
    PrefixNode,
    PrefixTree,
    common_length,
    mark_generated,
    mark_prompt,
)

Ids = tuple[int, ...]
sequences = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)
requests = st.lists(st.tuples(sequences, st.lists(st.integers(0, 2), max_size=5).map(tuple)))


def ids_of(node: PrefixNode) -> Ids:
    return tuple(token for part in node.path() for token in part.ids)


def prefixes(ids: Ids, start: int = 0) -> set[Ids]:
    return {ids[:end] for end in range(start + 1, len(ids) + 1)}


@given(st.lists(sequences))
def test_insert_tells_what_was_known_and_keeps_every_sequence(given_ids: list[Ids]) -> None:
    tree, known, ends = PrefixTree(), set[Ids](), []
    for ids in given_ids:
        node, num_known = tree.insert(ids)
        assert num_known == sum(prefix in known for prefix in prefixes(ids))
        known |= prefixes(ids)
        ends.append((node, ids))
        # A node that was returned before stays the end of its sequence, whatever is split.
        assert all(ids_of(end) == sequence for end, sequence in ends)
    assert sum(len(node.ids) for node in tree.nodes()) == len(known)
    assert sum(1 for _ in tree.nodes()) == tree.num_nodes


@given(requests)
def test_prompt_tokens_are_counted_once_and_outputs_are_free(
    given_ids: list[tuple[Ids, Ids]],
) -> None:
    tree, in_prompts, in_outputs = PrefixTree(), set[Ids](), set[Ids]()
    for prompt, output in given_ids:
        node, _ = tree.insert(prompt)
        end, _ = tree.insert(prompt + output)
        mark_prompt(node)
        mark_generated(node, end)
        in_prompts |= prefixes(prompt)
        in_outputs |= prefixes(prompt + output, len(prompt))
    distinct, needed = tree.count_prompt_tokens()
    assert distinct == len(in_prompts)
    assert needed == len(in_prompts - in_outputs)


@given(sequences, sequences)
def test_common_length_is_that_of_a_scan(left: Ids, right: Ids) -> None:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    assert common_length(left, right) == count
