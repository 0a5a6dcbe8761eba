# shellcheck shell=bash disable=SC2034,SC2154
# Functions of the scenarios: requests and answers, checks, waits, timelines, reconciliation.
# A scenario is a file that sets `title` and `about` and defines `scenario`. demo-scenarios.sh runs it with the addresses in
# $admin $order $inventory $payment $bank, and with a unique $tag.

# Stock that keeps the replenishment monitor (threshold 20) from changing what a scenario counts.
min_stock=100
# Seconds to wait for what takes milliseconds.
short_wait=20
# Name of the operator.
operator="demo"
# Unix time at which a pause ends automatically, before the deadline of an order; empty: never.
pause_deadline=''

bold='' dim='' red='' green='' blue='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\033[1m' dim=$'\033[2m' red=$'\033[31m' green=$'\033[32m' blue=$'\033[34m' plain=$'\033[0m'
fi

show() { printf '%s\n' "$@"; }

# True if this system can run the scenario. A scenario with requirements overrides it and sets `needs`.
is_supported() { true; }

announce() {
  show "" "${bold}━━ $number · $title ${plain}${dim}$(printf '━%.0s' $(seq $((70 - ${#title}))))${plain}" "$about"
}

# Runs at the end of the subshell of a scenario.
end_scenario() {
  local failed=$BASH_COMMAND job
  # The clean-up must not be interrupted.
  trap '' INT TERM HUP
  # Each in a process group of its own (set -m).
  for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done
  if [[ $ended == no ]]; then
    # A failed check has already printed its message.
    if ((failures == 0)); then show "  ${red}✘ failed: $failed${plain}"; fi
    show "  ${red}✘ the scenario stops here${plain}"
  fi
  if [[ $ended == yes ]] && ((failures == 0)); then
    # A half-open breaker would stay so until the next call to the bank.
    reset_breakers || true
    return
  fi
  start_stopped_members || true
  clean_up_faults || true
  exit 1
}

step() {
  show "" "  ${bold}$*${plain}"
  [[ $pausing == yes ]] || return 0
  local left=$((${pause_deadline:-0} - $(date +%s)))
  if [[ -z $pause_deadline ]]; then
    read -r -p "  ${dim}[Enter]${plain} "
  elif ((left > 0)); then
    # A line break instead of the Enter.
    read -r -t "$left" -p "  ${dim}[Enter, or automatically in $left s before the deadline of the order]${plain} " || show ""
  fi
}

# show_command ARGUMENTS…: prints the equivalent command of sagactl.
show_command() { show "    ${dim}same as: sagactl $*${plain}"; }

# --- requests ---------------------------------------------------------------------------------------------

# request METHOD URL [BODY [HEADER…]]: sends and prints it; sets `status` and `answer`.
# `shown=FILTER request …` prints only that part of a successful answer.
request() {
  local method=$1 url=$2 body=${3:-} header arguments=()
  show "  ${blue}→ $method $url${plain}"
  for header in "${@:4}"; do
    arguments+=(--header "$header")
    show "    ${dim}$header${plain}"
  done
  if [[ -n $body ]]; then
    arguments+=(--header 'Content-Type: application/json' --data "$body")
    show "    $body"
  fi
  : >"$scratch/answer"
  status=$(curl --silent --show-error --max-time 60 --request "$method" ${arguments[@]+"${arguments[@]}"} \
    --output "$scratch/answer" --write-out '%{http_code}' "$url") || true
  answer=$(<"$scratch/answer")
  show "  ${blue}← $status${plain}"
  local part=${shown:-.}
  [[ $status == 2* ]] || part=.
  field "$part"' | if type == "object" then to_entries[] | "\(.key): \(.value | tojson)"
    elif type == "array" then .[] | tojson else tojson end | "    " + .'
}

# field FILTER: prints a part of the last answer.
field() { jq -r "$1" <<<"$answer"; }

# get URL FILTER: prints a part of an answer, without showing the request.
get() { curl --silent --show-error --max-time 60 "$1" | jq -r "$2"; }

