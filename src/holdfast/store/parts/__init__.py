"""Parts: named byte streams, cut into chunks by what they hold."""
