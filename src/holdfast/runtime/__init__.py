"""The engines' command lines, and what this machine can do: found out by trying, not assumed."""
