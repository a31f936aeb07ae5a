"""The writable layer of a container: an overlay's upper directory as one stream, and back."""
