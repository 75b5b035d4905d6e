"""ZooKeeper for services: an asyncio session, versioned writes, bulk reads, a session lease.

The only package that imports kazoo. Import from the modules: `session` (ZkSession, SessionLease),
`ops` (the operations of a multi, and Stat) and `errors`. `client` adds reads and writes to the
session; `codec`, `requests` and `transport` implement them.
"""
