"""The pure rules of a capture: what is secret, what belongs together, where code stands."""

from __future__ import annotations

import ast
import enum
import pickle

import pytest

from holdfast.model.errors import Corrupt
from holdfast.model.secrets import Rule
from holdfast.session.layout import Record, decode_records, encode_record, lowest
from holdfast.session.worker.cells import CellLog, dedented
from holdfast.session.worker.codes import CodeIndex, nested
from holdfast.session.worker.objects import fill
from holdfast.session.worker.plain import containers
from holdfast.session.worker.secrets import redact, suspect
from holdfast.session.worker.segments import cut, look
from holdfast.session.worker.sharing import changeable, changeable_ids, connected, shared_ids


def test_what_may_be_a_secret_is_looked_at_closely() -> None:
    made = "a1B2c3D4e5F6g7H8"
    assert suspect(b"x" * (1 << 20) + b"my_Password")
    assert suspect(pickle.dumps({"token": made}, 5))
    assert suspect(pickle.dumps({"Authorization": f"Bearer {made}"}, 5))
    assert not suspect(pickle.dumps({"token": "cat", "id": "customer"}, 5))
    assert not suspect(pickle.dumps({"tokens": made}, 5))
    assert suspect(pickle.dumps({"study_id": "x"}, 5), Rule.of(leave_out=["Study_ID"]))
    assert not suspect(b"my_password", Rule.of(True))


def test_redacting_keeps_lines_and_meaning() -> None:
    text = (
        "def connect(user, password='hunter2', *, api_key=None):\n"
        "    settings = {'token': 'a1B2c3D4e5F6g7H8', 'name': 'é'}\n"
        "    secret: str = '''two\n    lines'''\n"
        "    call(password='x', user='y')\n"
        "    self.client_secret = 'z'\n"
        "    return settings\n"
    )
    found, notes = redact(text)
    assert found.count("\n") == text.count("\n")
    assert [name for _, name in notes] == [
        "password", "token", "secret", "password", "client_secret",
    ]  # fmt: skip
    for leaked in ("hunter2", "a1B2c3D4", "two", "'x'", "'z'"):
        assert leaked not in found
    assert "'é'" in found
    assert "user='y'" in found
    ast.parse(found)
    assert redact("x = (") == ("x = (", ())
    assert redact("token = 'abc'\nkey = 'id'") == ("token = 'abc'\nkey = 'id'", ())
    assert redact(found)[0] == found


@pytest.mark.parametrize(
    "line",
    [
        "password = f'hunter2{n}'",
        "password = 'hunter2' + tail",
        "passphrase = 'hunter2'.encode()",
        "password = b'hunter2'",
        "os.environ['DB_PASSWORD'] = 'hunter2'",
        "secret = os.getenv('CLIENT_SECRET', 'hunter2')",
        "print(f\"{connect(password='hunter2')}\")",
        "url = 'https://me:' 'hunter2@example.org'",
        "user, password = 'me', 'hunter2'",
        "ok = password == 'hunter2'",
        "secret = x or 'hunter2' if y else z",
        "x = 1  # AKIA" + "HUNTER2" + "A" * 16,
        "url = f'https://{host}/?key=sk-hunter2" + "a1B2" * 8 + "'",
    ],
)
def test_redacting_what_is_put_together(line: str) -> None:
    text = f"def f(n, x, y, z, tail, host):\n    {line}\n"
    found, notes = redact(text)
    assert "hunter2" not in found.lower()
    assert [at for at, _ in notes] == [2]
    assert found.count("\n") == 2
    ast.parse(found)


class Color(enum.Enum):
    RED = 1


def test_what_can_change() -> None:
    assert changeable([], set())
    assert changeable(object(), set())
    assert not changeable("text", set())
    assert not changeable((1, 2), set())
    assert not changeable(Color.RED, set())
    assert not changeable(int, {id(int)})

    def function() -> None: ...

    assert changeable(function, set())
    assert not changeable(function, {id(function)})


