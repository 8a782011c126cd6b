"""Architectures as Plans, and the models that can be pulled by name."""
