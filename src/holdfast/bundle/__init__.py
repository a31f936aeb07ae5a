"""Bundles: several subjects frozen and brought back together, under one id."""

from holdfast.bundle.bundle import Bundle
from holdfast.bundle.hooks import Inside
from holdfast.bundle.member import Bindable, Member

__all__ = ["Bindable", "Bundle", "Inside", "Member"]
