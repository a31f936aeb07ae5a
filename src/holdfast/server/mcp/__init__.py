"""The verbs as tools for agents, over the Model Context Protocol (spec/mcp-v1.md)."""
