from __future__ import annotations

import platform

from holdfast.runtime.finding import Status
from holdfast.runtime.probes import pages
from holdfast.runtime.version import at_least


def test_the_kernel_names_exactly_the_written_pages() -> None:
    """From 6.7 on the kernel can; an older one must be reported as a limit, not as a fault."""
    finding = pages.probe_dirty_pages()
    expected = Status.OK if at_least(platform.release(), (6, 7)) else Status.LIMITED
    assert finding.status is expected, finding.detail


def test_it_can_be_asked_again_and_again() -> None:
    findings = {pages.probe_dirty_pages() for _ in range(20)}
    assert len(findings) == 1


def test_one_page_too_few_is_broken() -> None:
    assert pages.judge_dirty_pages(None, (3, 17, 18)).status is Status.BROKEN


def test_a_refusal_is_a_limit() -> None:
    finding = pages.judge_dirty_pages("Operation not permitted", None)
    assert finding.status is Status.LIMITED
    assert "Operation not permitted" in finding.detail
