# shellcheck shell=bash disable=SC2034,SC2154
# What the scenarios share: showing requests and answers, checks, waits, the timeline, the audit.
# A scenario is a file that sets `title` and `about` and defines `scenario`; demo-scenarios.sh plays it.
# It finds the addresses in $admin $order $inventory $payment $bank, and a $tag that no other run has.

# Pieces that keep the replenishment monitor (threshold 20) from acting while a scenario counts.
plenty=100
# For what takes milliseconds, unless something hangs.
soon=20
# Who does what scenarios do as an operator.
operator="demo"
# When a pause ends by itself, in seconds since 1970; empty: never. For orders that would give up meanwhile.
pause_ends=''

bold='' dim='' red='' green='' blue='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
  bold=$'\033[1m' dim=$'\033[2m' red=$'\033[31m' green=$'\033[32m' blue=$'\033[34m' plain=$'\033[0m'
fi

show() { printf '%s\n' "$@"; }

# Whether a scenario can be played with this system; one that cannot with every system defines its own, and what it `needs`.
possible() { true; }

announce() {
  show "" "${bold}━━ $number · $title ${plain}${dim}$(printf '━%.0s' $(seq $((70 - ${#title}))))${plain}" "$about"
}

# The subshell's last act, however it ends.
end_scenario() {
  local failed=$BASH_COMMAND job
  # What is put right here is not to be interrupted.
  trap '' INT TERM HUP
  # Each in a process group of its own (set -m).
  for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done
  if [[ $ended == no ]]; then
    # A check says for itself what it missed.
    if ((failures == 0)); then show "  ${red}✘ failed: $failed${plain}"; fi
    show "  ${red}✘ the scenario ends here${plain}"
  fi
  if [[ $ended == yes ]] && ((failures == 0)); then
    # Half-open it would stay so until somebody calls the bank again.
    reset_breakers || true
    return
  fi
  start_what_is_down || true
  mend_what_faults_left || true
  exit 1
}

step() {
  show "" "  ${bold}$*${plain}"
  [[ $pausing == yes ]] || return 0
  local left=$((${pause_ends:-0} - $(date +%s)))
  if [[ -z $pause_ends ]]; then
    read -r -p "  ${dim}[Enter]${plain} "
  elif ((left > 0)); then
    # A line break in place of the Enter that did not come.
    read -r -t "$left" -p "  ${dim}[Enter, or in $left s by itself: the order gives up soon]${plain} " || show ""
  fi
}

# How to do on the command line what was just done by HTTP.
same_by() { show "    ${dim}the same: sagactl $*${plain}"; }

# --- requests ---------------------------------------------------------------------------------------------

# request METHOD URL [BODY [HEADER…]]: sends and shows it; leaves `status` and `answer`.
# `shown=FILTER request …` shows only that part of a good answer.
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

# field FILTER: a part of the last answer.
field() { jq -r "$1" <<<"$answer"; }

# get URL FILTER: a part of an answer, unshown.
get() { curl --silent --show-error --max-time 60 "$1" | jq -r "$2"; }

