"""Compiler passes: each takes a graph and gives one that means the same, and says why it does."""
