"""Decides what is a secret: by the name that a text stands under, and by the text itself.

Every level asks here: records of sessions, kept source, reasons and answers in running text, and
states. A place is judged, never an object: the same text may be data under another name.

- A text that has the format of a known kind of key is a secret wherever it stands.
- Some words at the end of a name settle it (`password`, `api_key`).
- Other words mean several things (`token`, `key`): then the text must also look made by a machine.

Pure. What is compiled or counted is done when it is first needed, because workers import this.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import AnyStr, TypeVar

import msgspec

LEAST = 15  # characters: no key of a known format is shorter
VARIABLE = "HOLDFAST_SECRET_"  # and the name, in capitals
UNNAMED = "key"  # what a secret is called that stands under no name

# The last word of a name, or its last two.
_SURE = {
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "credentials",
}  # fmt: skip
_SURE_KEYS = {"api", "access", "private", "secret"}  # with `key` after it
_SURE_ENDS = ("password", "passwd", "passphrase", "secret", "apikey")  # `dbpassword`
_UNSURE = {
    "token", "key", "pwd", "auth", "bearer", "pin", "cookie", "authorization", "pass",
}  # fmt: skip
_WORD = r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+"

SURE, UNSURE = 2, 1  # what a name says; 0: nothing


# A kind of key: a literal, which ends with a mark, a character that is looked for first; patterns
# of what stands after and before it; and whether it begins a word: `task-...` is no `sk-...`.
Format = tuple[bytes, bytes, bytes, bool]


def _formats(literals: str, after: str, before: str = "", word: bool = True) -> list[Format]:
    return [
        (literal.encode(), after.encode(), before.encode(), word) for literal in literals.split()
    ]


_URL = (
    rb"//[^\s/?#@:'\"<>]{0,256}:(?![{<$%*]|[xX.]+@)[^\s/?#@'\"<>]{1,256}"
    rb"(?=@(?!sha256:)[A-Za-z0-9\[{%$_])"
)

_BY_MARK: dict[bytes, list[Format]] = {
    b"_": [
        *_formats("ghp_ gho_ ghu_ ghs_ ghr_ npm_ nfp_", "[A-Za-z0-9]{36}"),
        *_formats("github_pat_", "[A-Za-z0-9_]{40}"),
        *_formats("sk_live_ rk_live_ pk_live_ sk_test_ rk_test_ sk_prod_", "[A-Za-z0-9]{16}"),
        *_formats("whsec_", "[A-Za-z0-9+/]{24}"),
        *_formats("shpat_ shpss_ shpca_ shppa_", "[A-Fa-f0-9]{32}"),
        *_formats("hf_", "[A-Za-z0-9]{30}"),
        *_formats("dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{64}"),
        *_formats("lin_api_ lin_oauth_", "[A-Za-z0-9]{32}"),
        *_formats("glsa_", "[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
        *_formats("glc_", "[A-Za-z0-9+/=]{32}"),
        *_formats("ntn_ secret_", "[A-Za-z0-9]{40}"),
        *_formats("sntrys_ sntryu_", "[A-Za-z0-9+/=_-]{40}"),
        *_formats("gsk_", "[A-Za-z0-9]{40}"),
        *_formats("r8_ sbp_ rubygems_", "[A-Za-z0-9]{37}"),
        *_formats("lsv2_pt_ lsv2_sk_", "[a-f0-9]{32}"),
    ],
    b"-": [
        # Words joined by hyphens have no long run of letters and digits.
        *_formats("sk-", "(?:[A-Za-z0-9]+[_-]+){0,8}[A-Za-z0-9]{16}"),
        *_formats("glpat- gldt- glrt- glptt- glcbt- glft- glsoat- gloas-", "[A-Za-z0-9_-]{20}"),
        *_formats("xoxb- xoxp- xoxa- xoxr- xoxs- xapp-", "[A-Za-z0-9-]{10}"),
        *_formats("xoxe- xoxe.xoxp- xoxe.xoxb-", "[A-Za-z0-9-]{20}"),
        *_formats("key-", "[a-f0-9]{32}"),
        *_formats("pypi-", "AgE[A-Za-z0-9_-]{50}"),
        *_formats("PMAK-", "[a-f0-9]{24}-[a-f0-9]{34}"),
        *_formats("NRAK- NRII- NRJS-", "[A-Za-z0-9_-]{19}"),
        *_formats("sq0atp- sq0csp-", "[A-Za-z0-9_-]{22}"),
        *_formats("GOCSPX-", "[A-Za-z0-9_-]{28}"),
        *_formats("HRKU-", "[A-Za-z0-9_-]{30}"),
        *_formats("pul-", "[a-f0-9]{40}"),
        *_formats("pplx- xai- tvly-", "[A-Za-z0-9]{32}"),
        *_formats("v1.0-", "[a-f0-9]{24}-[a-f0-9]{100}"),
        *_formats("AGE-SECRET-KEY-", "1[A-Z0-9]{58}"),
    ],
    b".": [
        *_formats("SG.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
        *_formats("hvs. hvb. hvr.", "[A-Za-z0-9_-]{24}"),
        *_formats(
            "dp.st. dp.pt. dp.ct. dp.sa. dp.scim. dp.audit.",
            r"(?:[a-z0-9-]{2,35}\.)?[A-Za-z0-9]{40}",
        ),
        *_formats(".atlasv1.", "[A-Za-z0-9_=-]{60}", "[A-Za-z0-9]{14}"),
        *_formats("ya29.", "[A-Za-z0-9_-]{20}"),
        *_formats("sk.", r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{20}"),
        # A bot of Discord's: who it is, when, and a signature.
        *_formats(".", r"[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}", "[MNO][A-Za-z0-9_-]{22,27}"),
    ],
    b":": [
        *_formats(":", "AA[A-Za-z0-9_-]{33}", "[0-9]{8,10}"),
        # A URL with a password; what stands for one in a template is none, and a digest no host.
        (
            b":",
            _URL,
            b"",
            False,
        ),
    ],
    b"=": [
        *_formats("AccountKey= SharedAccessKey=", "[A-Za-z0-9+/]{40}", word=False),
        *_formats("?sig= &sig=", "[A-Za-z0-9%/+]{40}", word=False),
    ],
    b"/": [
        *_formats("com/services/", "[A-Z0-9]{8,}/[A-Z0-9]{8,}/[A-Za-z0-9]{20}", word=False),
        *_formats("/api/webhooks/", "[0-9]{10,}/[A-Za-z0-9_-]{50}", word=False),
        *_formats("1//", "0[A-Za-z0-9_-]{40}"),
    ],
    b"~": _formats("Q~", "[A-Za-z0-9_~.-]{31}", "[A-Za-z0-9_~.-]{3}[0-9]", word=False),
    b"K": [*_formats("AK", "IA[A-Z0-9]{16}"), *_formats("SK", "[a-f0-9]{32}")],
    b"S": _formats("AS", "IA[A-Z0-9]{16}"),
    b"z": _formats("AIz", "a[A-Za-z0-9_-]{35}"),
    b"E": _formats("E", "AAA[A-Za-z0-9_-]{56}"),
    b"T": _formats("ATAT ATCT", "T3[A-Za-z0-9_=-]{50}"),
    b"J": [
        *_formats(
            "eyJ", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10}", word=False
        ),
        *_formats("eyJ", "rIjoi[A-Za-z0-9+/=_-]{40}"),
    ],
    b"B": [(b"-----B", rb"EGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----", b"", False)],
    b"p": _formats("dap", "i[a-f0-9]{32}"),
    b"g": _formats("fig", "[do]_[A-Za-z0-9_-]{40}"),
    b"k": [
        *_formats("dck", "r_[po]at_[A-Za-z0-9_-]{20}"),
        *_formats("pscale_tk", "n_[A-Za-z0-9_.=-]{32}"),
    ],
    b"w": _formats("pscale_pw", "_[A-Za-z0-9_.=-]{32}"),
}  # fmt: skip
FORMATS = tuple(each for formats in _BY_MARK.values() for each in formats)
_ENDS = {mark: tuple({literal for literal, *_ in formats}) for mark, formats in _BY_MARK.items()}
# What follows a mark at least, where marks are frequent; `_NEXT` of those that are literals, too.
_LATER = {b"_": rb"(?=[A-Za-z0-9+/]{16})", b"-": rb"(?=[A-Za-z0-9_-]{10})"}
_NEXT = {
    b".": rb"(?=[A-Za-z0-9_.-]{20})",
    b":": rb"(?=AA[A-Za-z0-9_-]{33}|%s)" % _URL,
    b"E": rb"(?=AAA)",
}
_SMALL = 4096  # bytes, in which all marks are looked at before a pattern is compiled
_LONGEST = 64  # bytes of a literal, or before it


# Compiled when one is needed: together they take longer than all else that is imported with them.
@functools.cache
def _compiled(pattern: AnyStr) -> re.Pattern[AnyStr]:
    return re.compile(pattern)


@functools.cache
def _start(mark: bytes) -> re.Pattern[bytes]:
    """A mark, after characters that literals have there."""
    ends = _ENDS[mark]
    least = min(map(len, ends))
    behind = b"".join(
        b"[%s]" % re.escape(bytes(sorted({end[-back] for end in ends})))
        for back in (3, 2)
        if least >= back
    )
    behind = b"(?<=%s%s)" % (behind, re.escape(mark)) if behind else b""
    return re.compile(re.escape(mark) + behind + (_NEXT.get(mark) or _LATER.get(mark, b"")))


class Rule(msgspec.Struct, frozen=True):
    """What is left out, and what is kept although it looks like a secret."""

    keep: frozenset[str] = frozenset()  # names, as `plain_name` has them
    leave_out: frozenset[str] = frozenset()  # likewise
    keep_all: bool = False

    @classmethod
    def of(cls, keep_secrets: bool | Iterable[str] = False, leave_out: Iterable[str] = ()) -> Rule:
        """The rule for these options. Raises TypeError for what are no names."""
        if isinstance(keep_secrets, bool):
            made = cls(frozenset(), _names(leave_out), keep_secrets)
        else:
            made = cls(_names(keep_secrets), _names(leave_out))
        return USUAL if made == USUAL else made  # which is told by its identity

    def after(self, given: Iterable[str]) -> Rule:
        """The rule where secrets of these names were given again: they are left out again, also
        if the name alone would not say so."""
        more = {plain_name(name) for name in given if said_by(name) != SURE and name != UNNAMED}
        more -= self.leave_out | self.keep
        return Rule(self.keep, self.leave_out | more, self.keep_all) if more else self

    def secret(self, name: object, value: object) -> bool:
        """Whether the text at this place is a secret: the one decision that all others follow.

        `name` is that of the variable, field, key or parameter; anything but text says nothing.
        Only `str` and `bytes` are secrets; a subclass of them is not looked at.
        """
        kind = type(value)  # compared by identity: a metaclass may do anything when it is asked
        if (kind is not str and kind is not bytes) or not value:
            return False
        if type(name) is str:
            if self.kept(name):
                return False
            said = self.says(name)
            if said and (said == SURE or looks_made(value)):  # type: ignore[arg-type]  # see above
                return True
        return not self.keep_all and secret_value(value)

    def says(self, name: str) -> int:
        """What a name says by itself: SURE, UNSURE or 0."""
        if self.leave_out and plain_name(name) in self.leave_out:
            return SURE
        return 0 if self.keep_all or self.kept(name) else said_by(name)

    def kept(self, name: object) -> bool:
        """Whether the text under this name is to be kept, whatever it looks like."""
        if not self.keep or type(name) is not str:
            return False
        plain = plain_name(name)
        return plain in self.keep and plain not in self.leave_out


USUAL = Rule()


def _names(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError("a text, not a list of names")
    found = list(names)
    if not all(isinstance(name, str) for name in found):
        raise TypeError("not a list of names")
    return frozenset(map(plain_name, found))


secret = USUAL.secret


@functools.lru_cache(10_000)  # the names of a program are few, and asked for again and again
def said_by(name: str) -> int:
    """What a name says about its text: SURE, UNSURE or 0. `tokens` and `tokenizer` say nothing."""
    words = [word.lower() for word in _compiled(_WORD).findall(name) if not word.isdigit()]
    if not words:
        return 0
    last = words[-1]
    if last in _SURE or last.endswith(_SURE_ENDS):
        return SURE
    if last == "key" and len(words) > 1 and words[-2] in _SURE_KEYS:
        return SURE
    if last in ("accesskey", "privatekey", "secretkey"):
        return SURE
    return UNSURE if last in _UNSURE or last == "authtoken" else 0


def secret_name(name: str) -> bool:
    """Whether a name by itself says that its text is a secret."""
    return said_by(name) == SURE


def secret_value(value: object) -> bool:
    """Whether a text has the format of a known kind of key, wherever it stands."""
    if isinstance(value, str):
        return len(value) >= LEAST and has_key(value.encode("utf-8", "replace"))
    return isinstance(value, bytes) and len(value) >= LEAST and has_key(value)


def has_key(data: bytes, exact: bool = True) -> bool:
    """Whether these bytes have a key of a known format in them.

    Not `exact`: what stands before a key may be anything, as in serialised data, where a length
    may look like a letter.
    """
    return any(_keys(data, exact))


def keys_in(data: bytes) -> list[tuple[int, int]]:
    """Where the keys of known formats are in running text; none overlaps another."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(_keys(data, True)):
        if not found or start >= found[-1][1]:
            found.append((start, end))
        elif end > found[-1][1]:
            found[-1] = found[-1][0], end
    return found


