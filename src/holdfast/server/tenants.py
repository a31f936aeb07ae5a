"""Tenants: further tokens of a server, each with a quota and an allowance. They lead to sandboxes
and nowhere else.

The file is TOML, a table for each: the token, or better its SHA-256, and what its sandboxes may be
given. What a table does not say is as the server allows, but for two things that must be given on
purpose: the host's network, and the owner's snapshots and templates.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from starlette.types import Scope

from holdfast.model.addresses import check_token
from holdfast.model.errors import BadInput, from_path_error
from holdfast.sandbox.admission import OWNER, Tenant
from holdfast.sandbox.allowance import Allowance
from holdfast.sandbox.egress import check_rules

TENANT = "holdfast.tenant"  # in a request's scope
SHORTEST = 16  # characters of a token
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LISTS = ("egress", "engines", "images", "shared")
_SIZES = {"memory": "memory_bytes", "disk": "disk_bytes"}
_AMOUNTS = {"cpus": "cpus", "processes": "processes", "seconds": "seconds"}
_FIELDS = {"token", "sha256", "sandboxes", "network", *_LISTS, *_SIZES, *_AMOUNTS}
_SIZE = re.compile(r"(\d{1,15})\s*([KMGT]i)?B?")
_UNITS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
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
        if not name or not isinstance(fields, Mapping) or not fields.keys() <= _FIELDS:
            raise BadInput(f"{path}: {name!r:.100} cannot be read", hint=_HINT)
        key = _key(path, name, fields)
        if key in found:
            raise BadInput(f"{path}: {name!r:.100} has the token of another")
        found[key] = Tenant(
            name,
            _quota(path, name, fields.get("sandboxes", quota)),
            _allowance(path, name, fields),
            _texts(path, name, fields, "shared") or (),
        )
    return found


def _allowance(path: Path, name: str, fields: Mapping[str, object]) -> Allowance:
    network = fields.get("network", False)
    if not isinstance(network, bool):
        raise _bad(path, name, "network", "true or false")
    egress = _texts(path, name, fields, "egress")
    if egress is not None:
        check_rules(egress)
    sizes = {into: _size(path, name, fields, each) for each, into in _SIZES.items()}
    amounts = {into: _amount(path, name, fields, each) for each, into in _AMOUNTS.items()}
    if amounts["processes"] is not None:
        amounts["processes"] = int(amounts["processes"])
    return Allowance(
        network=network,
        egress=egress,
        engines=_texts(path, name, fields, "engines"),
        images=_texts(path, name, fields, "images"),
        **sizes,
        **amounts,  # type: ignore[arg-type]  # the one that is whole was made so
    )


def _texts(
    path: Path, name: str, fields: Mapping[str, object], field: str
) -> tuple[str, ...] | None:
    given = fields.get(field)
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise _bad(path, name, field, 'a list of texts, e.g. ["default"]')
    return tuple(given)


def _size(path: Path, name: str, fields: Mapping[str, object], field: str) -> int | None:
    given = fields.get(field)
    if given is None:
        return None
    read = _SIZE.fullmatch(given) if isinstance(given, str) else None
    number = int(read[1]) * _UNITS[read[2]] if read else given
    if isinstance(number, bool) or not isinstance(number, int) or number < 1 << 20:
        raise _bad(path, name, field, "a size of 1MiB or more, e.g. 512MiB")
    return number


def _amount(path: Path, name: str, fields: Mapping[str, object], field: str) -> float | None:
    given = fields.get(field)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e9:
        raise _bad(path, name, field, "a number above 0")
    return given


def _bad(path: Path, name: str, field: str, expected: str) -> BadInput:
    return BadInput(f"{path}: bad {field} for {name!r:.100}", hint=f"expected {expected}")


def _key(path: Path, name: str, fields: Mapping[str, object]) -> str:
    token, given = fields.get("token"), fields.get("sha256")
    if isinstance(token, str) and given is None:
        if len(token) < SHORTEST:
            raise BadInput(
                f"{path}: the token of {name!r:.100} has less than {SHORTEST} characters"
            )
        check_token(token, f"{path}: the token of {name!r:.100}")
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
