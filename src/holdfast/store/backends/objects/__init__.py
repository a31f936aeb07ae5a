"""Object stores: S3, Google Cloud Storage, Azure and whatever speaks like them."""
