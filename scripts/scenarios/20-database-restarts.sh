# shellcheck shell=bash disable=SC2034,SC2154
title="the database server is killed and started again under load"
about="All services keep their data on one server. It is killed while orders come in: nothing is acknowledged and no order is
taken meanwhile, and who asks is told to come again. When it is back, each batch whose answer was lost is asked for, not
guessed, and everything goes on by itself."
needs="a database server"

possible() { [[ -n $(processes_of postgres) ]]; }

scenario() {
  keep_in_stock coffee-beans-1kg
  step "orders come in"
  begin_load 40 30

  step "the server is killed"
  control kill postgres
  wait_until "no service is ready" "$soon" is 503 readiness
  control start postgres
  orders_go_on

  step "what became of the orders"
  end_load 15
}

readiness() { curl --silent --output /dev/null --write-out '%{http_code}' --max-time 10 "$order/readyz"; }