def _keys(data: bytes, exact: bool) -> Iterable[tuple[int, int]]:
    for mark, ends in _ENDS.items():
        if mark not in data:
            continue
        # In small data, whole literals are found sooner than a pattern is compiled.
        if len(data) >= _SMALL or mark in _NEXT:
            places = _starts(data, mark)
        elif any(map(data.__contains__, ends)):
            places = _each(data, mark)
        else:
            continue
        for at in places:
            before = data[max(0, at + 1 - _LONGEST) : at + 1]
            if before.endswith(ends):
                for form in _BY_MARK[mark]:
                    if before.endswith(form[0]):
                        yield from _at(data, at + 1 - len(form[0]), form, exact)


def _each(data: bytes, mark: bytes) -> Iterable[int]:
    position = data.find(mark)
    while position >= 0:
        yield position
        position = data.find(mark, position + 1)


def _starts(data: bytes, mark: bytes) -> Iterable[int]:
    return (match.start() for match in _start(mark).finditer(data))


def _at(data: bytes, start: int, form: Format, exact: bool) -> Iterable[tuple[int, int]]:
    """The key of this format whose literal is here, if there is one."""
    literal, after, before, word = form
    match = _compiled(after).match(data, start + len(literal))
    if match is None:
        return
    if before:
        ahead = _compiled(b"(?:%s)$" % before).search(data[max(0, start - _LONGEST) : start])
        if ahead is None:
            return
        start -= len(ahead[0])
    if not (exact and word and start and data[start - 1 : start].isalnum()):
        yield start, match.end()


