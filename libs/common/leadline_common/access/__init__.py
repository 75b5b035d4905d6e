"""Who sends a request, and what that principal may do. Pure: no IO."""