# order_of CUSTOMER TOKEN SKU QUANTITY…: the body of a new order.
order_of() {
  local customer=$1 token=$2 lines=''
  shift 2
  while (($# > 0)); do
    lines+="${lines:+,}{\"sku\":\"$1\",\"quantity\":$2}"
    shift 2
  done
  printf '{"customer":"%s","lines":[%s],"payment":{"token":"%s"}}' "$customer" "$lines" "$token"
}

# place CUSTOMER TOKEN SKU QUANTITY…: places an order; leaves its `id`, and when it gives up in `deadline`.
place() {
  keys=$((keys + 1))
  shown='{id, status, total, deadline}' \
    request POST "$order/api/orders" "$(order_of "$@")" "Idempotency-Key: demo-$tag-$keys"
  expect "taken" 202 "$status"
  [[ $status == 202 ]]
  id=$(field .id) deadline=$(field "$seconds"'.deadline | seconds')
}

# A jq function: the whole seconds of a timestamp since 1970.
seconds='def seconds: sub("\\.[0-9]+"; "") | fromdate; '
# The same in milliseconds.
millis=$seconds'def millis: (seconds * 1000) + ((capture("(?<part>\\.[0-9]+)").part // ".0" | "0" + . | tonumber) * 1000 | floor); '

# Seconds until the last order must have given up, and a little more.
past_deadline() { echo $((deadline - $(date +%s) + soon)); }

# post_at_once N KEY BODY: posts the order N times at once, a hundred per curl. "#" in KEY becomes the number of
# the order. Leaves the answers in $scratch/posted/N, and tells how often it got which status.
post_at_once() {
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

# --- what the services say --------------------------------------------------------------------------------

pieces() { get "$inventory/api/products/$1" ".$2"; }
stock() { get "$inventory/api/products/$1" '"\(.on_hand) \(.reserved) \(.sold)"'; }
reservation() { get "$inventory/api/reservations/$1" .status; }
order_state() { get "$order/api/orders/$1" '[.status, .cancelled_because // empty] | join(" ")'; }
payment_state() { get "$payment/api/payments?order=$1" '.[0].status // "none"'; }
# 404 for a charge that the bank never heard of.
charge_state() { get "$bank/v1/charges/$(payment_id "$1")" .status; }
payment_id() { get "$payment/api/payments?order=$1" '.[0].id'; }
saga_state() { get "$admin/api/admin/sagas/$1" .status; }
facts() { get "$admin/api/admin/sagas/$1" '[.timeline[].type] | join(" ")'; }
dead_letters() { get "$admin/api/admin/dlq/count" .total; }
letter_state() { get "$admin/api/admin/dlq/$1" .status; }
# The dead letters of an order that wait for a human: how many, and the newest.
letters_of() { get "$admin/api/admin/dlq?saga=$1&status=PENDING" '.dead_letters | length'; }
letter_of() { get "$admin/api/admin/dlq?saga=$1&status=PENDING&limit=1" '.dead_letters[0].id // "none"'; }
bank_breaker() { get "$admin/api/admin/breakers" '.[].breakers[] | select(.name == "bank").state'; }
# One step's tallies: "handled retrying dead".
tallies_of() {
  get "$admin/api/admin/services" ".[].service_stats.steps[]? | select(.step == \"$1\") | \"\(.handled) \(.retrying) \(.dead)\""
}
# What the broker still has for a step.
waiting_for() { get "$admin/api/admin/services" ".[].service_stats.steps[]? | select(.step == \"$1\").waiting"; }
# metric URL NAME: the sum of a service's counters or gauges of this name; "name{label=…" narrows it.
metric() {
  curl --silent --show-error --max-time 60 "$1/metrics" |
    awk -v name="$2" 'index($1, name) == 1 && $1 !~ /^#/ { sum += $2 } END { print sum + 0 }'
}

# unfinished_sagas CUSTOMER COUNT: how many of the COUNT sagas (200 at most) have not ended.
unfinished_sagas() {
  get "$admin/api/admin/sagas?customer=$1&limit=200" \
    "$2"' - ([.sagas[] | select(.status == "COMPLETED" or .status == "COMPENSATED")] | length)'
}

# count_orders CUSTOMER [STATUS]: how many there are, page by page.
count_orders() {
  local query="customer=$1${2:+&status=$2}&limit=100" cursor='' page count=0
  while
    page=$(get "$order/api/orders?$query${cursor:+&cursor=$cursor}" '"\(.orders | length) \(.next // "")"')
    count=$((count + ${page%% *})) cursor=${page#* }
    [[ -n $cursor ]]
  do :; done
  echo "$count"
}

# ends ID STATUS [LIMIT]: waits until admin sees the saga in STATUS, and shows how it got there.
ends() {
  local after type who note
  wait_until "saga: $2" "${3:-$soon}" is "$2" saga_state "$1"
  show "  ${blue}→ GET $admin/api/admin/sagas/$1${plain}"
  get "$admin/api/admin/sagas/$1" '.timeline[]
    | [.after_ms, .type, .producer, .detail.note // .detail.cancelled_because // ""] | @tsv' |
    while IFS=$'\t' read -r after type who note; do
      printf '    %7d ms  %-23s %-10s %s\n' "$after" "$type" "$who" "$note"
    done
}

# --- what is done to the system; to its processes: local.sh and compose.sh -------------------------------

# inject SERVICE KIND [MEMBERS]: makes a fault on purpose; leaves its number in `fault`.
inject() {
  local service=$1 kind=$2 more=${3:-}
  shown='{service, id, kind, step, next} | with_entries(select(.value))' request POST "$admin/api/admin/faults" \
    "{\"service\":\"$service\",\"kind\":\"$kind\"${more:+,$more}}" "X-Operator: $operator"
  expect "the fault is there" 201 "$status"
  [[ $status == 201 ]]
  fault=$(field .id)
}

# end_fault SERVICE ID
end_fault() {
  request DELETE "$admin/api/admin/faults/$1/$2" "" "X-Operator: $operator"
  expect "the fault is gone" 200 "$status"
}

# replay_letter ID REASON: hands it back to the step that failed.
replay_letter() {
  shown='{id, status, step}' request POST "$admin/api/admin/dlq/$1/replay" "{\"reason\":\"$2\"}" "X-Operator: $operator"
  expect "handed back" "202 REPLAYING" "$status $(field .status)"
}

# Ends all faults and what came of them, as far as a scenario that was cut off has left any; says nothing otherwise.
mend_what_faults_left() {
  local faults redrive letter
  faults=$(get "$admin/api/admin/faults" '.faults | length')
  if ((${faults:-0} > 0)); then
    show "  ending $faults fault(s) made on purpose"
    ask DELETE faults >/dev/null
  fi
  reset_breakers
  for redrive in $(get "$admin/api/admin/dlq/redrive" \
    ".redrives[] | select(.operator == \"$operator\" and .status != \"DONE\" and .status != \"CANCELLED\").id"); do
    show "  cancelling redrive $redrive"
    ask POST "dlq/redrive/$redrive/cancel" '{"reason":"left by a scenario that was cut off"}' >/dev/null
  done
  if [[ $(injected_letters) != 0 ]]; then
    show "  handing back the dead letters of faults made on purpose"
    ask POST dlq/redrive '{"filter":{"text":"injected:"},"canary":0,"force":true,"reason":"left by a scenario that was cut off"}' >/dev/null
    wait_until "none is left" $((2 * soon)) is 0 injected_letters
  fi
  for letter in $(poison_letters); do
    show "  discarding dead letter $letter, which is no message"
    ask DELETE "dlq/$letter" '{"reason":"left by a scenario that was cut off"}' >/dev/null
  done
}

# Closes every breaker that is not.
reset_breakers() {
  local breakers name
  breakers=$(get "$admin/api/admin/breakers" '.[] | "\(.service)/\(.breakers[] | select(.state != "CLOSED").name)"')
  for name in $breakers; do
    show "  resetting the breaker $name"
    ask POST "breakers/$name" '{"action":"reset"}' >/dev/null
  done
}

# Dead letters of faults made on purpose that wait for a human or are being replayed; at most 200.
injected_letters() { get "$admin/api/admin/dlq?text=injected:&status=PENDING,REPLAYING&limit=200" '.dead_letters | length'; }

# The dead letters that wait for a human and are what the fault publish_garbage publishes.
poison_letters() {
  local letter
  for letter in $(get "$admin/api/admin/dlq?status=PENDING&limit=200" '.dead_letters[] | select(.origin == "foreign").id'); do
    get "$admin/api/admin/dlq/$letter" "select(.payload_base64 == \"$(printf '{"this is": "no envelope"' | base64)\").id"
  done
}

# ask METHOD PATH [BODY]: as an operator, unshown.
ask() {
  curl --silent --show-error --max-time 60 --request "$1" --header "X-Operator: $operator" \
    ${3:+--header 'Content-Type: application/json' --data "$3"} "$admin/api/admin/$2"
}

# keep_in_stock SKU: sees to it that plenty is there.
keep_in_stock() {
  local there
  there=$(pieces "$1" on_hand)
  if [[ $there == null ]]; then
    fail "there is no product $1: start the system without --no-seed"
    return 1
  fi
  ((there < plenty)) || return 0
  shown='{sku, on_hand}' request POST "$inventory/api/products/$1/restock" "{\"quantity\":$((2 * plenty))}"
}

# new_product SKU NAME CENTS PIECES: lists a product that is not replenished, and waits until it can be ordered.
new_product() {
  local body
  printf -v body '{"sku":"%s","name":"%s","unit_price":{"amount_minor":%d,"currency":"EUR"},"quantity":%d,"replenish":false}' "$@"
  shown='{sku, on_hand}' request POST "$inventory/api/products" "$body"
  expect "listed" 201 "$status"
  wait_until "the order service has heard of it" "$soon" is 'lines[1].sku' first_unknown "$1"
}

# Which line of an order of this product and one that nobody lists is refused: it orders nothing.
first_unknown() {
  curl --silent --show-error --max-time 60 --header 'Content-Type: application/json' \
    --data "$(order_of demo tok_ok "$1" 1 nobody-lists-this 1)" "$order/api/orders" | jq -r '.errors[0].field'
}

# --- load -------------------------------------------------------------------------------------------------

# begin_load RATE SECONDS: orders come at this rate while the scenario goes on.
begin_load() {
  local words=(load --rate "$1" --duration "$2s" --mix happy=100 --drain 60s --may-shed --timeline --json)
  show "  ${blue}\$ sagactl ${words[*]}${plain}"
  set -m
  "$sagactl" "${words[@]}" >"$scratch/load.json" 2>"$scratch/load.err" &
  loading=$!
  set +m
  confirmed_before=$(confirmed)
  wait_until "orders end" "$soon" at_least_is $((confirmed_before + $1)) confirmed
}

# Sagas that have ended well so far.
confirmed() { get "$admin/api/admin/overview" '.sagas.by_status.COMPLETED // 0'; }

# orders_go_on: a check that more of them end from now on.
orders_go_on() {
  local before
  before=$(confirmed)
  wait_until "orders end on" "$soon" at_least_is $((before + 20)) confirmed
}

# end_load LONGEST_PAUSE_S: what became of all that was ordered. Whoever spoke with a process that was killed has got no answer,
# and whether the order was taken is in the books.
end_load() {
  wait "$loading" || true
  jq -e .started "$scratch/load.json" >/dev/null || { fail "no load: $(tail -n 3 "$scratch/load.err")" && return 1; }
  show "    $(jq -r '"\(.started) orders: \(.completed) confirmed, \(.shed) refused, \(.errors) got no answer; p50 \(.latency_ms.p50) ms, p99 \(.latency_ms.p99) ms"' "$scratch/load.json")"
  expect "orders that did not end" 0 "$(jq .unfinished "$scratch/load.json")"
  local pause
  pause=$(jq '[.timeline[].ended] | reduce .[] as $ended ({now: 0, most: 0};
    (if $ended == 0 then .now + 1 else 0 end) as $now | {now: $now, most: ([.most, $now] | max)}) | .most' "$scratch/load.json")
  show "    the longest time in which none ended: $pause s"
  holds "that is at most $1 s" test "$pause" -le "$1"
}

# --- checks -----------------------------------------------------------------------------------------------

pass() { show "  ${green}✔${plain} $*"; }
fail() {
  failures=$((failures + 1))
  show "  ${red}✘ $*${plain}"
}

# expect WHAT WANTED FOUND
expect() { if [[ $2 == "$3" ]]; then pass "$1: $2"; else fail "$1: wanted $2, found $3"; fi; }

# holds WHAT COMMAND…
holds() { if "${@:2}" >/dev/null; then pass "$1"; else fail "$1"; fi; }

# wait_until WHAT SECONDS COMMAND…: a check that may take a while. When it fails the scenario ends.
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

# at_least_is N COMMAND…: whether the command prints N or more.
at_least_is() {
  local found
  found=$("${@:2}")
  printf '%s' "$found"
  [[ $found =~ ^[0-9]+$ ]] && ((found >= $1))
}

# is WANTED COMMAND…: whether the command prints it. For wait_until, which shows what was found instead.
is() {
  local found
  found=$("${@:2}")
  printf '%s' "$found"
  [[ $found == "$1" ]]
}

audit_the_books() {
  local report verdict
  step "do the books balance?"
  show "  ${blue}→ GET $admin/api/admin/audit?wait=30${plain}"
  report=$(get "$admin/api/admin/audit?wait=30" tojson)
  verdict=$(jq -r 'if .verdict then .verdict + (.summary | ": \(.orders) orders, \(.confirmed) confirmed, \(.cancelled) cancelled"
    + " · \(.captured) charges held, \(.refunded) given back · \(.on_hand) pieces on hand + \(.reserved) reserved"
    + " + \(.sold) sold = \(.supplied) · \(.dead_letters) dead letters") else .detail end' <<<"$report")
  if [[ $verdict == BALANCED:* ]]; then
    pass "$verdict"
  else
    fail "$verdict"
    jq -r '"    " + ((.under_way[]? | "\(.what); waits for \(.waits_for)"), (.unanswered[]? | "\(.service): \(.why)"), (.discrepancies[:10][]? | "\(.rule) · \(.subject) · \(.detail)"))' <<<"$report"
  fi
}
