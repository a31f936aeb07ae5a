"""Secrets of sessions: what a real worker leaves out, is given, and does without them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.secret_corpus import KEYS
from tests.session.test_capture import _everything, run

from holdfast.model.errors import BadInput
from holdfast.session import Session
from holdfast.session.worker.library_settings import _entries
from holdfast.session.worker.placeholder import Placeholder

KEY = KEYS["OpenAI"]
SOURCE = f"""
import os

def connect(host, password='leak-1'):
    token = 'abc'
    secret = 'leak-2'
    return host + ':' + secret + token

def binary():
    api_key = b'leak-3'
    return api_key

def over_lines():
    passphrase = '''leak-4
    and more'''
    return passphrase

def formatted(n):
    credential = f'leak-5-{{n}}'
    return credential

def compared(password):
    return password == 'leak-6'

def matched(text):
    match text:
        case '{KEY}': return 'the key'
        case _: return 'another'

def environment():
    return os.environ.get('DB_PASSWORD', 'leak-7')

def documented():
    \"\"\"Called with {KEY}.\"\"\"
    return '<secret password>'  # not {KEY}

class Client:
    secret = 'leak-8'
    def __init__(self, passwd='leak-9'):
        self.passwd = passwd
    def header(self):
        return 'Bearer ' + self.secret

client = Client()
"""
CALLS = {
    "connect('h')": "SECRET", "binary() + b''": "API_KEY", "over_lines().strip()": "PASSPHRASE",
    "formatted(1).upper()": "CREDENTIAL", "compared('x')": "PASSWORD", "matched('x')": "KEY",
    "environment() + '!'": "DB_PASSWORD", "client.header()": "SECRET",
    "Client().passwd + ''": "PASSWD", "f'{client.secret}'": "SECRET",
    "'%s' % client.secret": "SECRET",
}  # fmt: skip


async def test_no_literal_becomes_another_text(session: Session, store) -> None:
    await run(session, SOURCE)
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    assert b"leak-" not in kept
    assert KEY.encode() not in kept
    assert set(cp.report["connect"].secrets) == {"secret", "password"}
    await session.restore(cp)
    for call, name in CALLS.items():
        error = (await session.execute(call)).error
        assert error is not None, call
        assert error.type.endswith(".PlaceholderError"), (call, error.traceback)
        assert f"HOLDFAST_SECRET_{name}" in error.message, call
    # What was data stays data, and what only looks like a mark is the user's own.
    assert await run(session, "documented()") == "<secret password>"
    assert await run(session, "[type(client).__name__, environment.__name__]") == [
        "Client",
        "environment",
    ]


async def test_literals_are_given_again_in_any_case(session: Session, store, monkeypatch) -> None:
    await run(session, SOURCE)
    cp = await session.checkpoint()
    monkeypatch.setenv("HOLDFAST_SECRET_SECRET", "s3")
    monkeypatch.setenv("HOLDFAST_SECRET_PASSWORD", "p")
    given = {"Api_Key": "k", "passphrase": b"two\nlines", "PASSWD": "w", "key": "x"}
    await session.restore(cp, secrets=given)
    assert await run(
        session,
        "[connect('h'), binary(), over_lines(), compared('p'), matched('x'), client.header(),"
        " Client().passwd, connect.__defaults__]",
    ) == ["h:s3abc", b"k", "two\nlines", True, "the key", "Bearer s3", "w", ("p",)]
    # What was given is left out again.
    again = _everything(store, await session.checkpoint())
    assert all(text not in again for text in (b"'s3'", b"two\\nlines", b'"w"'))


async def test_what_was_given_again_is_left_out_again(make, store) -> None:
    """Whatever it looks like: it is what somebody calls a secret."""
    session = await make("again")
    await run(
        session, f"text, entry = '{KEY}', {{'value': '{KEY}', 'token': 'a1B2c3D4e5F6g7H8i9'}}"
    )
    await run(session, f"def f():\n    url = '{KEY}'\n    return url")
    cp = await session.checkpoint()
    given = {"text": "given-1", "VALUE": "given-2", "token": "given-3", "url": "given-4"}
    await session.restore(cp, secrets=given)
    assert await run(session, "[text, entry, f()]") == [
        "given-1", {"value": "given-2", "token": "given-3"}, "given-4",
    ]  # fmt: skip
    again = await session.checkpoint()
    assert b"given-" not in _everything(store, again)
    await session.restore(again, secrets=given)
    assert await run(session, "[text, entry['value'], f()]") == ["given-1", "given-2", "given-4"]
    await session.shutdown()
    session = await Session.resume("again", store=store)
    assert b"given-" not in _everything(store, await session.checkpoint())
    await session.shutdown()


async def test_the_environment_says_what_to_keep(make, store, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEEP_SECRETS", "demo_password, other")
    monkeypatch.setenv("HOLDFAST_LEAVE_OUT", "study-id")
    session = await make("environment")
    await run(session, "demo_password, password, study_id = 'kept-1', 'leak-1', 'leak-2'")
    kept = _everything(store, await session.checkpoint())
    assert b"kept-1" in kept
    assert b"leak-" not in kept
    session = await make("options", keep_secrets=["password"])
    await run(session, "demo_password, password, study_id = 'leak-1', 'kept-1', 'leak-2'")
    kept = _everything(store, await session.checkpoint())
    assert b"kept-1" in kept
    assert b"leak-" not in kept


async def test_without_a_secret_a_session_goes_on(session: Session) -> None:
    """Captured again with its placeholders, it is whole where the secrets are known."""
    await run(session, SOURCE + "config = {'password': b'x', 'user': 'me'}\npassword = 'y'\n")
    await session.restore(await session.checkpoint())
    await session.restore(await session.checkpoint())
    cp = await session.checkpoint()
    assert cp.report["config"].secrets == cp.report["password"].secrets == ("password",)
    report = await session.restore(cp, secrets={"password": "p", "secret": "s"})
    assert report["password"].outcome == "rebuilt"
    assert await run(session, "[config, password, connect('h'), client.header()]") == [
        {"password": b"p", "user": "me"}, "p", "h:sabc", "Bearer s",
    ]  # fmt: skip


SPY = """
import sys

