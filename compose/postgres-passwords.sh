#!/bin/sh
# Creates the passwords of the database users and copies each to its service. Existing ones stay unchanged.
set -eu
umask 077

all=/credentials/postgres
for name in $(ls /credentials); do
  if [ ! -s "$all/$name" ]; then
    head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$all/.$name"
    mv "$all/.$name" "$all/$name"
  fi
  # Only the server gets the superuser's password.
  [ "$name" != postgres ] || continue
  own=/credentials/$name/store.password
  if ! cmp -s "$all/$name" "$own"; then
    cp "$all/$name" "$own.new"
    chown 65532:65532 "$own.new"
    mv "$own.new" "$own"
  fi
done
chown -R postgres "$all"
