"""Backends in the reference's form, and what makes backends of this language of them."""
