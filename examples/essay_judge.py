"""Judges an essay: branch, solve, merge (the example of the SGLang paper, figure 2).

First the model decides whether the essay keeps to its topic; if not, the program ends early. Then
it judges several dimensions at once, in forks that share the essay, and merges the judgements
into a summary and a grade.

    espalier run examples/essay_judge.py
"""

from __future__ import annotations

import espalier as ep

TOPIC = "the city library"

ESSAY = """\
When I was seven, my grandmother took me to the city library for the first time. I remember the
smell of paper and floor wax, and the sound of the big door that closed behind us like the door
of a ship. She signed a form, and I got a small green card with my name on it. I have carried a
card of that library ever since.

People say that libraries have become useless, since every book can be found with a telephone. I
do not agree. On a telephone I find what I was looking for. In a library I find what I was not
looking for. Last winter I went to borrow a book about bicycles and came home with a history of
salt, because it stood one shelf too high and had a torn blue back. It was the best book that I
read that year, and no search would ever have brought it to me.

A library is also one of the last rooms in our city where nobody has to buy anything. On cold
mornings the old men come to read the newspaper, and they stay until noon. In the afternoon the
children do their homework at the long table, because it is quiet there and it is not quiet at
home. Two years ago the council wanted to close it on Saturdays to save money. More than four
hundred people wrote letters, and the door stayed open.

Of course a library must change. Ours has computers now, and a room where you can learn to repair
a lamp or to sew. The shelves with the old encyclopaedias are gone, and I do not miss them. But
the green card is the same, and so is the sound of the door. I hope that some day I shall take a
child by the hand and sign the form, and that the library will still be there to close its door
behind us.
"""

OTHER_ESSAY = """\
To bake a good loaf you need flour, water, salt and time. Mix them in the evening and leave the
dough in a cool place over night. In the morning fold it, let it rise once more, and bake it in a
very hot oven until the crust is dark.
"""

DIMENSIONS = {
    "clarity": "how clearly it is written",
    "structure": "how it begins and how it ends",
    "examples": "which examples it gives",
    "style": "how its language sounds",
}


@ep.function
def judge(s: ep.ProgramState, essay: str, topic: str) -> None:
    s += f"Here is an essay by a student.\n\nEssay:\n{essay}\n"

    # Branch: an essay on something else is not judged.
    s += "The topic of the essay is "
    s += ep.select("about", choices=[topic, "cooking", "sport", "travel"]) + ".\n\n"
    if s["about"] != topic:
        return

    # Solve: one fork for each dimension. The essay is computed once for all of them.
    forks = s.fork(len(DIMENSIONS))
    for fork, (name, question) in zip(forks, DIMENSIONS.items(), strict=True):
        fork += f"A teacher comments on the {name} of the essay, {question}:\n"
        fork += '"The essay' + ep.gen("comment", max_tokens=32, stop=[".", "\n"], temperature=0)
        fork += f'."\nThe teacher finds the {name} '
        fork += ep.select("mark", choices=["excellent", "good", "fair", "poor"])
    forks.join()

    # Merge: the comments become one prompt again.
    s += "Comments of the teacher:\n"
    for name, comment, mark in zip(DIMENSIONS, s["comment"], s["mark"], strict=True):
        s += f"- {name} ({mark}): The essay{comment}.\n"
    s += "\nIn short, the author says that"
    s += ep.gen("summary", max_tokens=40, stop=[".", "\n"], temperature=0) + ".\n"
    s += "\nGrade (A is the best, D the worst): " + ep.select("grade", choices=["A", "B", "C", "D"])


def show(state: ep.ProgramState) -> None:
    if "grade" not in state:
        print(f"Not judged: the essay is about {state['about']}.")
        return
    for name, comment, mark in zip(DIMENSIONS, state["comment"], state["mark"], strict=True):
        print(f"{name:10}{mark:10}The essay{comment}.")
    print(f"In short, the author says that{state['summary']}.")
    print(f"Grade: {state['grade']}")


def main() -> None:
    for title, essay in (("The green card", ESSAY), ("A good loaf", OTHER_ESSAY)):
        print(f"== {title} ==")
        show(judge(essay, TOPIC))


if __name__ == "__main__":
    main()
