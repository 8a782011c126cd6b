"""Tree of thought: ideas branch, each branch branches again, and a vote picks a leaf.

Three first sentences of a story are drawn, each goes on in two ways (forks of forks), and three
readers vote for the story that they like best. All branches share the prompt, all leaves of a
branch share its first sentence, and all voters share the list of stories.

    espalier run examples/tree_of_thought.py
"""

from __future__ import annotations

from collections import Counter

import espalier as ep

HEROES = {"a fox": "she", "an old fisherman": "he", "a robot": "it"}
NUM_CONTINUATIONS = 2
VOTERS = ["a child", "a teacher", "a poet"]

PROMPT = """Very short stories for children, of two sentences each.

Story: Once there was a mouse who wanted to see the sea.
One day she climbed into the pocket of a sailor and saw it all.

Story: Once there was a boy who could not sleep.
One day he counted the stars at his window until they closed his eyes.

Story: Once there was a bear who was afraid of the snow.
One day he built a snowman and they became friends.

"""


@ep.function
def storyteller(s: ep.ProgramState) -> list[str]:
    s += PROMPT
    beginnings = s.fork(len(HEROES))
    for beginning, (hero, pronoun) in zip(beginnings, HEROES.items(), strict=True):
        beginning += f"Story: Once there was {hero} who"
        beginning += ep.gen("first", max_tokens=20, stop=[".", "\n"])
        beginning += f".\nOne day {pronoun}"
    leaves = [beginning.fork(NUM_CONTINUATIONS) for beginning in beginnings]
    for group in leaves:
        group += ep.gen("second", max_tokens=24, stop=[".", "\n"])
    return [
        f"Once there was {hero} who{beginning['first']}. One day {pronoun}{leaf['second']}."
        for (hero, pronoun), beginning, group in zip(
            HEROES.items(), beginnings, leaves, strict=True
        )
        for leaf in group
    ]


@ep.function
def vote(s: ep.ProgramState, stories: list[str]) -> list[int]:
    s += "Stories:\n" + "".join(f"- {story}\n" for story in stories)
    ballots = s.fork(len(VOTERS))
    for ballot, voter in zip(ballots, VOTERS, strict=True):
        ballot += f"\nThe favourite story of {voter}: "
        ballot += ep.select("choice", choices=list(dict.fromkeys(stories)))
    return [stories.index(ballot["choice"]) for ballot in ballots]


def main() -> None:
    stories = storyteller.run(temperature=0.5, seed=3).ret_value
    for number, story in enumerate(stories, start=1):
        print(f"{number}. {story}")
    votes = vote(stories).ret_value
    for voter, index in zip(VOTERS, votes, strict=True):
        print(f"{voter} votes for {index + 1}")
    best, _ = Counter(votes).most_common(1)[0]
    print(f"Chosen: {stories[best]}")


if __name__ == "__main__":
    main()
