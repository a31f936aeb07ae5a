"""Bundles: several subjects frozen and brought back together, under one id."""

from holdfast.bundle.bundle import Bundle
from holdfast.bundle.member import Bindable, Member

__all__ = ["Bindable", "Bundle", "Member"]
