# shellcheck shell=bash disable=SC2034,SC2154
title="the broker that leads a stream is killed under load"
about="Three brokers store every message. The one that leads the stream of the orders is killed while orders come in: the
other two choose a new leader, and the services go on at them. Nothing that was acknowledged is lost, for two had it. When it
is started again, it is given what it missed."
needs="several brokers"

possible() { [[ $(processes_of nats | wc -l) -gt 1 ]]; }

scenario() {
  local leader
  keep_in_stock coffee-beans-1kg
  step "orders come in"
  begin_load 40 30

  step "the leader is killed"
  leader=$(leader_of ORDER)
  holds "somebody leads the stream ORDER: $leader" test -n "$leader"
  control kill "$leader"
  wait_until "another leads it" "$soon" leads_another "$leader"
  orders_go_on

  step "it comes back"
  control start "$leader"
  orders_go_on

  step "what became of the orders"
  end_load 10
}

leads_another() {
  local leader
  leader=$(leader_of ORDER)
  printf '%s' "$leader"
  [[ -n $leader && $leader != "$1" ]]
}
