"""Measures the time from the cause of each serious finding to its notification. scripts/notice-latency.sh calls it.

    notice_latency.py PROGRAMS [KIND…]

Starts a separate system with the default intervals and a receiver of notifications. For each kind of finding it causes it, waits for
the notification, and removes the cause. What is a finding only after a time by its definition (a breaker that has been open for a
minute) is made that old in the database or counts from then.
"""

import shutil
import sqlite3
import sys
import time
from pathlib import Path

import live_system
from live_system import ask, free_ports, get, temporary_folder, wait_until

PROGRAMS = Path(sys.argv[1])
# Time limit from cause to notification, in seconds.
LIMIT = 10


class Receiver(live_system.Receiver):
    """Remembers when it was first told of each finding since the last `forget`."""

    @classmethod
    def forget(cls):
        with cls.changed:
            cls.taken.clear()

    @classmethod
    def wait_for(cls, prefix, limit):
        """The key and the time of the first notification of a finding whose key begins so."""
        def found():
            told = ((line["key"], at) for at, body in cls.taken for line in body["data"].get("new", []))
            return next(((key, at) for key, at in told if key.startswith(prefix)), None)
        with cls.changed:
            cls.changed.wait_for(found, limit)
            return found()


class System(live_system.System):
    def start(self):
        super().start(*Receiver.settings(), "order.service.deadline=10m",
                      # A message becomes a dead letter at once.
                      "order.retry.max_attempts=1", "payment.retry.max_attempts=1")

    def place(self, wait=0):
        body = {"customer": "ada", "lines": [{"sku": "coffee-beans-1kg", "quantity": 1}], "payment": {"token": "tok_ok"}}
        status, order = ask(f"{self.url['order']}/api/orders", "POST", body, {"Prefer": f"wait={wait}"})
        if status not in (201, 202):
            sys.exit(f"the order is answered with {status}: {order}")
        return order["id"]

    def findings(self):
        return self.admin("overview").get("findings") or []

    def is_quiet(self):
        return not [finding for finding in self.findings() if not finding.get("to_clean_up")]


# Each kind causes its finding, and yields the time of the cause; after the notification it removes the cause.

def unreachable(system):
    system.sagactl("kill", "inventory")
    yield time.time()
    system.sagactl("start", "inventory")


def broker_unavailable(system):
    system.sagactl("kill", "nats")
    yield time.time()
    system.sagactl("start", "nats")


def dead_letters(system):
    system.sagactl("faults", "inject", "order", "fail_permanently", "--step", "order-confirmation", "--next", "1")
    system.place()
    yield time.time()
    system.sagactl("faults", "clear", "order")
    replay_all(system)


def replay_all(system):
    for letter in get(f"{system.url['admin']}/api/admin/dlq?status=PENDING&limit=100").get("dead_letters", []):
        system.sagactl("dlq", "replay", letter["id"])


def compensation_stuck(system):
    order = system.place(wait=20)
    system.sagactl("faults", "inject", "inventory", "fail_permanently", "--step", "inventory-stock-release", "--next", "1")
    ask(f"{system.url['order']}/api/orders/{order}/cancel", "POST", headers={"X-Operator": "ada"})
    yield time.time()
    system.sagactl("faults", "clear", "inventory")
    replay_all(system)


def breaker_open(system):
    """Counts from a minute after it opened."""
    system.sagactl("faults", "inject", "bank", "bank_error")
    for _ in range(12):
        system.place()
    opened = lambda: next((breaker["not_closed_since"] for breaker in get(f"{system.url['payment']}/internal/breakers")
                           if breaker["name"] == "bank" and breaker.get("not_closed_since")), None)
    wait_until("the breaker opens", opened)
    yield time.time() + 60
    system.sagactl("faults", "clear", "bank")


def tasks_overdue(system):
    """Calls that have been open for 90 seconds."""
    system.sagactl("faults", "inject", "bank", "bank_hang")
    system.place()
    wait_until("a call is open", lambda: open_tasks(system) > 0)
    system.change("payment", "UPDATE task SET created_at = created_at - 95000000")
    yield time.time()
    system.sagactl("faults", "clear", "bank")


def open_tasks(system):
    with sqlite3.connect(system.data / "payment" / "payment.db", timeout=10) as database:
        count = database.execute("SELECT count(*) FROM task").fetchone()[0]
    database.close()
    return count


def sagas_overdue(system):
    """A saga whose deadline and grace period are over."""
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    order = system.place()
    wait_until("admin shows the order", lambda: system.admin(f"sagas/{order}").get("next"))
    system.change("admin", "UPDATE row_saga SET deadline = deadline - 1000000000 WHERE finished = 0")
    yield time.time()
    system.change("admin", "UPDATE row_saga SET deadline = deadline + 1000000000 WHERE finished = 0")
    system.sagactl("faults", "clear", "payment")


def consumer_stall(system):
    """Counts from the limit of the stall (readiness.max_consumer_stall)."""
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    system.place()
    yield time.time() + 15
    system.sagactl("faults", "clear", "payment")


def ledgers_unbalanced(system):
    """Counts from the reconciliation that finds it."""
    system.place(wait=20)
    system.change("order", """UPDATE row_order SET customer = 'eve', state = replace(state, '"customer":"ada"', '"customer":"eve"')
        WHERE id = (SELECT id FROM row_order WHERE status = 'CONFIRMED' LIMIT 1)""")
    ask(f"{system.url['admin']}/api/admin/reconciliation?wait=20")
    yield time.time()
    system.change("order", """UPDATE row_order SET customer = 'ada', state = replace(state, '"customer":"eve"', '"customer":"ada"')
        WHERE customer = 'eve'""")
    ask(f"{system.url['admin']}/api/admin/reconciliation?wait=20")


def bank_ledger_rejected(system):
    system.place(wait=20)
    system.sagactl("stop", "bank")
    folder = system.data / "bank"
    folder.rename(folder.with_suffix(".kept"))
    system.sagactl("start", "bank")
    yield time.time()
    system.sagactl("stop", "bank")
    shutil.rmtree(folder)
    folder.with_suffix(".kept").rename(folder)
    system.sagactl("start", "bank")


KINDS = [dead_letters, compensation_stuck, unreachable, broker_unavailable, ledgers_unbalanced, bank_ledger_rejected, tasks_overdue,
         sagas_overdue, consumer_stall, breaker_open]


def measure(system, kind):
    """Seconds from the cause to the notification; None if none came."""
    wait_until(f"nothing is wrong before {kind.__name__}", system.is_quiet, 120)
    Receiver.forget()
    steps = kind(system)
    cause = next(steps)
    told = Receiver.wait_for(kind.__name__, max(0, cause - time.time()) + 3 * LIMIT)
    next(steps, None)
    return told and told[1] - cause


def main():
    system = System(PROGRAMS, temporary_folder("notices-") / "data", free_ports(24080))
    system.start()
    wanted = sys.argv[2:]
    late = []
    for kind in KINDS:
        if wanted and kind.__name__ not in wanted:
            continue
        took = measure(system, kind)
        is_late = took is None or took > LIMIT
        late += [kind.__name__] if is_late else []
        print(f"{kind.__name__:22} {'none' if took is None else f'{took:5.1f} s'}{'  TOO LATE' if is_late else ''}", flush=True)
    if late:
        print(f"not within {LIMIT} s: {', '.join(late)}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
