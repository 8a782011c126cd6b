"""The language: primitives, program states, their interpreter, and the report of a run."""
