"""HTTP and channels: parse, ask the runtime, answer."""
