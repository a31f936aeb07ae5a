"""LangGraph: a checkpointer that keeps threads on a store."""

from holdfast.model.errors import Unsupported

try:
    from holdfast.integrations.langgraph.saver import HoldfastSaver
except ModuleNotFoundError as error:  # pragma: no cover
    if (error.name or "").split(".")[0] not in ("langgraph", "langchain_core"):
        raise
    raise Unsupported(
        f"LangGraph is not installed ({error.name} is missing)",
        hint="pip install 'holdfast[langgraph]'",
    ) from error

__all__ = ["HoldfastSaver"]
