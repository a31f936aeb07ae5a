"""What looks like a secret: names and texts of notebooks are data, keys of providers are not."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import secrets
import string
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator

import pytest
import sklearn.utils
from tests.secret_corpus import ANY, DATA, KEYS, NAMED

from holdfast.model.secrets import (
    Rule,
    asked_for,
    find,
    has_key,
    keys_in,
    looks_made,
    plain_name,
    said_by,
    secret,
    secret_value,
    typed,
    variable_of,
)


def test_the_corpus_is_large() -> None:
    assert len(DATA) >= 300
    assert len({provider.split()[0] for provider in (*KEYS, *NAMED)}) >= 60


@pytest.mark.parametrize("provider", KEYS)
def test_keys_are_secrets_wherever_they_stand(provider: str) -> None:
    key = KEYS[provider]
    for text in (key, f"words before {key} and after", f"{key[:3]} {key[:6]} {key}", "ä " + key):
        assert secret_value(text)
        assert secret("anything", text)
        assert secret(3, text.encode())
        assert has_key(text.encode(), exact=False)
        assert has_key(b"x" * 5000 + b" " + text.encode())  # large data is searched another way
    assert any(secret(None, key[start:end] + key[end:]) for start, end in keys_in(key.encode()))


@pytest.mark.parametrize("provider", NAMED)
def test_names_say_what_has_no_format(provider: str) -> None:
    name, text = NAMED[provider]
    assert secret(name, text)
    assert secret(name.upper(), text.encode())
    assert not secret("column", text)


@pytest.mark.parametrize(("name", "text"), DATA)
def test_words_of_data_are_no_secrets(name: str, text: str) -> None:
    assert not secret(name, text)
    assert not secret(name, text.encode())


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("password", 2), ("db_password", 2), ("PASSWORD2", 2), ("dbPassword", 2), ("passwd", 2),
        ("api_key", 2), ("OPENAI_API_KEY", 2), ("apiKey", 2), ("apikey", 2), ("x-api-key", 2),
        ("aws_secret_access_key", 2), ("private_key", 2), ("credentials", 2), ("secret", 2),
        ("client_secret", 2), ("passphrase", 2), ("userpassword", 2), ("api_key_1", 2),
        ("github_token", 1), ("token", 1), ("pwd", 1), ("key", 1), ("primary_key", 1), ("auth", 1),
        ("pin", 1), ("cookie", 1), ("bearer", 1), ("Authorization", 1), ("authToken2", 1),
        ("tokens", 0), ("tokenizer", 0), ("keys", 0), ("monkey", 0), ("passwords_seen", 0),
        ("secretary", 0), ("password_length", 0), ("token_pattern", 0), ("api_key_col", 0),
        ("author", 0), ("spin", 0), ("", 0), ("12", 0), ("é", 0),
    ],
)  # fmt: skip
def test_the_last_word_of_a_name_decides(name: str, answer: int) -> None:
    assert said_by(name) == answer


def test_only_texts_are_secrets() -> None:
    assert secret("password", "x")
    assert secret("password", b"x")
    for value in (["x"], "", b"", 5, None, type("Text", (str,), {})("x")):
        assert not secret("password", value)


GENERATED: dict[str, Callable[[], str]] = {
    "hex": lambda: secrets.token_hex(20),
    "urlsafe": lambda: secrets.token_urlsafe(32),
    "letters and digits": lambda: "".join(secrets.choice(ANY) for _ in range(32)),
    "lower case": lambda: "".join(
        secrets.choice(string.ascii_lowercase + string.digits) for _ in range(32)
    ),
    "base32": lambda: "".join(secrets.choice(string.ascii_uppercase + "234567") for _ in range(52)),
    "uuid": lambda: str(uuid.uuid4()),
    "after words": lambda: f"prod-key-{secrets.token_hex(16)}",
    "in a header": lambda: f"Bearer {secrets.token_urlsafe(32)}",
}


@pytest.mark.parametrize("kind", GENERATED)
def test_what_machines_make_is_recognised(kind: str) -> None:
    found = sum(looks_made(GENERATED[kind]()) for _ in range(400))
    assert found >= 380


# -- the names of libraries ------------------------------------------------------------------


def parameters_of(made: object) -> Iterator[tuple[str, object]]:
    try:
        signature = inspect.signature(made)  # type: ignore[arg-type]  # whatever is callable
    except Exception:  # noqa: BLE001  # whatever a module has may refuse in its own way
        return
    for name, parameter in signature.parameters.items():
        yield name, parameter.default


def test_no_default_of_the_standard_library_is_a_secret() -> None:
    seen = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(sys.stdlib_module_names - {"antigravity", "this", "idlelib"}):
            try:
                module = importlib.import_module(name)
            except ImportError:  # of another system
                continue
            for made in list(vars(module).values()):
                inside = list(vars(made).values()) if inspect.isclass(made) else []
                for each in (made, *inside):
                    for parameter, default in parameters_of(each) if callable(each) else ():
                        seen += 1
                        assert not secret(parameter, default), (name, made, parameter)
    assert seen > 10_000


def test_no_parameter_of_scikit_learn_is_a_secret() -> None:
    seen = 0
    for _, kind in sklearn.utils.all_estimators():
        for name, default in parameters_of(kind):
            seen += 1
            assert not secret(name, default), (kind, name)
            assert not secret(name, "some_value"), (kind, name)
    for module in pkgutil.iter_modules(sklearn.__path__):
        for made in list(vars(importlib.import_module(f"sklearn.{module.name}")).values()):
            for name, default in parameters_of(made) if callable(made) else ():
                seen += 1
                assert not secret(name, default), (made, name)
    assert seen > 2000


# -- options ---------------------------------------------------------------------------------

KEY = KEYS["OpenAI"]


def test_all_secrets_can_be_kept() -> None:
    rule = Rule.of(True)
    assert not rule.secret("password", "x")
    assert not rule.secret("text", KEY)
    assert Rule.of(True, ["study_id"]).secret("study_id", "x")


def test_names_can_be_kept_or_added() -> None:
    rule = Rule.of(["Password", "example"], ["study_id"])
    assert not rule.secret("password", "x")
    assert not rule.secret("PASSWORD", KEY)
    assert not rule.secret("example", KEY)
    assert rule.secret("Study_ID", "x")
    assert rule.secret("db_password", "x")
    assert rule.secret("text", KEY)
    assert Rule.of(["password"], ["password"]).secret("password", "x")


@pytest.mark.parametrize("given", ["password", [1], 7])
def test_options_are_lists_of_names(given: object) -> None:
    with pytest.raises(TypeError):
        Rule.of(given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Rule.of(False, given)  # type: ignore[arg-type]


def test_secrets_are_found_in_any_case() -> None:
    assert find({"PASSWORD": "x"}, "password") == "x"
    assert find({"api-key": "x"}, "API_KEY") == "x"
    assert find({"password": "x", "PASSWORD": "y"}, "password") == "x"
    assert find({"pass": "x"}, "password") is None
    assert variable_of("api-key") == "HOLDFAST_SECRET_API_KEY"
    assert plain_name("Api key") == "API_KEY"
    assert asked_for({"A": "1", "b": "2", "c": "3"}, ["a", "B"]) == {"A": "1", "b": "2"}


def test_secrets_keep_their_type() -> None:
    assert typed("é", True) == "é".encode()
    assert typed(b"x", True) == b"x"
    assert typed(b"x", False) == typed("x", False) == "x"
    with pytest.raises(UnicodeDecodeError):
        typed(b"\xff", False)
