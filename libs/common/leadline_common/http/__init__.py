"""HTTP as every service does it: the application, its errors, documentation and server.

`create_app` makes the application and `serve` runs it. FastAPI routes serve clients, and
`bulk_route` serves other services.
"""

from leadline_common.http.app import DEFAULT_MAX_BODY_BYTES, ServiceApp, create_app
from leadline_common.http.bulk import bulk_route
from leadline_common.http.caching import Document
from leadline_common.http.errors import ErrorBody, error_response, error_responses, read_only
from leadline_common.http.forward import Forwarder
from leadline_common.http.health import Check, Problem
from leadline_common.http.middleware import limit_body
from leadline_common.http.operation import OCTETS, Body, Operation, Parameter
from leadline_common.http.server import Listener, bind, run, serve
from leadline_common.tcp_ports import UnsafeListener

__all__ = [
    "DEFAULT_MAX_BODY_BYTES",
    "OCTETS",
    "Body",
    "Check",
    "Document",
    "ErrorBody",
    "Forwarder",
    "Listener",
    "Operation",
    "Parameter",
    "Problem",
    "ServiceApp",
    "UnsafeListener",
    "bind",
    "bulk_route",
    "create_app",
    "error_response",
    "error_responses",
    "limit_body",
    "read_only",
    "run",
    "serve",
]
