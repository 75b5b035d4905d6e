"""What every event handler works with: events, the context of one term, the state writer."""
