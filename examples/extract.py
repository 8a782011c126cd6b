"""Records from messages: the model fills in a JSON schema, and only what the schema leaves open.

espalier run examples/extract.py
"""

from __future__ import annotations

import espalier
from espalier import gen

ORDER = {
    "type": "object",
    "properties": {
        "product": {"enum": ["apples", "bread", "coffee", "tea"]},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
        "customer": {"type": "string", "pattern": "^[A-Z][a-z]{1,15}$"},
    },
    "required": ["product", "quantity", "customer"],
    "additionalProperties": False,
}
EXAMPLES = """Message: Hi, Peter here, 7 tea for me please.
Order: {"product": "tea", "quantity": 7, "customer": "Peter"}

Message: My name is Ines. I need 40 coffee for the office.
Order: {"product": "coffee", "quantity": 40, "customer": "Ines"}

"""
MESSAGES = [
    "Hello, this is Maria. Please send me 12 apples.",
    "It's Tom again, I would like 3 coffee, thanks!",
    "Could you bring 25 bread to my place? Greetings, Anna",
]


@espalier.function
def extract(s, message):
    s += EXAMPLES
    s += f"Message: {message}\nOrder: "
    s += gen("order", json_schema=ORDER, whitespace="spaced", max_tokens=48, temperature=0)


def main():
    states = extract.run_batch([{"message": message} for message in MESSAGES])
    for state in states:
        order = state["order"]  # the parsed value
        print(f"{order['customer']} wants {order['quantity']} x {order['product']}")
    return states


if __name__ == "__main__":
    main()
