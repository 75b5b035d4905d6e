"""This broker in the cluster: registration, heartbeats, metadata, settings."""
