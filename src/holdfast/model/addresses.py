"""Addresses and tokens of servers, as people type them: checked before a library fails on them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from holdfast.model.errors import BadInput

HINT = "e.g. http://127.0.0.1:8787"


def server_address(url: str, schemes: tuple[str, ...] = ("http", "https")) -> SplitResult:
    """The parts of a server's address. Raises BadInput for what is none."""
    try:
        parts = urlsplit(url)
        name, port = parts.hostname or "", parts.port
        name.encode("idna")  # as whoever looks the name up will
    except ValueError:  # a port that is none, half of an IPv6 address, a name that cannot be
        name, port = "", None
    if not name or port == 0 or parts.scheme not in schemes:
        raise BadInput(f"not a server's address: {url!r:.200}", hint=HINT)
    if not url.isprintable() or " " in url:
        raise BadInput(f"not a server's address: {url!r:.200}", hint=HINT)
    return parts


def check_token(token: str | None, name: str = "the server's token") -> None:
    """Whether a token can be sent. Raises BadInput, and does not repeat it."""
    if token and (not token.isprintable() or max(token) > "\xff"):  # a header is Latin-1, one line
        raise BadInput(
            f"{name} has characters that no header can carry", hint="a line break, perhaps"
        )
