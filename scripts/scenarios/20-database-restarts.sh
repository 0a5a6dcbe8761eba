# shellcheck shell=bash disable=SC2034,SC2154
title="the database server is killed and restarted under load"
about="All services use one database server. It is killed while orders arrive. Meanwhile nothing is acknowledged, no
order is accepted, and clients get 503. After the restart each service checks whether a commit without an answer
succeeded, and everything continues."
needs="a database server"

is_supported() { [[ -n $(processes_of postgres) ]]; }

scenario() {
  ensure_stock coffee-beans-1kg
  step "orders arrive"
  start_load 40 30

  step "kill the server"
  control_process kill postgres
  wait_until "no service is ready" "$short_wait" is 503 readiness
  control_process start postgres
  check_progress

  step "results of the orders"
  finish_load 15
}

readiness() { curl --silent --output /dev/null --write-out '%{http_code}' --max-time 10 "$order/readyz"; }
