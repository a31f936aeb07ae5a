"""Wire formats, without any I/O: bytes in, messages out."""
