"""Tree of thought: ideas branch, each branch branches again, and a vote picks a leaf.

Three first sentences of a story are drawn, each goes on in two ways (forks of forks), and three
readers vote for the story that they like best. All branches share the prompt, all leaves of a
branch share its first sentence, and all voters share the list of stories.

    espalier run examples/tree_of_thought.py
"""

from __future__ import annotations

from collections import Counter

import espalier as ep

HEROES = ["a fox", "an old fisherman", "a robot"]
NUM_CONTINUATIONS = 2
VOTERS = ["a child", "a teacher", "a poet"]

PROMPT = """Very short stories, of two sentences each.

Story: Once there was a mouse who wanted to see the sea.
Then she climbed into the pocket of a sailor and saw it all.

Story: Once there was a girl who could not sleep.
Then she counted the stars at her window until they closed her eyes.

"""


@ep.function
def storyteller(s: ep.ProgramState) -> list[str]:
    s += PROMPT
    beginnings = s.fork(len(HEROES))
    for beginning, hero in zip(beginnings, HEROES, strict=True):
        beginning += f"Story: Once there was {hero} who"
        beginning += ep.gen("first", max_tokens=20, stop=[".", "\n"], temperature=0.7)
        beginning += ".\nThen"
    leaves = [beginning.fork(NUM_CONTINUATIONS) for beginning in beginnings]
    for group in leaves:
        group += ep.gen("second", max_tokens=24, stop=[".", "\n"], temperature=0.7)
    return [
        f"Once there was {hero} who{beginning['first']}. Then{leaf['second']}."
        for hero, beginning, group in zip(HEROES, beginnings, leaves, strict=True)
        for leaf in group
    ]


@ep.function
def vote(s: ep.ProgramState, stories: list[str]) -> list[int]:
    s += "Stories:\n"
    for number, story in enumerate(stories, start=1):
        s += f"{number}. {story}\n"
    ballots = s.fork(len(VOTERS))
    for ballot, voter in zip(ballots, VOTERS, strict=True):
        ballot += f"\nThe story that {voter} likes best is number "
        ballot += ep.select("choice", choices=[str(n) for n in range(1, len(stories) + 1)])
    return [int(ballot["choice"]) for ballot in ballots]


def main() -> None:
    stories = storyteller.run(seed=7).ret_value
    for number, story in enumerate(stories, start=1):
        print(f"{number}. {story}")
    votes = vote(stories).ret_value
    for voter, number in zip(VOTERS, votes, strict=True):
        print(f"{voter} votes for {number}")
    best, _ = Counter(votes).most_common(1)[0]
    print(f"Chosen: {stories[best - 1]}")


if __name__ == "__main__":
    main()
