"""What benchmark scripts of the reference import from its `test` package. No tests of Espalier."""
