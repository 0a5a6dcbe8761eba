# shellcheck shell=bash disable=SC2034,SC2154
title="a replica of each service is killed under load"
about="Of several processes of each service the one that leads is killed, one service after another, while orders come in:
the one that publishes, and is given messages first. What it was about to do is done by another: the broker delivers again
what it had not acknowledged, its claims on calls to the bank lapse, and another one leads. Then it is started again. Every
order ends, none is charged twice, and the books balance."
needs="several processes of each service"

possible() { [[ $(processes_of order | wc -l) -gt 1 ]]; }

scenario() {
  local service victim victims=''
  keep_in_stock coffee-beans-1kg
  step "orders come in"
  begin_load 40 30

  step "of each service the one that leads is killed (of the bank, where none does, any)"
  for service in order inventory payment bank admin; do
    victim=$(leader_of "$service" | head -n 1)
    [[ -n $victim ]] || victim=$(processes_of "$service" | tail -n 1)
    control kill "$victim"
    victims+=" $victim"
    orders_go_on
  done

  step "they are started again"
  for victim in $victims; do control start "$victim"; done
  orders_go_on

  step "what became of the orders"
  end_load 10
}
