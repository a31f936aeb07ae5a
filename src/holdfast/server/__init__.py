"""The HTTP server: subjects, checkpoints and lineages over JSON and as pages for people."""
