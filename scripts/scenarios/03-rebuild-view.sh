# shellcheck shell=bash disable=SC2034,SC2154
title="a view is deleted and rebuilt from the events"
about="Admin's view of all sagas is a fold of what it heard. With admin stopped, all rows of the view are deleted and
folded anew from the history of events: every row comes back the same, byte for byte."

scenario() {
  local before report
  keep_in_stock ceramic-mug

  step "one order goes through and one is cancelled, so that there is something to see"
  place ada tok_declined ceramic-mug 1
  wait_until "saga: COMPENSATED" "$soon" is COMPENSATED saga_state "$id"
  place ada tok_ok ceramic-mug 1
  ends "$id" COMPLETED

  step "the saga as admin shows it now"
  shown='{id, status, customer, last_fact_at, facts: (.timeline | length)}' request GET "$admin/api/admin/sagas/$id"
  before=$answer

  step "admin stops, its view is deleted and rebuilt"
  control stop admin
  report=$(rebuild admin saga)
  show "    $report"
  holds "rows were rebuilt" json_matches '.rows >= 2' "$report"
  holds "the digest of all rows is the same" json_matches '.identical and .digest_before == .digest_after' "$report"
  holds "no row differs from the fold of its events" json_matches '.differing == []' "$report"

  step "admin starts again"
  control start admin
  shown='{id, status, customer, last_fact_at, facts: (.timeline | length)}' request GET "$admin/api/admin/sagas/$id"
  expect "the saga is the same as before" yes "$([[ $answer == "$before" ]] && echo yes || echo no)"
}
