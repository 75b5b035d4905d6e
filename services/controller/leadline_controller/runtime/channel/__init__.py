"""Requests from the controller to brokers, and the metadata document."""
