"""The smallest program: ask, read an answer, let the model choose.

espalier run examples/quickstart.py
"""

from __future__ import annotations

import espalier as ep


@ep.function
def capital(s: ep.ProgramState, country: str) -> None:
    s += ep.user(f"What is the capital of {country}?")
    s += ep.assistant(ep.gen("answer", max_tokens=32, temperature=0))
    s += ep.user("Which language do people speak there?")
    s += ep.assistant(ep.select("language", choices=["Arabic", "French", "German", "Japanese"]))


def main() -> None:
    countries = ["France", "Japan", "Egypt", "Germany"]
    for state in capital.run_batch([{"country": country} for country in countries]):
        print(f"{state['answer']} People speak {state['language']}.")


if __name__ == "__main__":
    main()
