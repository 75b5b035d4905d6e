"""Serializers: how keys and values of an application become the bytes of records, and back."""
