"""Errors: kinds, exit codes and statuses are a promise to programs."""

from __future__ import annotations

import errno

import pytest

from holdfast.model import errors

PROMISED = {
    "fault": (1, 500),
    "usage": (2, 400),
    "not_found": (3, 404),
    "conflict": (4, 409),
    "lease_lost": (4, 409),
    "unsupported": (5, 501),
    "corrupt": (6, 500),
    "capture_failed": (7, 500),
    "denied": (8, 403),
    "partial": (9, 200),
    "busy": (4, 429),
    "storage_full": (10, 507),
    "bad_input": (11, 422),
}


def test_every_kind_has_the_promised_codes() -> None:
    found = {
        kind: (cls.exit_code, cls.http_status)
        for kind, cls in errors.all_kinds().items()
        if cls.__module__ == errors.__name__
    }
    assert found == PROMISED


def test_the_tree_in_the_module_is_the_tree_in_the_code() -> None:
    for kind, cls in errors.all_kinds().items():
        if cls.__module__ == errors.__name__:
            assert f"{cls.__name__} " in (errors.__doc__ or "")
            assert kind in (errors.__doc__ or "")


def test_an_error_carries_a_message_and_a_hint() -> None:
    error = errors.Denied("no key", hint="import it")
    assert (str(error), error.hint, error.kind) == ("no key", "import it", "denied")
    assert errors.Corrupt("bad").hint
    assert errors.Corrupt("bad", where="log").where == "log"
    assert isinstance(errors.LeaseLost("gone"), errors.Conflict)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, errors.StorageFull),
        (errno.EDQUOT, errors.StorageFull),
        (errno.EROFS, errors.Denied),
        (errno.EACCES, errors.Denied),
        (errno.EPERM, errors.Denied),
        (errno.ENOENT, errors.NotFound),
        (errno.EMFILE, errors.HoldfastError),
        (errno.EIO, errors.HoldfastError),
        (errno.EXDEV, errors.HoldfastError),
    ],
)
def test_errors_of_the_system_become_ours(
    number: int, expected: type[errors.HoldfastError]
) -> None:
    error = errors.from_os_error(OSError(number, "why", "a/file"), "writing a pack")
    assert type(error) is expected
    assert str(error) == "writing a pack: why (a/file)"
    if number not in (errno.ENOENT, errno.EXDEV):
        assert error.hint


@pytest.mark.parametrize("number", [errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP])
def test_a_path_that_leads_nowhere_is_bad_input_of_whoever_chose_it(number: int) -> None:
    problem = OSError(number, "why", "a/file")
    assert type(errors.from_os_error(problem, "writing a pack")) is errors.HoldfastError
    error = errors.from_path_error(problem, "reading the tokens")
    assert type(error) is errors.BadInput
    assert str(error) == "reading the tokens: why (a/file)"
    assert error.hint
    assert type(errors.from_path_error(OSError(errno.ENOENT, "why"), "x")) is errors.NotFound


def test_an_error_without_a_file_has_none_in_its_text() -> None:
    assert str(errors.from_os_error(OSError(errno.EIO, "why"), "reading")) == "reading: why"
