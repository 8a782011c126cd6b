"""An agent that reasons and acts: the model chooses a tool, Python runs it, the model reads on.

The prompt with the worked examples is shared by all questions, and each step goes on from the
tokens of the step before.

    espalier run examples/react_agent.py
"""

from __future__ import annotations

import ast
import operator

import espalier as ep

EXAMPLES = """Answer questions with two tools: Lookup finds a number, Calculate does arithmetic.

Question: How many legs do 5 cats have?
Thought: I need the number of legs of a cat.
Action: Lookup
Input: legs of a cat
Result: 4
Thought: One has 4, so the answer is 5 * 4.
Action: Calculate
Input: 5 * 4
Result: 20
Thought: The answer is 20.
Action: Finish
Input: 20

Question: How many days are there in 3 weeks?
Thought: I need the number of days of a week.
Action: Lookup
Input: days of a week
Result: 7
Thought: One has 7, so the answer is 3 * 7.
Action: Calculate
Input: 3 * 7
Result: 21
Thought: The answer is 21.
Action: Finish
Input: 21

"""

NUMBERS = {
    "hours of a day": 24,
    "keys of a piano": 88,
    "legs of a spider": 8,
    "months of a year": 12,
    "players of a football team": 11,
    "strings of a violin": 4,
    "wheels of a car": 4,
}

QUESTIONS = [
    "How many legs do 6 spiders have?",
    "How many hours are there in 5 days?",
    "How many wheels do 7 cars have?",
]

MAX_STEPS = 5
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(expression: str) -> str:
    try:
        return str(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError):
        return "not a calculation"


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("only + - * / of numbers")


@ep.function
def answer(s: ep.ProgramState, question: str) -> str | None:
    s += EXAMPLES
    s += f"Question: {question}\n"
    for step in range(MAX_STEPS):
        given = f"input_{step}"
        s += "Thought:" + ep.gen(f"thought_{step}", max_tokens=32, stop="\n", temperature=0)
        s += "\nAction: " + ep.select(f"action_{step}", choices=["Lookup", "Calculate", "Finish"])
        s += "\nInput: "
        if s[f"action_{step}"] == "Lookup":
            s += ep.select(given, choices=list(NUMBERS))
            result = str(NUMBERS[s[given]])
        else:
            s += ep.gen(given, max_tokens=16, stop="\n", temperature=0)
            if s[f"action_{step}"] == "Finish":
                return s[given].strip()
            result = calculate(s[given])
        s += f"\nResult: {result}\n"
    return None


def main() -> None:
    for state in answer.run_batch([{"question": question} for question in QUESTIONS]):
        print(state.text().removeprefix(EXAMPLES).rstrip())
        print(f"=> {state.ret_value or 'no answer'}\n")


if __name__ == "__main__":
    main()
