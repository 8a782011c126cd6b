"""What a program would cost, found without a model: a run with the real tokenizer alone."""
