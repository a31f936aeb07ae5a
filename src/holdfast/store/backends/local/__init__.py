"""A local directory: files, and the locks that the kernel keeps on them."""