# order_of CUSTOMER TOKEN SKU QUANTITY…: prints the body of a new order.
order_of() {
  local customer=$1 token=$2 lines=''
  shift 2
  while (($# > 0)); do
    lines+="${lines:+,}{\"sku\":\"$1\",\"quantity\":$2}"
    shift 2
  done
  printf '{"customer":"%s","lines":[%s],"payment":{"token":"%s"}}' "$customer" "$lines" "$token"
}

# place CUSTOMER TOKEN SKU QUANTITY…: places an order; sets `id` and `deadline`.
place() {
  keys=$((keys + 1))
  shown='{id, status, total, deadline}' \
    request POST "$order/api/orders" "$(order_of "$@")" "Idempotency-Key: demo-$tag-$keys"
  expect "accepted" 202 "$status"
  [[ $status == 202 ]]
  id=$(field .id) deadline=$(field "$seconds"'.deadline | seconds')
}

# A jq function: a timestamp as Unix time in seconds.
seconds='def seconds: sub("\\.[0-9]+"; "") | fromdate; '
# A jq function: a timestamp as Unix time in milliseconds.
millis=$seconds'def millis: (seconds * 1000) + ((capture("(?<part>\\.[0-9]+)").part // ".0" | "0" + . | tonumber) * 1000 | floor); '

# Seconds until the deadline of the last order, plus some for its cancellation.
past_deadline() { echo $((deadline - $(date +%s) + short_wait)); }

# post_in_parallel N KEY BODY: posts the order N times, a hundred per curl. "#" in KEY becomes the number of the order. Stores
# the answers in $scratch/posted/N, and prints how often each status occurred.
post_in_parallel() {
  local count=$1 key=$2 body=$3 first last n
  rm -rf "$scratch/posted" "$scratch"/statuses.*
  mkdir "$scratch/posted"
  printf '%s' "$body" >"$scratch/body"
  for ((first = 1; first <= count; first += 100)); do
    last=$((first + 99 < count ? first + 99 : count))
    for ((n = first; n <= last; n++)); do
      ((n == first)) || echo next
      printf '%s\n' "url = \"$order/api/orders\"" "max-time = 60" "data = \"@$scratch/body\"" \
        'header = "Content-Type: application/json"' "header = \"Idempotency-Key: ${key/\#/$n}\"" \
        "output = \"$scratch/posted/$n\"" 'write-out = "%{http_code}\n"'
    done | curl --no-progress-meter --parallel --parallel-max 100 --config - >"$scratch/statuses.$first" &
  done
  wait
  sort "$scratch"/statuses.* | uniq -c | awk '{ print $1 " x " $2 }' | paste -s -d ' ' -
}

# --- state of the services --------------------------------------------------------------------------------

units() { get "$inventory/api/products/$1" ".$2"; }
stock() { get "$inventory/api/products/$1" '"\(.on_hand) \(.reserved) \(.sold)"'; }
reservation() { get "$inventory/api/reservations/$1" .status; }
order_state() { get "$order/api/orders/$1" '[.status, .cancelled_because // empty] | join(" ")'; }
payment_state() { get "$payment/api/payments?order=$1" '.[0].status // "none"'; }
# 404 for a charge that was never requested.
charge_state() { get "$bank/v1/charges/$(payment_id "$1")" .status; }
payment_id() { get "$payment/api/payments?order=$1" '.[0].id'; }
saga_state() { get "$admin/api/admin/sagas/$1" .status; }
facts() { get "$admin/api/admin/sagas/$1" '[.timeline[].type] | join(" ")'; }
dead_letters() { get "$admin/api/admin/dlq/count" .total; }
dead_letter_state() { get "$admin/api/admin/dlq/$1" .status; }
# The pending dead letters of an order: their number, and the newest.
pending_dead_letters_of() { get "$admin/api/admin/dlq?saga=$1&status=PENDING" '.dead_letters | length'; }
newest_dead_letter_of() { get "$admin/api/admin/dlq?saga=$1&status=PENDING&limit=1" '.dead_letters[0].id // "none"'; }
bank_breaker() { get "$admin/api/admin/breakers" '.[].breakers[] | select(.name == "bank").state'; }
# step_counts STEP: "handled retrying dead".
step_counts() {
  get "$admin/api/admin/services" ".[].service_stats.steps[]? | select(.step == \"$1\") | \"\(.handled) \(.retrying) \(.dead)\""
}
# waiting_at_broker STEP: messages that it has not acknowledged.
waiting_at_broker() { get "$admin/api/admin/services" ".[].service_stats.steps[]? | select(.step == \"$1\").waiting"; }
# metric URL NAME: the sum of all series of a metric; "name{label=…" selects some.
metric() {
  curl --silent --show-error --max-time 60 "$1/metrics" |
    awk -v name="$2" 'index($1, name) == 1 && $1 !~ /^#/ { sum += $2 } END { print sum + 0 }'
}

# unfinished_sagas CUSTOMER COUNT: how many of the COUNT sagas (at most 200) have not ended.
unfinished_sagas() {
  get "$admin/api/admin/sagas?customer=$1&limit=200" \
    "$2"' - ([.sagas[] | select(.status == "COMPLETED" or .status == "COMPENSATED")] | length)'
}

# count_orders CUSTOMER [STATUS]: the number of orders, over all pages.
count_orders() {
  local query="customer=$1${2:+&status=$2}&limit=100" cursor='' page count=0
  while
    page=$(get "$order/api/orders?$query${cursor:+&cursor=$cursor}" '"\(.orders | length) \(.next // "")"')
    count=$((count + ${page%% *})) cursor=${page#* }
    [[ -n $cursor ]]
  do :; done
  echo "$count"
}

# wait_for_saga ID STATUS [SECONDS]: waits until admin shows the saga in STATUS, and prints its timeline.
wait_for_saga() {
  local after type who note
  wait_until "saga: $2" "${3:-$short_wait}" is "$2" saga_state "$1"
  show "  ${blue}→ GET $admin/api/admin/sagas/$1${plain}"
  get "$admin/api/admin/sagas/$1" '.timeline[]
    | [.after_ms, .type, .producer, .detail.note // .detail.cancelled_because // ""] | @tsv' |
    while IFS=$'\t' read -r after type who note; do
      printf '    %7d ms  %-23s %-10s %s\n' "$after" "$type" "$who" "$note"
    done
}

# --- changes of the system; for processes see local.sh and compose.sh -------------------------------

# inject SERVICE KIND [FIELDS]: injects a fault; sets `fault` to its id.
inject() {
  local service=$1 kind=$2 more=${3:-}
  shown='{service, id, kind, step, next} | with_entries(select(.value))' request POST "$admin/api/admin/faults" \
    "{\"service\":\"$service\",\"kind\":\"$kind\"${more:+,$more}}" "X-Operator: $operator"
  expect "the fault is injected" 201 "$status"
  [[ $status == 201 ]]
  fault=$(field .id)
}

# end_fault SERVICE ID
end_fault() {
  request DELETE "$admin/api/admin/faults/$1/$2" "" "X-Operator: $operator"
  expect "the fault is cleared" 200 "$status"
}

# replay_dead_letter ID REASON: replays a dead letter.
replay_dead_letter() {
  shown='{id, status, step}' request POST "$admin/api/admin/dlq/$1/replay" "{\"reason\":\"$2\"}" "X-Operator: $operator"
  expect "replayed" "202 REPLAYING" "$status $(field .status)"
}

# Clears all faults and their consequences that an interrupted scenario left. Prints nothing otherwise.
clean_up_faults() {
  local faults redrive dead_letter
  faults=$(get "$admin/api/admin/faults" '.faults | length')
  if ((${faults:-0} > 0)); then
    show "  clearing $faults injected fault(s)"
    ask DELETE faults >/dev/null
  fi
  reset_breakers
  for redrive in $(get "$admin/api/admin/dlq/redrive" \
    ".redrives[] | select(.operator == \"$operator\" and .status != \"DONE\" and .status != \"CANCELLED\").id"); do
    show "  cancelling redrive $redrive"
    ask POST "dlq/redrive/$redrive/cancel" '{"reason":"left by an interrupted scenario"}' >/dev/null
  done
  if [[ $(injected_dead_letters) != 0 ]]; then
    show "  replaying the dead letters of injected faults"
    ask POST dlq/redrive '{"filter":{"text":"injected:"},"canary":0,"force":true,"reason":"left by an interrupted scenario"}' >/dev/null
    wait_until "no such dead letter is left" $((2 * short_wait)) is 0 injected_dead_letters
  fi
  for dead_letter in $(poison_dead_letters); do
    show "  discarding dead letter $dead_letter, an invalid message"
    ask DELETE "dlq/$dead_letter" '{"reason":"left by an interrupted scenario"}' >/dev/null
  done
}

# Closes every open breaker.
reset_breakers() {
  local breakers name
  breakers=$(get "$admin/api/admin/breakers" '.[] | "\(.service)/\(.breakers[] | select(.state != "CLOSED").name)"')
  for name in $breakers; do
    show "  resetting the breaker $name"
    ask POST "breakers/$name" '{"action":"reset"}' >/dev/null
  done
}

# Dead letters of injected faults that are pending or being replayed; at most 200.
injected_dead_letters() { get "$admin/api/admin/dlq?text=injected:&status=PENDING,REPLAYING&limit=200" '.dead_letters | length'; }

# The pending dead letters of the fault publish_garbage.
poison_dead_letters() {
  local dead_letter
  for dead_letter in $(get "$admin/api/admin/dlq?status=PENDING&limit=200" '.dead_letters[] | select(.origin == "foreign").id'); do
    get "$admin/api/admin/dlq/$dead_letter" "select(.payload_base64 == \"$(printf '{"this is": "no envelope"' | base64)\").id"
  done
}

# ask METHOD PATH [BODY]: sends a request as operator, without showing it.
ask() {
  curl --silent --show-error --max-time 60 --request "$1" --header "X-Operator: $operator" \
    ${3:+--header 'Content-Type: application/json' --data "$3"} "$admin/api/admin/$2"
}

# ensure_stock SKU: restocks a product that has too few units.
ensure_stock() {
  local there
  there=$(units "$1" on_hand)
  if [[ $there == null ]]; then
    fail "there is no product $1: start the system without --no-seed"
    return 1
  fi
  ((there < min_stock)) || return 0
  shown='{sku, on_hand}' request POST "$inventory/api/products/$1/restock" "{\"quantity\":$((2 * min_stock))}"
}

# new_product SKU NAME CENTS UNITS: lists a product without replenishment, and waits until it can be ordered.
new_product() {
  local body
  printf -v body '{"sku":"%s","name":"%s","unit_price":{"amount_minor":%d,"currency":"EUR"},"quantity":%d,"replenish":false}' "$@"
  shown='{sku, on_hand}' request POST "$inventory/api/products" "$body"
  expect "listed" 201 "$status"
  wait_until "the order service knows it" "$short_wait" is 'lines[1].sku' first_rejected_line "$1"
}

# first_rejected_line SKU: which line is rejected in an order of this product and an unknown one. It orders nothing.
first_rejected_line() {
  curl --silent --show-error --max-time 60 --header 'Content-Type: application/json' \
    --data "$(order_of demo tok_ok "$1" 1 nobody-lists-this 1)" "$order/api/orders" | jq -r '.errors[0].field'
}

# --- load -------------------------------------------------------------------------------------------------

# start_load RATE SECONDS: starts orders at this rate in the background.
start_load() {
  local words=(load --rate "$1" --duration "$2s" --mix happy=100 --drain 60s --may-shed --timeline --json)
  show "  ${blue}\$ sagactl ${words[*]}${plain}"
  set -m
  "$sagactl" "${words[@]}" >"$scratch/load.json" 2>"$scratch/load.err" &
  loading=$!
  set +m
  confirmed_before=$(confirmed)
  wait_until "orders are confirmed" "$short_wait" at_least $((confirmed_before + $1)) confirmed
}

# The number of completed sagas.
confirmed() { get "$admin/api/admin/overview" '.sagas.by_status.COMPLETED // 0'; }

# check_progress: checks that more orders are confirmed from now on.
check_progress() {
  local before
  before=$(confirmed)
  wait_until "more orders are confirmed" "$short_wait" at_least $((before + 20)) confirmed
}

# finish_load MAX_PAUSE_S: waits for the end of the load and checks its results. A client of a killed process got no answer;
# reconciliation shows whether its order was accepted.
finish_load() {
  wait "$loading" || true
  jq -e .started "$scratch/load.json" >/dev/null || { fail "no load: $(tail -n 3 "$scratch/load.err")" && return 1; }
  show "    $(jq -r '"\(.started) orders: \(.completed) confirmed, \(.shed) rejected, \(.errors) without an answer; p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms"' "$scratch/load.json")"
  expect "unfinished orders" 0 "$(jq .unfinished "$scratch/load.json")"
  local pause
  pause=$(jq '[.timeline[].ended] | reduce .[] as $ended ({now: 0, most: 0};
    (if $ended == 0 then .now + 1 else 0 end) as $now | {now: $now, most: ([.most, $now] | max)}) | .most' "$scratch/load.json")
  show "    longest time without a confirmed order: $pause s"
  check "at most $1 s" test "$pause" -le "$1"
}

# --- checks -----------------------------------------------------------------------------------------------

pass() { show "  ${green}✔${plain} $*"; }
fail() {
  failures=$((failures + 1))
  show "  ${red}✘ $*${plain}"
}

# expect WHAT EXPECTED FOUND
expect() { if [[ $2 == "$3" ]]; then pass "$1: $2"; else fail "$1: expected $2, found $3"; fi; }

# check WHAT COMMAND…
check() { if "${@:2}" >/dev/null; then pass "$1"; else fail "$1"; fi; }

# wait_until WHAT SECONDS COMMAND…: a check with a time limit. A failure ends the scenario.
wait_until() {
  local what=$1 limit=$2 until=$((SECONDS + $2)) found
  until found=$("${@:3}" 2>&1); do
    if ((SECONDS >= until)); then
      fail "$what: not within ${limit}s${found:+, found $found}"
      return 1
    fi
    sleep 0.1
  done
  pass "$what"
}

# at_least N COMMAND…: true if the command prints N or more.
at_least() {
  local found
  found=$("${@:2}")
  printf '%s' "$found"
  [[ $found =~ ^[0-9]+$ ]] && ((found >= $1))
}

# is EXPECTED COMMAND…: true if the command prints it. wait_until shows what it printed otherwise.
is() {
  local found
  found=$("${@:2}")
  printf '%s' "$found"
  [[ $found == "$1" ]]
}

reconcile() {
  local report verdict
  step "do the ledgers balance?"
  show "  ${blue}→ GET $admin/api/admin/reconciliation?wait=30${plain}"
  report=$(get "$admin/api/admin/reconciliation?wait=30" tojson)
  verdict=$(jq -r 'if .verdict then .verdict + (.summary | ": \(.orders) orders, \(.confirmed) confirmed, \(.cancelled) cancelled"
    + " · \(.captured) charges captured, \(.refunded) refunded · \(.on_hand) units on hand + \(.reserved) reserved"
    + " + \(.sold) sold = \(.supplied) · \(.dead_letters) dead letters") else .detail end' <<<"$report")
  if [[ $verdict == BALANCED:* ]]; then
    pass "$verdict"
  else
    fail "$verdict"
    jq -r '"    " + ((.in_flight[]? | "\(.what); waits for \(.waits_for)"), (.unanswered[]? | "\(.service): \(.why)"), (.discrepancies[:10][]? | "\(.rule) · \(.subject) · \(.detail)"))' <<<"$report"
  fi
}
