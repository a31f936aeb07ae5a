"""Values go to JSON and come back as they were, or are refused by name."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import string
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from holdfast.model.errors import BadInput, Corrupt, Denied, Unsupported
from holdfast.state import register
from holdfast.state.encoder import MAX_DEPTH
from holdfast.state.types import Types
from holdfast.state.values import decode, encode, path_text


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Word(enum.StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: float
    y: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    inner: tuple[int, ...] = ()


@dataclasses.dataclass
class Counted:
    start: int
    total: int = dataclasses.field(init=False)
    calls: int = 0

    def __post_init__(self) -> None:
        self.total = self.start
        self.calls += 1


TYPES = Types([Color, Level, Access, Word, Point, Frozen, Counted])


def there_and_back(value: object, types: Types = TYPES) -> object:
    """Through the bytes of a file."""
    packed = encode({"value": value}, types).state
    return decode(msgspec.json.decode(msgspec.json.encode(packed)), types)["value"]


def same(a: Any, b: Any) -> bool:
    """Equal in type and value, all the way down, with NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        x, y = np.asarray(a), np.asarray(b)
        return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
    if isinstance(a, float):
        return repr(a) == repr(b)  # tells -0.0 from 0.0; the sign of a NaN means nothing
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return all(same(list(x), list(y)) for x, y in pairs)
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, datetime):
        return bool(a == b and a.isoformat() == b.isoformat() and a.fold == b.fold)
    return a == b or repr(a) == repr(b)


ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")]
)
# st.text() leaves lone surrogates out unless asked; os.listdir() does not.
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(max_size=20),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(allow_nan=False),
    st.sampled_from(list(Color)),
    st.builds(PurePosixPath, TEXT.filter(lambda text: "\0" not in text)),
    st.builds(Frozen, TEXT, st.tuples(st.integers())),
)
LEAVES = st.one_of(
    HASHABLE,
    st.floats(),
    st.complex_numbers(),
    st.datetimes(timezones=ZONES),
    st.times(),
    st.builds(bytearray, st.binary(max_size=20)),
    st.builds(Path, TEXT.filter(lambda text: "\0" not in text)),
    st.builds(PureWindowsPath, st.text(string.ascii_letters + "\\/:.")),
    st.sampled_from([*Level, *Word, Access.READ, Access.READ | Access.WRITE, Access(0)]),
    st.builds(Point, st.floats(), st.floats()),
    hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(max_dims=3, max_side=3, min_side=0)),
    hnp.from_dtype(np.dtype("float32")),
    hnp.from_dtype(np.dtype("M8[us]")),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(TEXT | st.just("$type"), inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4).map(OrderedDict),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
        st.dictionaries(HASHABLE, st.integers(), max_size=4).map(Counter),
    ),
    max_leaves=15,
)


@given(VALUES)
@settings(max_examples=400)
def test_every_value_comes_back_as_it_was(value: object) -> None:
    assert same(there_and_back(value), value)


@given(
    st.dictionaries(
        TEXT.filter(lambda text: text.isprintable()) | st.just("$type"), VALUES, max_size=3
    )
)
@settings(max_examples=50)
def test_a_state_may_have_any_printable_key(state: dict[str, Any]) -> None:
    packed = encode(state, TYPES).state
    assert same(decode(packed, TYPES), state)


def test_plain_values_stay_plain() -> None:
    plain = {"a": [1, 2.5, "text", True, None], "b": {"c": {}}}
    assert encode(plain).state == plain


def test_equal_sets_are_equal_text() -> None:
    # 0 and 8 collide in a small set, so the order of adding shows in the order of iterating.
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)
    assert encode({"v": one}).state == encode({"v": other}).state


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
)
def test_numbers_json_has_no_word_for(number: float) -> None:
    assert same(there_and_back(number), number)
    text = msgspec.json.encode(encode({"v": number}).state)
    assert b"null" not in text
    assert b"NaN" not in text


def test_integers_of_any_size() -> None:
    for number in (2**64, -(2**63) - 1, 10**5000, -(10**5000)):
        assert there_and_back(number) == number


def test_the_hour_that_comes_twice() -> None:
    for fold in (0, 1):
        twice = datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin"))
        back = there_and_back(twice)
        assert isinstance(back, datetime)
        assert (back.fold, back.utcoffset(), back.tzinfo) == (fold, twice.utcoffset(), twice.tzinfo)


def test_arrays_keep_their_order_and_can_be_written() -> None:
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    back = there_and_back(fortran)
    assert isinstance(back, np.ndarray)
    assert back.flags.f_contiguous
    back[0, 0] = 7
    assert (back[0, 0], back[1, 2]) == (7, 5)
    assert same(there_and_back(fortran[:, ::2]), fortran[:, ::2])
    big_endian = np.arange(3, dtype=">i4")
    assert same(there_and_back(big_endian), big_endian)


def test_dataclasses_keep_what_was_computed_and_take_new_defaults() -> None:
    counted = Counted(3)
    counted.total, counted.calls = 10, 5
    assert there_and_back(counted) == counted
    packed = encode({"v": counted}).state
    del packed["v"]["fields"]["total"]  # type: ignore[index,call-overload,union-attr,arg-type]
    assert decode(packed, TYPES)["v"].total == 3
    packed["v"]["fields"]["gone"] = 1  # type: ignore[index,call-overload]
    with pytest.raises(Unsupported, match="gone"):
        decode(packed, TYPES)


def cycle() -> list[Any]:
    around: list[Any] = []
    around.append({"again": around})
    return around


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    return value


