"""Ask the service of this container for `/healthz`: exit code 0 if it answers 200, else 1.

Usage: python healthcheck.py PORT
"""

import http.client
import os
import ssl
import sys


def main(port: int) -> int:
    """Return 0 if the process on this port is alive."""
    if os.environ.get("LEADLINE_LISTEN_TLS_CERTIFICATE_FILE"):
        # Over loopback inside the container: it looks for life, and sends and believes nothing.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=3, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/healthz")
        return 0 if connection.getresponse().status == 200 else 1
    except OSError:
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
