"""Secrets in records: none is in a checkpoint, and everything beside it comes back."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import io
import platform
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secret_corpus import DATA, KEYS, NAMED, pem

from holdfast.model.secrets import USUAL, Rule
from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout, omissions
from holdfast.session.worker.capture import Capture
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.placeholder import Placeholder, PlaceholderError, describe
from holdfast.session.worker.restore import Restore

KEY = KEYS["OpenAI"]
MADE = NAMED["Twilio"][1]


class Stored(NamedTuple):
    """A checkpoint that was made in this process."""

    parts: dict[str, bytes]
    memory: bytes
    items: dict[str, Any]

    @property
    def everything(self) -> bytes:
        return b"".join(self.parts.values()) + self.memory


def capture(namespace: dict[str, Any], rule: Rule = USUAL) -> Stored:
    cells = CellLog()
    made = Capture(namespace, cells, CodeIndex(cells), Definitions(namespace), rule=rule)
    captured = made.run(layout.Environment(python=platform.python_version()))
    memory = b"".join(bytes(image.memory) for image in captured.memory.values())
    report = layout.decode(captured.parts["report"], layout.ReportPart)
    return Stored(captured.parts, memory, {item.name: item for item in report.items})


def restore(stored: Stored, secrets: Mapping[str, str | bytes] | None = None) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    cells = CellLog()
    definitions = Definitions(namespace)
    Restore(stored.parts, namespace, cells, CodeIndex(cells), definitions, secrets or {}).run()
    return namespace


# -- any nesting -----------------------------------------------------------------------------


class Login(NamedTuple):
    user: object
    password: object


@dataclasses.dataclass
class Account:
    user: object
    password: object


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    user: object
    password: object


class Plain:
    def __init__(self, user: object, password: object) -> None:
        self.user, self.password = user, password


class Slotted:
    __slots__ = ("password", "user")

    def __init__(self, user: object, password: object) -> None:
        self.user, self.password = user, password


class Mapped(dict[str, Any]):
    pass


# Each puts a secret under a name, beside something that is none.
NAMING: dict[str, Callable[[object, object], object]] = {
    "dict": lambda user, secret: {"user": user, "password": secret},
    "ordered": lambda user, secret: collections.OrderedDict(user=user, password=secret),
    "default": lambda user, secret: collections.defaultdict(list, user=user, password=secret),
    "own dict": lambda user, secret: Mapped(user=user, password=secret),
    "user dict": lambda user, secret: collections.UserDict(user=user, password=secret),
    "namespace": lambda user, secret: types.SimpleNamespace(user=user, password=secret),
    "named tuple": Login,
    "dataclass": Account,
    "frozen": Frozen,
    "attributes": Plain,
    "slots": Slotted,
    "partial": lambda user, secret: functools.partial(print, user, password=secret),
    "large dict": lambda user, secret: (
        {f"entry {n}": n for n in range(5000)} | {"user": user, "password": secret}
    ),
}
AROUND: dict[str, Callable[[object], object]] = {
    "list": lambda inner: [1, inner, "x"],
    "tuple": lambda inner: (inner, 2.5),
    "dict": lambda inner: {"a": 1, "inner": inner},
    "named tuple": lambda inner: Login(inner, None),
    "dataclass": lambda inner: Account(inner, None),
    "attributes": lambda inner: Plain(inner, None),
    "deque": lambda inner: collections.deque([inner]),
    "twice": lambda inner: [inner, inner],
    "chain": lambda inner: collections.ChainMap({"inner": inner}),
}


def same(before: Any, after: Any, secret: object) -> bool:
    """Whether two values are equal but for a secret, which is a placeholder in the second."""
    if before is secret or (type(before) is type(secret) and before == secret):
        return type(after) is Placeholder
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return list(before) == list(after) and all(
            same(before[key], after[key], secret) for key in before
        )
    if isinstance(before, (list, tuple, collections.deque)):
        return len(before) == len(after) and all(
            same(a, b, secret) for a, b in zip(before, after, strict=True)
        )
    if isinstance(before, functools.partial):
        return same((before.args, before.keywords), (after.args, after.keywords), secret)
    if isinstance(before, (Frozen, Slotted)):
        return same((before.user, before.password), (after.user, after.password), secret)
    if hasattr(before, "__dict__"):
        return same(vars(before), vars(after), secret)
    return bool(before == after)


@settings(max_examples=60, deadline=None)
@given(
    naming=st.sampled_from(sorted(NAMING)),
    around=st.lists(st.sampled_from(sorted(AROUND)), max_size=5),
    secret=st.sampled_from(["correct horse battery", b"correct horse battery", "pw#1", KEY]),
    user=st.sampled_from(["ada", 7, None, ["x", {"y": 1}]]),
)
def test_no_nesting_keeps_a_secret(
    naming: str, around: list[str], secret: str | bytes, user: object
) -> None:
    value = NAMING[naming](user, secret)
    for each in around:
        value = AROUND[each](value)
    stored = capture({"value": value, "other": [1, 2, 3]})
    leaked = secret if isinstance(secret, bytes) else secret.encode()
    assert leaked not in stored.everything
    assert "password" in stored.items["value"].secrets
    assert stored.items["other"].outcome == "exact"
    found = restore(stored)
    assert same(value, found["value"], secret)
    again = restore(stored, {"password": secret})
    assert not same(value, again["value"], secret) or secret is None
    assert restored_equal(value, again["value"])


def restored_equal(before: Any, after: Any) -> bool:
    return same(before, after, object())


@settings(max_examples=40, deadline=None)
@given(
    st.recursive(
        st.one_of(st.integers(), st.text(max_size=5), st.just(KEY)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.tuples(inner, inner),
            st.dictionaries(st.text(max_size=5), inner, max_size=4),
        ),
        max_leaves=20,
    )
)
def test_no_structure_keeps_a_key(value: Any) -> None:
    stored = capture({"value": value, "also": [value]})
    assert KEY.encode() not in stored.everything
    found = restore(stored)
    assert same(value, found["value"], KEY)
    assert same([value], found["also"], KEY)


# -- places ----------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", KEYS)
def test_no_place_keeps_the_key_of_a_provider(provider: str) -> None:
    key = KEYS[provider]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print("logged in with", key)
    stored = capture(
        {
            "variable": key,
            "listed": ["a", key, "b"],
            "entry": {"value": key},
            "pair": ("a", key),
            "members": {key, "a"},
            "named": Login(key, "x"),
            "record": Account(key, "x"),
            "frozen": Frozen(key, "x"),
            "attribute": Plain(key, None),
            "binary": key.encode(),
            "output": printed.getvalue(),
            "stream": printed,
            "as_key": {key: 1},
        }
    )
    kept = stored.everything
    # Some are all that a text has, so what is looked for is the middle of it.
    middle = max(key.split("\n"), key=len)
    assert middle.encode() not in kept
    assert {name for name, item in stored.items.items() if not item.secrets} == set()


@pytest.mark.parametrize("provider", NAMED)
def test_no_place_keeps_what_its_name_tells(provider: str) -> None:
    name, text = NAMED[provider]
    stored = capture(
        {
            name: text,
            "entry": {name: text},
            "attribute": types.SimpleNamespace(**{name: text}),
            "binary": {name: text.encode()},
        }
    )
    assert {name for item in stored.items.values() for name in item.secrets} == {name}
    assert all(item.secrets for item in stored.items.values())
    assert len(text) < 5 or text.encode() not in stored.everything


def test_no_function_keeps_one() -> None:
    namespace: dict[str, Any] = {}
    texts = [NAMED["Twilio"], NAMED["SMTP"], NAMED["a header"], ("text", KEY), ("url", pem())]
    for number, (name, text) in enumerate(texts):
        space: dict[str, Any] = {}
        exec(
            f"def around({name}):\n    return lambda: {name}\n"
            f"def connect(host, {name}):\n    return {name}\n",
            space,
        )
        connect = space["connect"]
        namespace |= {
            f"closure_{number}": space["around"](text),
            f"partial_{number}": functools.partial(connect, "host", text),
            f"default_{number}": types.FunctionType(connect.__code__, space, "name", (text,)),
        }
    stored = capture(namespace)
    assert [name for name, item in stored.items.items() if not item.secrets] == []
    for _, text in texts:
        assert text.encode() not in stored.everything


def test_no_bytecode_keeps_one() -> None:
    """As of functions in a cell that begins with `%%time`, of which no source is known."""
    space: dict[str, Any] = {}
    exec(
        "def connect(self):\n    password = 'leak-1'\n    self.api_key = b'leak-2'\n"
        "    other = secret = 'leak-3'\n"
        "    token, word = 'cat', 'data'\n    return password, self.api_key, token, word\n"
        f"def call():\n    return '{KEY}'\n",
        space,
    )
    stored = capture({"connect": space["connect"], "call": space["call"]})
    assert b"leak-" not in stored.everything
    assert KEY.encode() not in stored.everything
    assert {"password", "api_key"} <= set(stored.items["connect"].secrets)
    found = restore(stored, {"api_key": "k"})
    password, *others = found["connect"](types.SimpleNamespace())
    assert others == [b"k", "cat", "data"]
    with pytest.raises(PlaceholderError, match="HOLDFAST_SECRET_PASSWORD"):
        password.upper()
    with pytest.raises(PlaceholderError):
        found["call"]().upper()


def test_no_large_or_deep_structure_keeps_one() -> None:
    """Pickle meets these in pieces, in which names and values stand apart."""
    texts = dict(NAMED.values()) | {"value": KEY}
    deep: dict[str, Any] = {}
    for level in range(3000):
        deep = {"inner": deep, **dict([list(texts.items())[level % len(texts)]])}
    several = {f"of {provider}": key for provider, key in KEYS.items()}
    stored = capture(
        {
            "large": {f"entry {n}": n for n in range(5000)} | texts | several,
            "rows": [{"n": n, **texts} for n in range(5000)],
            "deep": deep,
            "numbered": {n: n for n in range(5000)} | {-1: list(several.values())},
        }
    )
    for text in (*texts.values(), *several.values()):
        assert len(text) < 5 or max(text.split("\n"), key=len).encode() not in stored.everything
    assert set(texts) <= set(stored.items["large"].secrets)
    assert set(texts) == set(stored.items["rows"].secrets) == set(stored.items["deep"].secrets)
    assert stored.items["numbered"].secrets == ("key",)
    found = restore(stored, texts | several)
    assert found["large"] == {f"entry {n}": n for n in range(5000)} | texts | several
    assert found["rows"] == [{"n": n, **texts} for n in range(5000)]
    assert [type(each) for each in found["numbered"][-1]] == [Placeholder] * len(several)
    level, inner = 3000, found["deep"]
    while inner:
        level -= 1
        (name, text), _ = (list(texts.items())[level % len(texts)], None)
        assert inner[name] == text
        inner = inner["inner"]
    assert level == 0


def test_words_of_data_come_back() -> None:
    namespace: dict[str, Any] = {
        f"value_{n}": [Plain(text, None), {name: text}, (text,), text.encode()]
        for n, (name, text) in enumerate(DATA)
    }
    namespace |= {f"{name}": text for name, text in DATA if name.isidentifier()}
    stored = capture(namespace)
    assert [item for item in stored.items.values() if item.outcome != "exact"] == []
    found = restore(stored)
    assert {name: restored_equal(value, found[name]) for name, value in namespace.items()} == (
        dict.fromkeys(namespace, True)
    )


def test_the_same_text_elsewhere_is_data() -> None:
    word = "swordfish"
    entry = {"author": word, "password": word, "title": [word]}
    login = Login(word, word)
    plain = Plain(word, word)
    stored = capture({"entry": entry, "login": login, "plain": plain, "word": word})
    found = restore(stored)
    assert found["entry"]["author"] == found["entry"]["title"][0] == found["word"] == word
    assert found["login"].user == found["plain"].user == word
    for place in (found["entry"]["password"], found["login"].password, found["plain"].password):
        assert describe(place)[3] == "password"


def test_what_loses_a_secret_stays_shared() -> None:
    config: dict[str, Any] = {"password": "x", "user": "me"}
    config["self"] = config
    stored = capture({"config": config, "client": Plain(config, None), "twice": [config, config]})
    assert b'"x"' not in stored.everything
    found = restore(stored, {"PASSWORD": "y"})
    assert found["config"] is found["client"].user is found["twice"][0] is found["twice"][1]
    assert found["config"]["self"] is found["config"]
    assert found["config"]["password"] == "y"


def test_bytes_come_back_as_bytes() -> None:
    stored = capture({"password": b"x", "entry": {"secret": b"\xff\x00", "api_key": "text"}})
    found = restore(stored, {"password": "p", "secret": b"\xfe", "api_key": b"k"})
    assert found["password"] == b"p"
    assert found["entry"] == {"secret": b"\xfe", "api_key": "k"}
    gone = restore(stored, {"api_key": b"\xff"})
    assert describe(gone["password"])[0] == "bytes"
    with pytest.raises(PlaceholderError, match="no text"):
        gone["entry"]["api_key"].upper()


def test_arrays_keep_what_is_no_secret() -> None:
    several = np.array([*(f"word {n}" for n in range(20_000)), KEY, [1, 2]], dtype=object)
    stored = capture({"few": np.array(["a", KEY, "b"], dtype=object), "several": several})
    assert KEY.encode() not in stored.everything
    found = restore(stored)
    assert [found["few"][0], found["few"][2]] == ["a", "b"]
    assert list(found["several"][:20_000]) == list(several[:20_000])
    assert [describe(found["few"][1])[3], describe(found["several"][20_000])[3]] == ["key", "key"]


def test_what_is_missing_says_what_to_set() -> None:
    found = restore(capture({"entry": {"db-password": "x"}}))
    with pytest.raises(PlaceholderError, match="HOLDFAST_SECRET_DB_PASSWORD"):
        found["entry"]["db-password"].upper()


def test_a_missing_secret_can_be_given_after_the_next_checkpoint() -> None:
    """A session goes on without it, is captured again, and is restored where it is known."""
    value = {"login": Login("me", "x"), "entry": {"api_key": b"y"}, "keys": [KEY]}
    first = restore(capture({"value": value, "password": "z"}))
    second = restore(capture(first))
    stored = capture(second)
    assert set(stored.items["value"].secrets) == {"password", "api_key", "key"}
    given = {"password": "p", "api_key": "k", "key": "key"}
    found = restore(stored, given)
    assert found["value"] == {"login": ("me", "p"), "entry": {"api_key": b"k"}, "keys": ["key"]}
    assert found["password"] == "p"


def test_older_checkpoints_get_their_secrets() -> None:
    """They had texts where newer ones have calls, and said the names in words."""
    cell = layout.Cell(
        number=1,
        filename="<cell 1>",
        text="""def f():
    password = '<secret password>'
    return password
