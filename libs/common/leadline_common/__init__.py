"""What every Leadline service shares."""
