"""Holdfast without `await`: every class here is derived from its async twin, member by member."""

from holdfast.session import Session as _AsyncSession
from holdfast.session import SessionPool as _AsyncSessionPool
from holdfast.sync.derive import derive

Session = derive(_AsyncSession)
SessionPool = derive(_AsyncSessionPool)

__all__ = ["Session", "SessionPool"]