class Spy:
    def __init__(self):
        self.found = []
    def __reduce__(self):
        return (look, ())

def look():
    found = set()
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            for given in (value, getattr(value, 'secrets', None)):
                if type(given) is dict:
                    found |= {each for each in given.values() if type(each) in (str, bytes)}
        frame = frame.f_back
    made = Spy()
    made.found = sorted(str(each) for each in found if each[:5] in ('given', b'given'))
    return made

spy = Spy()
password = 'x'
entry = {'api_key': b'y'}
def connect():
    secret = 'z'
    return secret
"""


async def test_a_worker_gets_what_the_report_lists(make, monkeypatch) -> None:
    session = await make("listed", secrets={"passwd": "given-0", "API-KEY": b"given-1"})
    await run(session, SPY)
    cp = await session.checkpoint()
    monkeypatch.setenv("HOLDFAST_SECRET_PASSWORD", "given-2")
    monkeypatch.setenv("HOLDFAST_SECRET_GITHUB_TOKEN", "given-3")
    given = {"secret": "given-4", "other": "given-5"}
    await session.restore(cp, secrets=given)
    assert await run(session, "spy.found") == ["b'given-1'", "given-2", "given-4"]
    assert await run(session, "[password, entry, connect()]") == [
        "given-2", {"api_key": b"given-1"}, "given-4",
    ]  # fmt: skip
    listed = {name for item in cp.report for name in item.secrets}
    assert listed == {"password", "api_key", "secret"}


WAITING = f"""
def rows(n, passwd):
    for i in range(n):
        yield i, passwd

def around(secret):
    def inner():
        for i in range(9):
            yield i, secret
    return inner()

def written(n):
    api_key = 'leak-3'
    for i in range(n):
        yield i, api_key

first, second, third = rows(3, 'leak-1'), around('leak-2'), written(3)
fourth = (each + '{KEY}' for each in 'abc')
[next(each) for each in (first, second, third, fourth)]
"""


async def test_generators_under_way_keep_none(session: Session, store) -> None:
    await run(session, WAITING)
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    assert b"leak-" not in kept
    assert KEY.encode() not in kept
    await session.restore(cp, secrets={"passwd": "p", "secret": "s"})
    assert await run(session, "[next(first), next(second)]") == [(1, "p"), (1, "s")]
    error = (await session.execute("next(third)")).error
    assert error is not None
    assert error.type.endswith(".PlaceholderError")


def test_a_library_gets_no_placeholder_as_a_setting() -> None:
    library = SimpleNamespace(config={"theme": "dark", "api-key": "mine"})
    setting = _entries("config")
    missing = Placeholder("str", "a secret", b"", "api-key")
    setting.write(library, {"theme": "light"}, {"set": {"api-key": missing, "n": 1}, "delete": []})
    assert library.config == {"theme": "light", "n": 1}


async def test_secrets_of_the_environment_are_left_out(session: Session, store) -> None:
    await run(
        session, "import os\nos.environ['SMTP_PASSWORD'] = 'leak-1'\nos.environ['CITY'] = 'Ulm'"
    )
    cp = await session.checkpoint()
    assert b"leak-1" not in _everything(store, cp)
    assert cp.report["state:environment"].secrets == ("SMTP_PASSWORD",)
    await run(session, "os.environ.pop('SMTP_PASSWORD'), os.environ.pop('CITY')")
    await session.restore(cp, secrets={"smtp_password": "again"})
    assert await run(session, "[os.environ['SMTP_PASSWORD'], os.environ['CITY']]") == [
        "again",
        "Ulm",
    ]
    await session.restore(cp)
    assert await run(session, "['SMTP_PASSWORD' in os.environ, os.environ['CITY']]") == [
        False,
        "Ulm",
    ]


async def test_what_is_kept_and_left_out_is_said_once(make, store) -> None:
    session = await make("kept", keep_secrets=["password"], leave_out=["Study_Id"])
    await run(
        session, "def f():\n    password = 'kept-1'\n    study_id = 'leak-1'\n    return password"
    )
    await run(session, "password, study_id, token = 'kept-2', 'leak-2', 'a1B2c3D4e5F6g7H8i9'")
    cp = await session.checkpoint()
    kept = _everything(store, cp)
    assert b"kept-1" in kept
    assert b"kept-2" in kept
    assert b"leak-" not in kept
    assert b"a1B2c3D4" not in kept
    await session.restore(cp)
    assert await run(session, "[f(), password]") == ["kept-1", "kept-2"]
    everything = await make("everything", keep_secrets=True)
    await run(everything, f"password, text, entry = 'x', '{KEY}', {{'api_key': 'y'}}")
    cp = await everything.checkpoint()
    assert {item.outcome for item in cp.report} == {"exact"}
    await everything.restore(cp)
    assert await run(everything, "[password, text, entry]") == ["x", KEY, {"api_key": "y"}]


@pytest.mark.parametrize(
    "options",
    [
        {"keep_secrets": "password"}, {"keep_secrets": 1}, {"keep_secrets": [1]},
        {"leave_out": "x"}, {"leave_out": 3}, {"secrets": {"x": 1}}, {"secrets": {1: b""}},
    ],
)  # fmt: skip
def test_options_that_cannot_be_meant_are_refused(options: dict) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        Session(**options)
