"""The HTTP house style that every service shares (see the modules for each part).

`create_app` makes the application; FastAPI routes serve people and admin calls,
`bulk_route` serves other services, and `serve` runs it all.
"""

from leadline_common.http.app import DEFAULT_MAX_BODY_BYTES, ServiceApp, create_app
from leadline_common.http.bulk import bulk_route, read_body, send_body
from leadline_common.http.caching import Document
from leadline_common.http.errors import ErrorBody, error_response, error_responses, read_only
from leadline_common.http.forward import Forwarder
from leadline_common.http.health import Check, Problem, Ready, assess
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
    "Ready",
    "ServiceApp",
    "UnsafeListener",
    "assess",
    "bind",
    "bulk_route",
    "create_app",
    "error_response",
    "error_responses",
    "limit_body",
    "read_body",
    "read_only",
    "run",
    "send_body",
    "serve",
]
