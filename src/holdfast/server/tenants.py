"""Tenants: further tokens of a server, each with a quota. They lead to sandboxes and nowhere else.

The file is TOML, a table for each of them: the token, or better its SHA-256, and `sandboxes`.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from starlette.types import Scope

from holdfast.model.errors import BadInput, from_path_error
from holdfast.sandbox.admission import OWNER, Tenant

TENANT = "holdfast.tenant"  # in a request's scope
SHORTEST = 16  # characters of a token
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {"token", "sha256", "sandboxes"}
_HINT = 'a table for each: [name], then sha256 = "..." or token = "...", and sandboxes = 8'


def tenant_of(scope: Scope) -> Tenant:
    found = scope.get(TENANT)
    return found if isinstance(found, Tenant) else OWNER


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read(path: Path, quota: int | None) -> dict[str, Tenant]:
    """Tenants by the digest of their token; `quota` is for those without one of their own.
    Raises HoldfastError."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise from_path_error(error, "reading the tokens") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise BadInput(f"{path}: {error}", hint=_HINT) from None
    found: dict[str, Tenant] = {}
    for name, fields in told.items():
        if not isinstance(fields, Mapping) or not fields.keys() <= _FIELDS:
            raise BadInput(f"{path}: {name!r:.100} cannot be read", hint=_HINT)
        key = _key(path, name, fields)
        if key in found:
            raise BadInput(f"{path}: {name!r:.100} has the token of another")
        found[key] = Tenant(name, _quota(path, name, fields.get("sandboxes", quota)))
    return found


def _key(path: Path, name: str, fields: Mapping[str, object]) -> str:
    token, given = fields.get("token"), fields.get("sha256")
    if isinstance(token, str) and given is None:
        if len(token) < SHORTEST:
            raise BadInput(
                f"{path}: the token of {name!r:.100} has less than {SHORTEST} characters"
            )
        return digest(token)
    if isinstance(given, str) and token is None and _DIGEST.fullmatch(given.lower()):
        return given.lower()
    raise BadInput(f"{path}: {name!r:.100} needs a token or its sha256", hint=_HINT)


def _quota(path: Path, name: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{path}: bad number of sandboxes for {name!r:.100}: {value!r:.60}")
    return value
