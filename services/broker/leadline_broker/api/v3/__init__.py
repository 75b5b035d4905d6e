"""The API of Confluent's REST proxy, version 3, which every broker serves at `/v3`."""
