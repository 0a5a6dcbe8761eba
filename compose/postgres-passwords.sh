#!/bin/sh
# Makes the passwords of the database's users, and gives each service its own. What is there already stays as it is.
set -eu
umask 077

all=/credentials/postgres
for name in postgres order inventory payment bank admin; do
  if [ ! -s "$all/$name" ]; then
    head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$all/.$name"
    mv "$all/.$name" "$all/$name"
  fi
  # Its own superuser is nobody's but the server's.
  [ "$name" != postgres ] || continue
  own=/credentials/$name/store.password
  if ! cmp -s "$all/$name" "$own"; then
    cp "$all/$name" "$own.new"
    chown 65532:65532 "$own.new"
    mv "$own.new" "$own"
  fi
done
chown -R postgres "$all"
