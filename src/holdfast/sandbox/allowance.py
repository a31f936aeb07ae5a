"""Allowances: what the sandboxes of one token may be given, within what the server gives at all.

`settle` is asked before anything is started. What is refused is refused with the name of the limit
that refuses it, so that its reader knows which line of the tokens file to talk about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.model.errors import Denied
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.protocol.sandbox_messages import Limits as Asked
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.egress import PORTS

_SIZES = ("memory_bytes", "cpus", "processes", "disk_bytes", "seconds")
_NAMES = {"memory_bytes": "memory", "disk_bytes": "disk"}  # as the tokens file has them


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a sandbox may be given; None: whatever the server gives."""

    network: bool = True  # the host's network
    egress: tuple[str, ...] | None = None  # rules that those of a sandbox must be within
    engines: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    cpus: float | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    seconds: float | None = None

    def check(self, request: CreateRequest, engine: str) -> None:
        """Everything but the sizes. Raises Denied."""
        if request.network and not self.network:
            raise _refused("network", "the host's network")
        for rule in request.egress:
            if self.egress is not None and not any(_within(rule, each) for each in self.egress):
                raise _refused("egress", f"egress to {rule}", self.egress)
        if self.engines is not None and engine not in self.engines:
            raise _refused("engines", f"the engine {engine}, which this server has", self.engines)
        image = request.image or "default"
        if self.images is not None and image not in self.images:
            raise _refused("images", f"the image {image}", self.images)

    def settle(self, request: CreateRequest, engine: str, server: Limits) -> CreateRequest:
        """The request with this token's sizes in it, which it then has wherever it comes back.
        Raises Denied for more than there may be, of anything."""
        self.check(request, engine)
        asked = request.limits or Asked()
        mine = {name: getattr(self, name) for name in _SIZES if getattr(self, name) is not None}
        for name in _SIZES:
            wanted = getattr(asked, name)
            if wanted is None:
                continue
            told = _NAMES.get(name, name)
            if name in mine and wanted > mine[name]:
                raise _refused(told, f"limits.{name} of {wanted}", (str(mine[name]),))
            if wanted > getattr(server, name):
                raise Denied(
                    f"this server gives no sandbox limits.{name} of {wanted}",
                    hint=f"at most {getattr(server, name)}: serve --sandbox-{told}",
                )
        if not mine:
            return request
        given = {
            name: getattr(asked, name) or min(mine[name], getattr(server, name)) for name in mine
        }
        return msgspec.structs.replace(request, limits=msgspec.structs.replace(asked, **given))


EVERYTHING = Allowance()


def _refused(limit: str, what: str, allowed: Sequence[str] = ()) -> Denied:
    told = f"; it allows {', '.join(allowed) or 'none'}" if allowed or limit == "egress" else ""
    return Denied(
        f"this token's sandboxes may not have {what}",
        hint=f"the limit is `{limit}` of its table in the server's tokens file{told}",
    )


def _within(rule: str, allowed: str) -> bool:
    """Whether everything that one egress rule leads to is what another one leads to."""
    name, _, port = rule.lower().partition(":")
    wide, _, wanted = allowed.lower().partition(":")
    if (port != wanted) if wanted else (port and int(port) not in PORTS):
        return False
    return name == wide or (wide.startswith("*.") and name.removeprefix("*").endswith(wide[1:]))
