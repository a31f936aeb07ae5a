"""Archives of Podman: a checkpoint of ours becomes one that Podman restores, and the other way."""
