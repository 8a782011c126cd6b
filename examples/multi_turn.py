"""A conversation: each turn goes on from the last, whose tokens are still in the cache.

espalier run examples/multi_turn.py
"""

from __future__ import annotations

import espalier as ep

QUESTIONS = [
    "What is the capital of France?",
    "And of Japan?",
    "And of Egypt?",
    "Which language do people speak there?",
]


@ep.function
def conversation(s: ep.ProgramState, questions: list[str]) -> None:
    s += ep.system("You are a helpful assistant who answers in one short sentence.")
    for number, question in enumerate(questions):
        s += ep.user(question)
        s += ep.assistant(ep.gen(f"answer_{number}", max_tokens=48, temperature=0))


def main() -> None:
    state = conversation(QUESTIONS)
    for number, question in enumerate(QUESTIONS):
        answer = state[f"answer_{number}"]
        used = state.get_meta_info(f"answer_{number}")
        print(f"> {question}")
        print(f"  {answer.strip()}")
        print(f"  [{used['cached_tokens']} of {used['prompt_tokens']} prompt tokens cached]")


if __name__ == "__main__":
    main()
