"""Transfer: checkpoints carried from one store to another, in a file or directly."""
