"""Requests to a live system, and its ports. check_dashboards.py and notice_latency.py use it."""

import json
import socket
import sys
import urllib.error
import urllib.request


def ask(url, method="GET", body=None, headers=None):
    """The status and JSON of an answer; status 0 if there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=40) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        status, text = refused.code, refused.read()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode(errors="replace")


def free_ports(first):
    """The first of seven consecutive free ports, from `first` on."""
    for base in range(first, 32000, 10):
        try:
            taken = [socket.create_server(("127.0.0.1", base + offset)) for offset in range(7)]
        except OSError:
            continue
        for one in taken:
            one.close()
        return base
    sys.exit("no free ports")