def g():
    api_key = '<secret api_key>'
    return api_key + ''
""",
    )
    kind = {"kind": "function", "cell": 1, "block_first": 1}
    definitions = (
        layout.Definition(
            label="f:f", name="f", names=("f",), first=1, last=3, block_last=3, qualname="f",
            line=1, **kind,
        ),
        layout.Definition(
            label="f:g", name="g", names=("g",), first=4, last=6, block_last=6, qualname="g",
            line=4, **kind | {"block_first": 4},
        ),
    )  # fmt: skip
    record = layout.Record(members=("name:token",), tier="secret", type_name="str")
    items = (
        ItemReport(name="token", outcome="skipped", tier="secret"),
        ItemReport(name="entry", outcome="rebuilt", reason="left out a secret: pwd; and more"),
    )
    parts = {
        "environment": layout.encode(layout.Environment()),
        "sources": layout.encode(layout.Sources(cells=(cell,), definitions=definitions)),
        "report": layout.encode(layout.ReportPart(items=items)),
        layout.SMALL_PART: layout.encode_record(record),
    }
    assert omissions.names(parts) == {"token", "pwd", "password", "api_key"}
    given = {"TOKEN": "t", "other": "o", "password": "p"}
    chosen = omissions.chosen(given, parts)
    assert chosen == {"TOKEN": "t", "password": "p"}
    found = restore(Stored(parts, b"", {}), chosen)
    assert found["token"] == "t"
    assert found["f"]() == "p"
    with pytest.raises(PlaceholderError, match="HOLDFAST_SECRET_API_KEY"):
        found["g"]()


def test_names_are_kept_and_added() -> None:
    namespace = {
        "password": "pass#1", "example": KEY, "study_id": "ada", "listed": [KEY],
        "entry": {"password": "pass#2", "example": KEY + "2", "study_id": "bob", "pwd": MADE},
    }  # fmt: skip
    stored = capture(namespace, Rule.of(["password", "example"], ["study_id"]))
    assert {name: item.secrets for name, item in stored.items.items()} == {
        "password": (), "example": (), "study_id": ("study_id",), "listed": (),
        "entry": ("study_id", "pwd"),
    }  # fmt: skip
    found = restore(stored, {"study_id": "ada", "pwd": MADE})
    assert found["entry"]["password"] == "pass#2"
    assert found["example"] == found["listed"][0] == KEY
    everything = capture(namespace, Rule.of(True))
    assert [item.outcome for item in everything.items.values()] == ["exact"] * 5
    assert restore(everything) == namespace | {"__builtins__": found["__builtins__"]} | {
        name: found[name] for name in ("__name__", "__doc__", "__spec__")
    }


class Estimator:
    """As libraries' estimators are: its parameters are named by the library."""

    def __init__(self, secret: str = "a", token: str = MADE, alpha: float = 1.0) -> None:
        self.secret, self.token, self.alpha = secret, token, alpha
        self.password = "found while it was fitted"

    def get_params(self) -> dict[str, object]:
        return {"secret": self.secret, "token": self.token, "alpha": self.alpha}


def test_parameters_of_estimators_are_data() -> None:
    stored = capture({"model": Estimator(), "with_key": Estimator(KEY)})
    found = restore(stored)
    assert found["model"].get_params() == Estimator().get_params()
    assert type(found["model"].password) is Placeholder
    assert KEY.encode() not in stored.everything
    assert type(found["with_key"].secret) is Placeholder


def test_fitted_vectorizers_come_back_whole() -> None:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    documents = ["the cat sat", "the dog ran"]
    models = {"count": CountVectorizer().fit(documents), "tfidf": TfidfVectorizer().fit(documents)}
    stored = capture({**models})
    assert [item.outcome for item in stored.items.values()] == ["exact", "exact"]
    found = restore(stored)
    for name, model in models.items():
        assert found[name].get_params() == model.get_params()
        assert (found[name].transform(documents) != model.transform(documents)).nnz == 0
