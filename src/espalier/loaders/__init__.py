"""Model files: GGUF, Hugging Face folders, and finding them by name."""
