"""Values and errors: the vocabulary every other package speaks. It does no I/O."""
