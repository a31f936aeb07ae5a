"""Holdfast without `await`: every class here is derived from its async twin, member by member."""

from holdfast.bundle import Bundle as _AsyncBundle
from holdfast.client import Process as _AsyncProcess
from holdfast.client import Sandbox as _AsyncSandbox
from holdfast.client import Stream as _AsyncStream
from holdfast.client.files import Files as _AsyncFiles
from holdfast.session import Session as _AsyncSession
from holdfast.session import SessionPool as _AsyncSessionPool
from holdfast.sync.derive import derive

Session = derive(_AsyncSession)
SessionPool = derive(_AsyncSessionPool)
Sandbox = derive(_AsyncSandbox)
Process = derive(_AsyncProcess)
Stream = derive(_AsyncStream)
Files = derive(_AsyncFiles)
Bundle = derive(_AsyncBundle)

__all__ = ["Bundle", "Files", "Process", "Sandbox", "Session", "SessionPool", "Stream"]
