"""HTTP: parse, ask the runtime, answer."""
