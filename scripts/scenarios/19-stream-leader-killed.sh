# shellcheck shell=bash disable=SC2034,SC2154
title="the leader of a stream is killed under load"
about="Three brokers store every message. While orders arrive, the broker that leads the stream ORDER is killed. The
other two elect a new leader, and the services continue with them. Nothing acknowledged is lost, because two brokers
have it. After its restart the broker catches up."
needs="several brokers"

is_supported() { [[ $(processes_of nats | wc -l) -gt 1 ]]; }

scenario() {
  local leader
  ensure_stock coffee-beans-1kg
  step "orders arrive"
  start_load 40 30

  step "kill the leader"
  leader=$(leader_of ORDER)
  check "the leader of the stream ORDER: $leader" test -n "$leader"
  control_process kill "$leader"
  wait_until "another broker leads it" "$short_wait" leads_another "$leader"
  check_progress

  step "start it again"
  control_process start "$leader"
  check_progress

  step "results of the orders"
  finish_load 10
}

leads_another() {
  local leader
  leader=$(leader_of ORDER)
  printf '%s' "$leader"
  [[ -n $leader && $leader != "$1" ]]
}
