"""The log: what happened, in one order. Its fold is the store's state."""
