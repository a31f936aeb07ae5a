"""Values and errors: the vocabulary every other package speaks. The only I/O is that
of `disk`, through which all packages make files durable."""
