"""HTTP, metadata and routing to partition leaders."""
