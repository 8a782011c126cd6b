"""Output that must have a form: matchers that allow tokens and recognise the end."""