def test_groups() -> None:
    a, b, c = [1], [2], "text"
    memos = [{id(a)}, {id(c)}, {id(b), id(c)}, {id(a), id(b)}]
    assert shared_ids(memos) == {id(a), id(b), id(c)}
    assert connected([memo - {id(c)} for memo in memos]) == [[0, 2, 3], [1]]
    assert connected([]) == []
    assert changeable_ids({1: (0, a), 2: (1, c), 3: (2, (a,))}) == {1}


def test_large_containers_are_cut_where_others_stay() -> None:
    namespace: dict[str, object] = {}
    big = {f"k{i}": i for i in range(10_000)}
    rows = list(range(5000))
    found = look({"x": [(big,)], "y": rows, "z": [0] * 10}, namespace)
    assert [id(each) for each in found.large] == [id(rows), id(big)]
    assert not found.names
    assert look([{"__builtins__": 1}], namespace).names
    for container in (big, rows):
        pieces = list(cut(container))
        again: dict[object, object] | list[object] = type(container)()
        for piece in pieces:
            fill(again, piece)
        assert again == container
        assert list(again) == list(container)
        assert len(pieces) > 5
    before = {tuple(piece) for piece in cut(big)}
    del big["k77"]
    big["new"] = 1
    assert len({tuple(piece) for piece in cut(big)} - before) <= 2


@pytest.mark.parametrize(
    ("value", "count"),
    [(1, 0), ("x", 0), ([1, (2, {3: {4}})], 4), ([object()], None), ([0] * 1000, None)],
)
def test_plain_data_is_told_at_a_glance(value: object, count: int | None) -> None:
    found = containers(value)
    assert (None if found is None else len(found)) == count


def test_code_is_found_again_by_its_place() -> None:
    text = (
        "import math\nx = 1; f = lambda: 1; g = lambda: 2\n"
        "@staticmethod\ndef h(a):\n    return [math.floor(i) + (lambda: i)() for i in a]\n"
    )
    cells = CellLog()
    cells.add(1, text)
    index = CodeIndex(cells)
    top = compile(text, "<cell 1>", "exec", dont_inherit=True)
    codes = list(nested(top))
    places = [index.locate(code) for code in codes]
    assert None not in places
    assert len(set(places)) == len(places)
    for code, place in zip(codes, places, strict=True):
        assert place is not None
        assert index.find(place).co_qualname == code.co_qualname
    assert (
        index.locate(compile("lambda: 3", "<cell 1>", "eval", dont_inherit=True).co_consts[0])
        is None
    )
    assert index.locate(compile("lambda: 3", "<elsewhere>", "eval").co_consts[0]) is None


def test_records_are_read_as_written() -> None:
    records = [
        Record(members=("name:a", "name:b"), tier="cloudpickle", data=b"x" * 100, portable=False),
        Record(members=("name:c",), tier="placeholder", type_name="socket", reason="no"),
    ]
    part = b"".join(map(encode_record, records))
    assert list(decode_records(part)) == records
    for end in (1, 10, len(part) - 1):
        with pytest.raises(Corrupt):
            list(decode_records(part[:end]))


def test_the_lowest_tier() -> None:
    assert lowest(set()) == "cloudpickle"
    assert lowest({"cloudpickle", "json", "msgpack"}) == "json"
    assert lowest({"secret", "cloudpickle"}) == "cloudpickle"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        (" \n\t", " \n\t"),
        ("x\n  y", "x\n  y"),
        ("  x\n\n    y\n", "x\n\n  y\n"),
        ("    x\n \n    y", "x\n \ny"),
        ("\t x\n\t\ty", " x\n\ty"),
        (" x\n\ty", " x\n\ty"),
    ],
)
def test_shared_indentation_is_taken_off(text: str, left: str) -> None:
    assert dedented(text) == left
