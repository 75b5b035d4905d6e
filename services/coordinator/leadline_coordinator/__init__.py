"""The coordinator service: consumer groups, their members, assignments and offsets."""
