# shellcheck shell=bash disable=SC2034,SC2154
title="a replica of each service is killed under load"
about="Each service has several replicas. While orders arrive, the leader of each service is killed: the replica that
publishes and gets messages first. Another replica takes over. The broker redelivers what was not acknowledged, and
claims on bank calls expire. Then the replica is restarted. Every order ends, none is charged twice, and the ledgers
balance."
needs="several replicas of each service"

is_supported() { [[ $(processes_of order | wc -l) -gt 1 ]]; }

scenario() {
  local service victim victims=''
  ensure_stock coffee-beans-1kg
  step "orders arrive"
  start_load 40 30

  step "kill the leader of each service (any replica of the bank, which has no leader)"
  for service in $services; do
    victim=$(leader_of "$service" | head -n 1)
    [[ -n $victim ]] || victim=$(processes_of "$service" | tail -n 1)
    control_process kill "$victim"
    victims+=" $victim"
    check_progress
  done

  step "start them again"
  for victim in $victims; do control_process start "$victim"; done
  check_progress

  step "results of the orders"
  finish_load 10
}