# -- what a machine made ---------------------------------------------------------------------

_SCHEME = r"(?i:Bearer|Basic|Token|Digest) +"
_MADE = 16  # characters
_MOST = 4096  # of which so many are looked at
_RUN = r"[A-Za-z0-9]{16,}"
_CHARACTERS = r"[\x21-\x7e]+"
_SEPARATORS = r"[^A-Za-z0-9]"
_HEX = r"[0-9a-f]+|[0-9A-F]+"
# Two letters that follow each other in English words, and in the names of programs, far more often
# than chance lets them.
_USUAL_PAIRS = (
    " th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve"
    " co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur el ta la us ct id ge ec em ol il ss"
    " mo pe no na di po rs et ad ac am rt ho ay ee ul tr so pr im sh op pa up ut ey ow ts lo ag ab"
    " um od ca da fi fo ex ty ue ld ck qu mp un ni sc "
)


def looks_made(value: str | bytes) -> bool:
    """Whether a text looks made by a machine: long, without spaces, letters and digits in no
    order that words have."""
    if isinstance(value, bytes):
        if not value.isascii():
            return False
        value = value.decode()
    if len(value) < _MADE:
        return False
    scheme = _compiled(_SCHEME).match(value)
    if scheme is not None:
        value = value[scheme.end() :]
    if len(value) < _MADE or not _compiled(_CHARACTERS).fullmatch(value):
        return False
    value = value[:_MOST]
    bare = _compiled(_SEPARATORS).sub("", value)
    few = len(value.rstrip("=")) - len(bare) <= 0.14 * len(value)
    # A word in front of it, as in `prod-9f8a...`, does not make it one of words.
    return (few and _random(bare)) or any(map(_random, _compiled(_RUN).findall(value)))


