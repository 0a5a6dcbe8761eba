"""A separate local system, a real Prometheus, and requests to them. The checks of dashboards, incidents and notices use it."""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVICES = re.findall(r'name: "(\w+)"', (ROOT / "shared/contract/src/topology.rs").read_text())


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


def get(url):
    """The JSON of an answer; an empty object if there is none."""
    status, answer = ask(url)
    return answer if status == 200 else {}


def wait_until(what, condition, limit=60, fail=sys.exit):
    """Waits until `condition` returns something true, and returns its last value. `fail` is called with the text of what took too long."""
    until = time.time() + limit
    while not (found := condition()):
        if time.time() > until:
            fail(f"{what}: not within {limit} s")
            return found
        time.sleep(0.05)
    return found


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


def temporary_folder(prefix):
    """A folder that is deleted at the end, also after a signal."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def serve(handler):
    """Serves HTTP requests in the background. Returns the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class Receiver(BaseHTTPRequestHandler):
    """Takes notifications, and keeps the time of each with its body."""

    taken, changed = [], threading.Condition()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.changed:
            self.taken.append((time.time(), body))
            self.changed.notify_all()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

    @classmethod
    def settings(cls):
        """Starts it. Returns the settings by which admin notifies it."""
        webhook = "admin.service.notifications.webhook"
        return f"{webhook}.url={serve(cls)}/hook", f"{webhook}.secret=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class System:
    """A local system in its own folder. `fail` is called with the text of what fails."""

    def __init__(self, programs, data, base, fail=sys.exit):
        self.programs, self.data, self.base, self.fail = programs, data, base, fail
        self.url = {name: f"http://localhost:{base + offset}" for offset, name in enumerate(SERVICES)}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SAGA_")},
            "PATH": f"{programs}:{os.environ['PATH']}", "SAGA_DATA": str(data), "SAGA_OPERATOR": "ada", "NO_COLOR": "1"}

    def sagactl(self, *arguments):
        done = subprocess.run([self.programs / "sagactl", *arguments], env=self.environment, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            self.fail(f"sagactl {' '.join(arguments)}: {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self, *settings):
        self.sagactl("up", "--detach", "--port-base", str(self.base), *(word for one in settings for word in ("--set", one)))
        atexit.register(subprocess.run, [self.programs / "sagactl", "down"], env=self.environment, capture_output=True, timeout=60)

    def change(self, service, *statements):
        """Changes a database directly, to simulate passed time or damage."""
        with sqlite3.connect(self.data / service / f"{service}.db", timeout=10) as database:
            for statement in statements:
                database.execute(statement)
        database.close()

    def admin(self, path):
        """The JSON of admin's answer; an empty object if there is none."""
        return get(f"{self.url['admin']}/api/admin/{path}")


class Prometheus:
    """A real Prometheus with the rules of this project. Its targets have the same labels as in grafana/prometheus/."""

    def __init__(self, program, folder, port, system, scrape="1s", evaluate="1s"):
        self.url = f"http://127.0.0.1:{port}"
        jobs = "\n".join(f"""      - targets: ["localhost:{system.base + offset}"]
        labels: {{service: {name}}}""" for offset, name in enumerate(SERVICES))
        config = folder / "prometheus.yml"
        config.write_text(f"""global: {{scrape_interval: {scrape}, scrape_timeout: 1s, evaluation_interval: {evaluate}}}
rule_files: ["{ROOT}/grafana/prometheus/rules/*.yml"]
scrape_configs:
  - job_name: saga
    static_configs:
{jobs}
""")
        log = open(folder / "prometheus.log", "w")
        process = subprocess.Popen(
            [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}",
             "--enable-feature=exemplar-storage", "--log.level=warn"], stdout=log, stderr=log)
        atexit.register(process.wait, timeout=20)
        atexit.register(process.terminate)

    def get(self, path, **parameters):
        status, answer = ask(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        if status != 200:
            raise ValueError(answer["error"] if isinstance(answer, dict) else f"Prometheus answers {status}")
        return answer["data"]

    def now(self, expression):
        """The current series of an expression that have a number."""
        return numbers(self.get("query", query=expression)["result"])

    def between(self, expression, start, end, step=1):
        return numbers(self.get("query_range", query=expression, start=start, end=end, step=step)["result"])


def numbers(series):
    """The series that contain a number; 0/0 gives none."""
    return [one for one in series if any(value != "NaN" for _, value in one.get("values", [one.get("value")]))]
