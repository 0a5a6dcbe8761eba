# shellcheck shell=bash disable=SC2154
# The report of `bench.sh all`: machine, versions, durability settings, and the page. To be sourced by bench.sh.

# measured_folder: prints the folder of the measured programs.
measured_folder() {
  local target=$target_dir
  [[ $profile != dist ]] || target+=/$(rustc_host)
  printf '%s\n' "$target/$profile"
}

# build_measured: builds the measured programs and the benchmark tools.
build_measured() {
  if [[ $profile == dist ]]; then
    "$root/scripts/dist.sh"
  else
    cargo_at_root build --profile "$profile" --bins --workspace --exclude simulation
  fi
}

# describe: records machine, versions and durability, from a running system.
describe() {
  local revision broker machine guided=
  start_system "$bin"
  # The setting of the running broker.
  broker=$(grep -rhoE --include='*.conf' 'sync_interval: *[a-z0-9]+' "$data" | head -n 1) || broker='sync_interval: the default'
  stop_system
  revision=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)
  [[ -z $(git -C "$root" status --porcelain 2>/dev/null) ]] || revision+=' with uncommitted changes'
  machine=$("$tool" machine "$folder") || die "the machine cannot be described"
  note machine "$(jq 'del(.sqlite)' <<<"$machine")"
  [[ ! -e $bin/guided ]] || guided='guided '
  note versions "$(jq -n --arg revision "$revision" --arg profile "$guided$profile" --arg rustc "$(version_of rustc || echo unknown)" \
    --arg nats "$(version_of "$NATS_SERVER_BIN" || echo unknown)" --argjson machine "$machine" \
    '{revision: $revision, profile: $profile, rustc: $rustc, nats_server: $nats, sqlite: $machine.sqlite}')"
  # The setting of every connection that writes.
  note durability "$(jq -n --arg broker "${broker##*: }" --arg store \
    "$(grep -rhoE '"synchronous", "[A-Z]+"' "$root/shared/engine/src/store/sqlite" | grep -oE '[A-Z]{2,}' | head -n 1)" \
    '{sqlite_synchronous: (if $store == "" then "unknown" else $store end), jetstream_sync_interval: $broker}')"
  note quick "$([[ $quick == yes ]] && echo true || echo false)"
}

# conclude: prints the table. With --write, writes page and charts if all checks passed.
conclude() {
  printf '%s\n' "$results" >"$folder/results.json"
  title "results"
  show "$("$tool" table "$folder/results.json")"
  [[ $writing == yes ]] || return 0
  if ((failed > 0)); then
    show "" "  not written, because a check failed"
    return 0
  fi
  "$tool" page "$folder/results.json" "$root/docs/benchmarks"
  show "" "  written: docs/benchmarks/"
}
