#!/bin/sh
# Creates the configuration that connects three brokers, unless it exists, and sets the owner of their volumes. The users
# are in nats.conf, as for a single broker.
set -eu
umask 077

chown 65532:65532 /brokers/*
config=/credentials/cluster.conf
[ ! -s "$config" ] || exit 0

# A route has no permission checks: this password makes its owner a broker.
password=$(head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
cat >"$config.new" <<CONFIG
include nats.conf
server_name: \$NATS_NAME
cluster {
  name: saga
  listen: "0.0.0.0:6222"
  authorization { user: broker, password: "$password", timeout: 5 }
  routes: [
    "nats://broker:$password@nats-1:6222"
    "nats://broker:$password@nats-2:6222"
    "nats://broker:$password@nats-3:6222"
  ]
}
CONFIG
chown 65532:65532 "$config.new"
mv "$config.new" "$config"
