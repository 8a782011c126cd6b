"""Espalier: a language and runtime for programs that call language models many times."""