def _random(text: str) -> bool:
    """Whether letters and digits follow each other as chance would have it."""
    if len(text) < 14 or text.isdigit() or text.isalpha() or _entropy(text) < 2.7:
        return False
    pieces = _compiled(_WORD).findall(text)  # words, as far as it has any, and numbers
    size = len(text) / len(pieces)
    if _compiled(_HEX).fullmatch(text):
        return size < 4.2 and len(pieces) > 3
    words = [piece.lower() for piece in pieces if not piece.isdigit()]
    if sum(map(len, words)) < 3:
        return False
    pairs = [word[at : at + 2] for word in words for at in range(len(word) - 1)]
    usual = sum(pair in _USUAL_PAIRS for pair in pairs)
    if size > 3.6:  # long words, or long numbers
        return size < 10 and len(pairs) > 7 and usual < 0.34 * len(pairs)
    # The longer its words are, the less they may look like any.
    most = 0.75 if size < 2.3 else 0.5 if size < 3 else 0.42
    return len(pairs) < 4 or usual < most * len(pairs)


def _entropy(text: str) -> float:
    """Bits for each character."""
    counts = {char: text.count(char) for char in set(text)}
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())


# -- giving them again -----------------------------------------------------------------------

_Text = TypeVar("_Text", str, bytes, str | bytes)


