"""Values: Python values to JSON and back, exactly or not at all. Pure.

Plain JSON values stay as they are; everything else is an object with the key `$type`. What
cannot come back as it was is refused with the path to it, before anything is written.
Objects that are reachable twice come back as two equal objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.model.errors import BadInput, Corrupt, Denied, HoldfastError, Unsupported
from holdfast.model.secrets import USUAL, Rule
from holdfast.state.decoder import Decoder, MisfitError, Secret, Survey, no_secret
from holdfast.state.encoder import Encoder, RefusalError, Seen
from holdfast.state.types import Types, known

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A state as JSON, and what there is to say about it."""

    state: dict[str, JSON]
    classes: set[type]  # of which it has instances
    left_out: dict[str, str | bytes]  # secrets that are not in it, by the way to each
    seen: Seen  # for the encoding of the next state, of which this must not be changed then
    typed: bool  # whether it has anything that JSON has no word for


def encode(
    state: dict[str, Any],
    types: Types = known,
    *,
    last: Seen | None = None,
    rule: Rule = USUAL,
) -> Encoded:
    """The state as JSON, without what looks like a secret. Raises BadInput with the path.

    `last` is what the encoding of an earlier state has seen; `rule` says what is a secret.
    """
    if not isinstance(state, dict):
        raise BadInput(f"state_data is a dict, not {type(state).__name__}")
    for key in list(state):
        if type(key) is not str:
            raise BadInput(f"a key of the state is text, not {type(key).__name__}: {key!r}")
    encoder = Encoder(types, last, rule)
    try:
        packed = encoder.mapping(state)
    except RefusalError as refusal:
        where = path_text(reversed(refusal.path))
        raise BadInput(f"{where}: {refusal.why}", hint=refusal.hint) from None
    except RecursionError:
        raise BadInput("the state is nested too deeply to save") from None
    left_out: dict[str, str | bytes] = {}
    for each in encoder.left_out:
        where = path_text(reversed(each.path))
        each.marker["name"] = where
        left_out[where] = each.value
    return Encoded(packed, encoder.classes, left_out, encoder.seen, encoder.typed)


def decode(
    packed: dict[str, JSON], types: Types = known, secret: Secret = no_secret
) -> dict[str, Any]:
    """The inverse of `encode`. A secret that nobody gives is not there.

    Raises Denied for a class that is not known to `types`, Unsupported for one that changed,
    Corrupt for what `encode` never wrote.
    """
    return _decoded(packed, Decoder(types, secret))


def survey(packed: dict[str, JSON]) -> Survey:
    """Decode all of a state without its classes; gives what they and its secrets are called.

    Raises Corrupt and Unsupported as `decode` does.
    """
    reader = Survey()
    _decoded(packed, reader)
    return reader


def _decoded(packed: dict[str, JSON], decoder: Decoder) -> dict[str, Any]:
    try:
        # The outermost object is always the state itself, even when it has a key `$type`.
        return decoder.mapping(packed)
    except MisfitError as misfit:
        raise _error(misfit) from misfit
    except RecursionError:
        raise Corrupt("the saved state is nested too deeply to read") from None


def path_text(path: Iterable[str | int]) -> str:
    """How a person would write the way to a value: `results[3].when`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the state"


def _error(misfit: MisfitError) -> HoldfastError:
    where = path_text(reversed(misfit.path))
    match misfit.cause:
        case Denied() | Unsupported() as cause:
            return type(cause)(f"{where}: {cause}", hint=cause.hint)
        case cause:
            return Corrupt(f"{where}: not a value that was saved ({cause!r})", where=where)
