"""HTTP as every service does it: the application, its errors, documentation and server.

`app.create_app` makes the application and `server.serve` runs it. FastAPI routes serve clients, and
`bulk.bulk_route` serves other services.
"""
