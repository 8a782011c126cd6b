"""The `espalier` command."""
