"""The worker's side of a session: it runs the user's code and knows no store and no key.

Modules here import as little as they can, because every session waits for them.
"""