def test_the_deepest_state_that_is_saved_can_be_loaded() -> None:
    for wrap in (lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: {1: v}, Frozen):
        value: Any = 0
        for _ in range(MAX_DEPTH // 3):
            value = wrap(value)
        with contextlib.suppress(BadInput):
            for _ in range(MAX_DEPTH):
                packed = encode({"value": value}, TYPES).state
                assert decode(packed, TYPES)["value"] == value
                value = wrap(value)
        with pytest.raises(BadInput, match="levels deep"):
            encode({"value": value}, TYPES)


class Zone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    dst = utcoffset

    def tzname(self, when: datetime | None) -> str:
        return "ours"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: 0,
        threading.Lock(),
        iter([]),
        (n for n in [1]),
        int,
        Ellipsis,
        range(3),
        cycle(),
        deep(),
        defaultdict(list),
        Text("x"),
        datetime(2026, 1, 1, tzinfo=Zone()),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "name")),
        time(1, tzinfo=ZoneInfo("UTC")),
        np.array([object()]),
        np.ma.masked_array([1], [True]),
        np.zeros(1, "i4,f4"),
        memoryview(b"x"),
    ],
)
def test_what_could_not_come_back_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(BadInput, match=r"^steps\[1\]\.result") as caught:
        encode({"steps": [0, {"result": value}]})
    assert caught.value.message


def test_refusals_inside_odd_places_name_them() -> None:
    with pytest.raises(BadInput, match=r"^a\[0\]\.inner\[1\]"):
        encode({"a": (Frozen("x", (1, object())),)}, TYPES)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^a\[7\]\[0\]"):
        encode({"a": {7: [object()]}})
    with pytest.raises(BadInput):
        encode({1: 2})  # type: ignore[dict-item]
    with pytest.raises(BadInput):
        encode([1])  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        encode({"\ud800": 1})


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert there_and_back([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize(
    "packed",
    [
        {"$type": "datetime"},
        {"$type": "datetime", "value": "yesterday"},
        {"$type": "datetime", "value": 7},
        {"$type": "datetime", "value": "2026-01-01", "zone": "../../etc/passwd"},
        {"$type": "bytes", "base64": "%"},
        {"$type": "tuple", "items": 7},
        {"$type": "set", "items": [[]]},
        {"$type": "dict", "items": [1]},
        {"$type": "dict", "items": [[{}, 1]]},
        {"$type": "int", "hex": "x"},
        {"$type": "numpy.ndarray", "dtype": "O", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"$type": "numpy.ndarray", "dtype": "<f8", "shape": [2], "base64": "AAAAAAAAAAA="},
        {"$type": "numpy.ndarray", "dtype": "<f8", "shape": [-1], "base64": "AAAAAAAAAAA="},
        {"$type": "numpy.ndarray", "dtype": "<f8", "shape": [10**30], "base64": ""},
        {"$type": "numpy.ndarray", "dtype": "no", "shape": [], "base64": ""},
        {"$type": "uuid", "value": "x"},
        {"$type": "decimal", "value": "x"},
        {"$type": "timedelta", "days": "x"},
        {"$type": "str", "escaped": "\\u12"},
        {"$type": "deque", "items": [], "maxlen": "x"},
        {"$type": "enum"},
        {"$type": ["unhashable"]},
    ],
)
def test_damaged_values_are_corrupt(packed: Any) -> None:
    with pytest.raises(Corrupt, match=r"^a\[0\]"):
        decode({"a": [packed]})


def test_unknown_tags_and_changed_classes() -> None:
    for packed in (
        {"$type": "quaternion"},
        {"$type": "enum", "class": f"{__name__}:Color", "name": "BLUE"},
        {"$type": "dataclass", "class": f"{__name__}:Color", "fields": {}},
        {"$type": "dataclass", "class": f"{__name__}:Frozen", "fields": {}},
        {"$type": "custom", "class": f"{__name__}:Color", "value": 1},
    ):
        with pytest.raises(Unsupported):
            decode({"a": packed}, TYPES)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:Popen", "builtins:eval", "absent.module:X"]
)
def test_a_file_cannot_choose_a_class(name: str) -> None:
    for packed in (
        {"$type": "dataclass", "class": name, "fields": {"args": "true"}},
        {"$type": "custom", "class": name, "value": "true"},
        {"$type": "enum", "class": name, "name": "x"},
    ):
        with pytest.raises(Denied, match=name):
            decode({"a": packed})  # type: ignore[dict-item]


class Temperature:
    def __init__(self, kelvin: float) -> None:
        self.kelvin = kelvin


def test_a_class_may_say_how_it_is_saved() -> None:
    register(
        Temperature, pack=lambda it: {"kelvin": it.kelvin}, unpack=lambda it: Temperature(**it)
    )
    back = decode(encode({"v": Temperature(3.5)}).state)["v"]
    assert isinstance(back, Temperature)
    assert back.kelvin == 3.5
    with pytest.raises(BadInput):
        register(object)
    with pytest.raises(BadInput):
        register(Temperature, pack=lambda it: it)
    with pytest.raises(BadInput):
        Types(["Temperature"])  # type: ignore[list-item]


def test_named_tuples_of_both_kinds() -> None:
    pair = namedtuple("pair", "left right")
    types = Types([pair])
    assert same(there_and_back(pair(1, [2]), types), pair(1, [2]))


def test_paths_as_people_write_them() -> None:
    assert path_text(["results", 3, "when"]) == "results[3].when"
    assert path_text([]) == "the state"


def test_scalars_of_the_standard_library_are_readable() -> None:
    packed = encode({"d": date(2026, 1, 2), "p": Path("/x"), "n": Decimal("1.10")}).state
    assert packed["d"] == {"$type": "date", "value": "2026-01-02"}
    assert packed["p"] == {"$type": "path", "value": "/x"}
    assert packed["n"] == {"$type": "decimal", "value": "1.10"}
