"""Few-shot classification and extraction over a batch.

The examples stand first in every prompt, so that they are computed once for the whole batch.

    espalier run examples/few_shot.py
"""

from __future__ import annotations

import espalier as ep

TOPICS = [" animals", " food", " music", " sport", " weather"]

CLASSIFY = """Say what each sentence is about.

Sentence: The cat slept on the warm roof.
Topic: animals

Sentence: Heavy rain is expected tonight.
Topic: weather

Sentence: She plays the violin in an orchestra.
Topic: music

Sentence: The soup needs more salt.
Topic: food

Sentence: Our team won the match by two goals.
Topic: sport

"""

EXTRACT = """Find the person, the place and the year in each sentence.

Sentence: In 1905 Albert Einstein worked at the patent office in Bern.
Person: Albert Einstein
Place: Bern
Year: 1905

Sentence: Marie Curie moved to Paris in 1891.
Person: Marie Curie
Place: Paris
Year: 1891

"""

SENTENCES = [
    "A whale is the largest creature in the sea.",
    "The bread is fresh from the oven.",
    "He scored in the last minute.",
    "Snow fell on the hills all day.",
    "They sang in four voices.",
    "Two dogs ran across the field.",
]

FACTS = [
    "Charles Darwin returned to England in 1836.",
    "In 1787 Mozart travelled to Prague with his wife.",
    "Ada Lovelace was born in London in 1815.",
    "Galileo taught in Padua until 1610.",
]


@ep.function
def classify(s: ep.ProgramState, sentence: str) -> str:
    s += CLASSIFY
    s += f"Sentence: {sentence}\nTopic:"
    s += ep.select("topic", choices=TOPICS)
    return s["topic"].strip()


@ep.function
def extract(s: ep.ProgramState, sentence: str) -> dict[str, str]:
    s += EXTRACT
    s += f"Sentence: {sentence}\n"
    for field in ("Person", "Place", "Year"):
        s += f"{field}:" + ep.gen(field, max_tokens=16, stop="\n", temperature=0) + "\n"
    return {field: s[field].strip() for field in ("Person", "Place", "Year")}


def main() -> None:
    print("Topics")
    for state in classify.run_batch([{"sentence": sentence} for sentence in SENTENCES]):
        print(f"  {state.ret_value:8} {state.text().splitlines()[-2].removeprefix('Sentence: ')}")
    print("Facts")
    for state in extract.run_batch([{"sentence": sentence} for sentence in FACTS]):
        found = state.ret_value
        print(f"  {found['Year']}: {found['Person']} in {found['Place']}")


if __name__ == "__main__":
    main()
