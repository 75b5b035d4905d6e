"""ZooKeeper for services: an asyncio session, versioned writes, bulk reads, a lease.

The only package that imports kazoo. Import from the modules:
`session` (ZkSession), `ops` (operations and Stat), `errors`, `lease`.
"""
