# shellcheck shell=bash disable=SC2034,SC2154
title="rebuild a view from its events"
about="Admin's view of all sagas is a fold of the facts that it received. While admin is stopped, all rows of the view
are deleted and rebuilt from the events. Every row is identical, byte for byte."

scenario() {
  local before report
  ensure_stock ceramic-mug

  step "create data: one order is confirmed and one cancelled"
  place ada tok_declined ceramic-mug 1
  wait_until "saga: COMPENSATED" "$short_wait" is COMPENSATED saga_state "$id"
  place ada tok_ok ceramic-mug 1
  wait_for_saga "$id" COMPLETED

  step "the saga before the rebuild"
  shown='{id, status, customer, last_fact_at, facts: (.timeline | length)}' request GET "$admin/api/admin/sagas/$id"
  before=$answer

  step "stop admin, and delete and rebuild its view"
  control_process stop admin
  report=$(rebuild admin saga)
  show "    $report"
  check "rows were rebuilt" json_matches '.rows >= 2' "$report"
  check "the digest of all rows is unchanged" json_matches '.identical and .digest_before == .digest_after' "$report"
  check "no row differs from the fold of its events" json_matches '.differing == []' "$report"

  step "start admin"
  control_process start admin
  shown='{id, status, customer, last_fact_at, facts: (.timeline | length)}' request GET "$admin/api/admin/sagas/$id"
  expect "the saga is unchanged" yes "$([[ $answer == "$before" ]] && echo yes || echo no)"
}
