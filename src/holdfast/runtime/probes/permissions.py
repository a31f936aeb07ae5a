"""Whether other users of this machine can open what Holdfast keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.model.files import GROUP, access_of, exposure
from holdfast.model.home import default_store_url
from holdfast.runtime.finding import Finding, Status

# What Holdfast makes in its home, without the store.
_KEPT = ("key", "keys", "cache", "copies", "prints", "registry", "run", "repl-history")
_CONTENT = ("log", "packs", "keys")


def probe_permissions(home: Path, environ: Mapping[str, str]) -> Finding:
    """Look at the home, the signing key and the store; nothing is changed."""
    found = [exposure(home / name) for name in _KEPT]
    if named := environ.get("HOLDFAST_KEY_FILE"):
        found.append(exposure(Path(named)))
    address = default_store_url(environ)
    if "://" not in address:
        store = Path(address).expanduser()
        allowed = 0o070 if access_of(store) is GROUP else 0
        if any(exposure(store / name, allowed=allowed) for name in _CONTENT):
            found.append(exposure(store, allowed=allowed))
    wide = [one for one in found if one is not None]
    if not wide:
        detail = f"what is in {home} and in the store is closed to other users"
        return Finding("permissions", Status.OK, detail)
    detail = "; ".join(map(str, wide))
    mends = " && ".join(one.mends for one in wide)
    return Finding("permissions", Status.LIMITED, detail, mends=mends)
