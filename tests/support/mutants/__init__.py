"""The mutation score of the protocol: planted mistakes, each of which a test must notice."""