@functools.lru_cache(10_000)
def plain_name(name: str) -> str:
    """The form in which names are compared: `api-key`, `API_KEY` and `api_key` are one."""
    return re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def variable_of(name: str) -> str:
    """The environment variable that gives the secret of this name again."""
    return VARIABLE + plain_name(name)


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The secrets in an environment, by name."""
    return {k.removeprefix(VARIABLE): v for k, v in environ.items() if k.startswith(VARIABLE)}


def find(given: Mapping[str, _Text], name: str) -> _Text | None:
    """The secret that was given under a name, in upper or lower case; None if none was."""
    found = given.get(name)
    if found is None and given:
        wanted = plain_name(name)
        found = next((text for key, text in given.items() if plain_name(key) == wanted), None)
    return found


def asked_for(given: Mapping[str, _Text], names: Iterable[str]) -> dict[str, _Text]:
    """Those of the given secrets that have one of these names."""
    wanted = set(map(plain_name, names))
    return {name: text for name, text in given.items() if plain_name(name) in wanted}


def typed(text: str | bytes, binary: bool) -> str | bytes:
    """A secret as the type that it had. Raises ValueError for bytes that are no text."""
    if binary:
        return text.encode() if isinstance(text, str) else text
    return text.decode() if isinstance(text, bytes) else text


def how_to_give(name: str) -> str:
    """What to type so that a secret is there again."""
    return f"a secret is not saved; secrets={{{name!r}: ...}} or {variable_of(name)} brings it back"
