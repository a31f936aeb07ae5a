"""Containers: a wrapper in front of runc that freezes those that ask for it, and revives them."""
